//! Metrics, in the text format of OpenMetrics, which Prometheus reads. `docs/operations.md` has their meanings.
//!
//! Every series is there from the start, with a 0 where nothing has happened; what is not known is left out.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
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

    fn of_kinds(&self, counter: impl Fn(&Counted) -> &AtomicU64) -> Vec<Series> {
        [("written", &self.written), ("met", &self.met)]
            .map(|(kind, counted)| (vec![("kind", kind)], counter(counted).load(Ordering::Relaxed)))
            .into()
    }
}

type Series = (Vec<(&'static str, &'static str)>, u64);

/// One metric, as it is at a scrape.
#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    metric_type: MetricType,
    series: Vec<Series>,
}

/// All metrics, as they are at a scrape.
#[derive(Debug)]
struct Scrape(Vec<Family>);

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        for family in &self.0 {
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, family.metric_type)?;
            for (labels, value) in &family.series {
                let labels = labels.as_slice();
                let mut series = metric.encode_family(&labels)?;
                match family.metric_type {
                    MetricType::Counter => series.encode_counter::<NoLabelSet, _, u64>(value, None)?,
                    _ => series.encode_gauge(value)?,
                }
            }
        }
        Ok(())
    }
}

/// All metrics, as a scrape gets them. `node`: once it is loaded; `is_ready`: while it serves.
#[must_use]
pub fn render(loading: &LoadProgress, node: Option<&Node>, is_ready: bool) -> String {
    let mut families = Vec::new();
    let mut gauge = |name, help, series| {
        families.push(Family { name, help, metric_type: MetricType::Gauge, series });
    };
    let one = |value: u64| vec![(Vec::new(), value)];
    gauge("weir_build_info", "What runs.", vec![(vec![("version", env!("CARGO_PKG_VERSION"))], 1)]);
    gauge("weir_ready", "1 while clients are served.", one(u64::from(is_ready)));
    let left = loading.partitions_total.saturating_sub(loading.partitions_done);
    let left = u64::try_from(left).unwrap_or(u64::MAX);
    gauge("weir_loading_partitions", "Partitions that a start has still to load.", one(left));
    let left = loading.bytes_total.saturating_sub(loading.bytes_done);
    gauge("weir_loading_bytes", "Bytes of logs that a start has still to read.", one(left));
    if let Some(node) = node {
        gauge("weir_partitions", "Partitions.", partitions(node));
        let barriers = node.barriers();
        let mut counter = |name, help, series| {
            families.push(Family { name, help, metric_type: MetricType::Counter, series });
        };
        let of = barriers.of_kinds(|counted| &counted.barriers);
        counter("weir_barriers", "Barriers appended.", of);
        let of = barriers.of_kinds(|counted| &counted.producers_expired);
        counter("weir_barrier_producers_expired", "Producer entries that were forgotten at barriers.", of);
        let of = barriers.of_kinds(|counted| &counted.transactions_aborted);
        let help = "Transactions that were open at a barrier and ended there.";
        counter("weir_barrier_transactions_aborted", help, of);
    }
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(families)));
    let mut out = String::new();
    let _infallible = encode(&mut out, &registry);
    out
}

/// How many of each role and state.
fn partitions(node: &Node) -> Vec<Series> {
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
    let labels = |role, state| vec![("role", role), ("state", state)];
    let series = ROLES.iter().zip(counts).flat_map(|(role, counts)| {
        STATES.iter().zip(counts).map(move |(state, count)| (labels(*role, *state), count))
    });
    series.collect()
}
