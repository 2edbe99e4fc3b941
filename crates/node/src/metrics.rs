//! Metrics, in the text format that Prometheus reads. `docs/operations.md` has their meanings.
//!
//! Every series is there from the start, with a 0 where nothing has happened; what is not known is left out.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_psm::{AppendOrigin, BarrierApplied};

use crate::loading::LoadProgress;
use crate::node::Node;
use crate::shard::LogStatus;

/// What barriers did since the process started: a partition that is opened again begins no new count.
#[derive(Debug, Default)]
pub struct BarrierCounters {
    /// A stop of this node wrote them.
    written: Counted,
    /// They were met in what was mirrored.
    met: Counted,
}

#[derive(Debug, Default)]
struct Counted {
    barriers: AtomicU64,
    producers_expired: AtomicU64,
    transactions_aborted: AtomicU64,
}

impl BarrierCounters {
    /// Counts one that was appended.
    pub(crate) fn count(&self, origin: AppendOrigin, barrier: &BarrierApplied) {
        let counted = if origin == AppendOrigin::Replication { &self.met } else { &self.written };
        let add = |counter: &AtomicU64, count: usize| {
            counter.fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
        };
        add(&counted.barriers, 1);
        add(&counted.producers_expired, barrier.producers_expired);
        add(&counted.transactions_aborted, barrier.transactions_aborted.len());
    }

    fn of_kinds(&self, counter: impl Fn(&Counted) -> &AtomicU64) -> [(String, u64); 2] {
        [("written", &self.written), ("met", &self.met)]
            .map(|(kind, counted)| (format!("{{kind=\"{kind}\"}}"), counter(counted).load(Ordering::Relaxed)))
    }
}

/// All metrics, as a scrape gets them. `node`: once it is loaded; `is_ready`: while it serves.
#[must_use]
pub fn render(loading: &LoadProgress, node: Option<&Node>, is_ready: bool) -> String {
    let mut out = String::new();
    let one = |value: u64| [(String::new(), value)];
    let version = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    family(&mut out, "weir_build_info", "gauge", "What runs.", &[(version, 1)]);
    family(&mut out, "weir_ready", "gauge", "1 while clients are served.", &one(u64::from(is_ready)));
    let left = loading.partitions_total.saturating_sub(loading.partitions_done);
    let left = u64::try_from(left).unwrap_or(u64::MAX);
    family(
        &mut out,
        "weir_loading_partitions",
        "gauge",
        "Partitions that a start has still to load.",
        &one(left),
    );
    let left = loading.bytes_total.saturating_sub(loading.bytes_done);
    family(
        &mut out,
        "weir_loading_bytes",
        "gauge",
        "Bytes of logs that a start has still to read.",
        &one(left),
    );
    let Some(node) = node else { return out };
    family(&mut out, "weir_partitions", "gauge", "Partitions.", &partitions(node));
    let barriers = node.barriers();
    let of = barriers.of_kinds(|counted| &counted.barriers);
    family(&mut out, "weir_barriers_total", "counter", "Barriers appended.", &of);
    let of = barriers.of_kinds(|counted| &counted.producers_expired);
    let help = "Producer entries that were forgotten at barriers.";
    family(&mut out, "weir_barrier_producers_expired_total", "counter", help, &of);
    let of = barriers.of_kinds(|counted| &counted.transactions_aborted);
    let help = "Transactions that were open at a barrier and ended there.";
    family(&mut out, "weir_barrier_transactions_aborted_total", "counter", help, &of);
    out
}

fn family(out: &mut String, name: &str, kind: &str, help: &str, series: &[(String, u64)]) {
    let _infallible = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in series {
        let _infallible = writeln!(out, "{name}{labels} {value}");
    }
}

/// How many of each role and state.
fn partitions(node: &Node) -> Vec<(String, u64)> {
    const ROLES: [&str; 2] = ["leader", "mirror"];
    const STATES: [&str; 4] = ["online", "writes_refused", "offline", "loading"];
    let mut counts = [[0; STATES.len()]; ROLES.len()];
    for topic in node.metadata().topics() {
        for id in topic.partition_ids() {
            let state = match node.partition(id).map(|handle| handle.status().log) {
                Some(LogStatus::Online(_)) => 0,
                Some(LogStatus::WritesRefused { .. }) => 1,
                // One without a directory has no handle.
                Some(LogStatus::Offline { .. }) | None => 2,
                Some(LogStatus::Loading) => 3,
            };
            let role = usize::from(node.metadata().leadership(id).read_only.is_some());
            counts[role][state] += 1;
        }
    }
    let labels = |role, state| format!("{{role=\"{role}\",state=\"{state}\"}}");
    let series = ROLES.iter().zip(counts).flat_map(|(role, counts)| {
        STATES.iter().zip(counts).map(move |(state, count)| (labels(role, state), count))
    });
    series.collect()
}
