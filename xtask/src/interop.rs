//! `cargo xtask interop --tier 1`: end-to-end tests with a real Apache Kafka and real clients, on loopback.
//!
//! Kafka, its clients and its tools come from Maven Central through `mvn`; librdkafka and kafka-python through
//! `pip`; franz-go through `go`; kcat from the system. Everything is kept in one cache folder (`WEIR_INTEROP_CACHE`, else
//! `~/.cache/weir-interop`). What the checks compare with is never weir's own code: log files, record batches and
//! producer state are read by the small readers in `logs.rs`, and requests are made by `raw.rs`.

mod batches;
mod clients;
mod crash;
mod dump;
mod handover;
mod kafka;
mod logs;
mod mirror;
mod node;
mod process;
mod raw;
mod reading;
mod report;
mod script;
mod segments;
mod served;
mod tools;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;

use crate::flags::InteropOptions;
use report::Report;
use tools::Tools;

pub(crate) use kafka::command_for_bench as kafka_for_bench;
pub(crate) use kafka::directories_for_golden;
pub(crate) use kafka::loader_for_bench as kafka_loader_for_bench;
pub(crate) use tools::build_weir;

/// The source's topic that is mirrored and promoted.
const TOPIC: &str = "orders";
/// The source's topic that stays mirrored while the node is killed.
const LIVE: &str = "payments";
const PARTITIONS: i32 = 3;
const MIRROR: &str = "a-to-b";

/// Everything a check may use.
struct World {
    tools: Tools,
    /// The binary to test; empty where another broker is tested.
    weir: PathBuf,
    work: PathBuf,
    report: Report,
}

/// Runs tier 1 and prints a line a check.
///
/// # Errors
/// If the machine cannot run it at all; a failed check is the exit code.
pub(crate) fn run(options: &InteropOptions) -> Result<ExitCode> {
    let start = Instant::now();
    let folder = tempfile::Builder::new().prefix("weir-interop-").tempdir()?;
    let work = folder.path().to_path_buf();
    let mut report = Report::new(options.only.clone());
    match Tools::prepare(&work) {
        Ok(tools) => {
            let mut world = World { tools, weir: PathBuf::new(), work: work.clone(), report };
            if let Some(bootstrap) = &options.smoke {
                clients::smoke(&mut world, bootstrap);
            } else {
                // These need no broker, or one of their own, so that they can be had alone in less time.
                let alone = ["batches", "segments", "served", "handover"]
                    .into_iter()
                    .find(|name| options.only.as_ref().is_some_and(|only| only.starts_with(name)));
                if alone.is_none_or(|name| name == "batches") {
                    stage(&mut world, "batches", batches::check);
                }
                if alone.is_none_or(|name| name == "segments") {
                    stage(&mut world, "segments", segments::check);
                }
                if alone.is_none_or(|name| ["served", "handover"].contains(&name)) {
                    world.weir = tools::weir()?;
                }
                match alone {
                    None => tier_1(&mut world),
                    Some("served") => drop(stage(&mut world, "served", served::check)),
                    Some("handover") => drop(stage(&mut world, "handover", handover_alone)),
                    Some(_) => {}
                }
            }
            report = world.report;
        }
        Err(missing) => {
            println!("{missing:#}");
            report.skip("interop", &format!("{missing:#}"));
        }
    }
    if options.keep || report.failed() > 0 {
        println!("work folder: {}", folder.keep().display());
    }
    println!("interop took {:.1} s", start.elapsed().as_secs_f64());
    Ok(report.finish())
}

/// One life of one source and one node; then the source's second life, on files of weir.
fn tier_1(world: &mut World) {
    let served = stage(world, "served", served::check);
    let Some(source) = stage(world, "source", mirror::start_source) else { return };
    let node = stage(world, "node", |world| node::Node::start_new(world, "b"))
        .and_then(|node| with_node(world, &source, node));
    let kafka = stage(world, "kafka_stop", |world| dump::stop_source(world, source));
    let mut live = None;
    if let (Some(kafka), Some(node)) = (&kafka, node) {
        live = stage(world, "dump", |world| dump::compare(world, kafka, node));
    }
    if let (Some(kafka), Some(served)) = (kafka, served) {
        stage(world, "handover", |world| handover::check(world, &kafka, &served, live.as_deref()));
    }
}

/// The handover without all that comes before it.
fn handover_alone(world: &mut World) -> Result<()> {
    let served = served::check(world)?;
    let kafka = kafka::Kafka::start(&world.tools, &world.work.join("a"))?;
    handover::create_topics(world, &kafka)?;
    handover::check(world, &kafka.stop()?, &served, None)
}

/// All that needs both sides alive; gives the node back if it is worth looking at its files.
fn with_node(world: &mut World, source: &mirror::Source, mut node: node::Node) -> Option<node::Node> {
    let seeded = stage(world, "mirror", |world| mirror::mirror_to_lag_0(world, source, &node))?;
    stage(world, "stop", |world| mirror::stop_and_check(world, source, &node, &seeded))?;
    stage(world, "after", |world| mirror::writes_after(world, source, &node, &seeded));
    let bootstrap = node.address();
    clients::smoke(world, &bootstrap);
    stage(world, "kill", |world| crash::ten_rounds(world, source, &mut node));
    Some(node)
}

/// Runs one stage; its error is one failed check, and what stands on it is not run.
fn stage<T>(world: &mut World, name: &str, work: impl FnOnce(&mut World) -> Result<T>) -> Option<T> {
    let start = Instant::now();
    let result = work(world);
    println!("# {name}: {:.1} s", start.elapsed().as_secs_f64());
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            world.report.check(&format!("{name}.stage"), Err(error));
            None
        }
    }
}
