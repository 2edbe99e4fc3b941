//! A short meeting with each unmodified client: kcat, confluent-kafka, kafka-python, Java's console tools.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::World;
use super::process::{self, Ended, tail};

const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";
const PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
const CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
const OFFSETS: &str = "org.apache.kafka.tools.GetOffsetShell";

/// Runs every client against the broker at `address`, which need not be weir.
pub(super) fn smoke(world: &mut World, address: &str) {
    kcat(world, address);
    for program in ["smoke_confluent.py", "smoke_kafka_python.py"] {
        let topic = program.trim_end_matches(".py").replace('_', "-");
        match world.tools.run_python(&world.work, program, &[address, &topic]) {
            Ok(ended) => {
                ended.stdout.lines().for_each(|line| world.report.check_line(line));
                let result = ended.must_succeed(program).map(|_| ());
                world.report.check(&format!("{program}.ends_well"), result);
            }
            Err(error) => world.report.check(program, Err(error)),
        }
    }
    console(world, address);
}

fn kcat(world: &mut World, address: &str) {
    let numbers: String = (1..=10).map(|number| format!("{number}\n")).collect();
    let run = |arguments: &[&str], input: &str| -> Result<Ended> {
        let mut command = Command::new("kcat");
        command.args(["-b", address, "-q"]).args(arguments);
        process::run(&mut command, &world.work, Duration::from_secs(30), input)?.must_succeed("kcat")
    };
    let mut results: Vec<(String, Result<()>)> = Vec::new();
    for (acks, codec) in [("all", "none"), ("1", "lz4"), ("all", "zstd")] {
        let topic = format!("kcat-{acks}-{codec}");
        let written =
            run(&["-P", "-t", &topic, "-p", "0", "-X", &format!("acks={acks}"), "-z", codec], &numbers);
        results.push((format!("kcat.produce_{acks}_{codec}_to_a_new_topic"), written.map(|_| ())));
        let read = run(&["-C", "-t", &topic, "-p", "0", "-o", "beginning", "-e"], "").and_then(|ended| {
            ensure!(ended.stdout == numbers, "read {:?}", tail(&ended.stdout, 3));
            Ok(())
        });
        results.push((format!("kcat.fetch_{acks}_{codec}"), read));
    }
    let listed = run(&["-L"], "").and_then(|ended| {
        ensure!(ended.stdout.contains("topic \"kcat-all-none\""), "{}", tail(&ended.stdout, 3));
        Ok(())
    });
    results.push(("kcat.list".to_owned(), listed));
    let queried = run(&["-Q", "-t", "kcat-all-none:0:-1"], "").and_then(|ended| {
        ensure!(ended.stdout.contains("offset 10"), "{}", tail(&ended.stdout, 3));
        Ok(())
    });
    results.push(("kcat.query_end_offset".to_owned(), queried));
    for (name, result) in results {
        world.report.check(&name, result);
    }
}

fn console(world: &mut World, address: &str) {
    let topic = "console";
    let server = ["--bootstrap-server", address];
    let numbers: String = (1..=10).map(|number| format!("{number}\n")).collect();
    let steps: [(&str, &str, &[&str], &str, &str); 6] = [
        (
            "create",
            TOPICS,
            &["--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1"],
            "",
            "Created topic",
        ),
        ("list", TOPICS, &["--list"], "", topic),
        ("describe", TOPICS, &["--describe", "--topic", topic], "", "PartitionCount: 2"),
        (
            "produce",
            PRODUCER,
            &["--topic", topic, "--command-property", "partitioner.ignore.keys=true"],
            &numbers,
            "",
        ),
        ("get_offsets", OFFSETS, &["--topic", topic, "--time", "latest"], "", "console:1:"),
        (
            "consume_assigned",
            CONSUMER,
            &["--topic", topic, "--partition", "0", "--offset", "earliest", "--timeout-ms", "5000"],
            "",
            "Processed a total of",
        ),
    ];
    for (name, class, arguments, input, wanted) in steps {
        let arguments: Vec<&str> = server.iter().chain(arguments).copied().collect();
        let result = world.tools.run_java(&world.work, class, &arguments, input).and_then(|ended| {
            ensure!(ended.all().contains(wanted), "no {wanted:?} in: {}", tail(&ended.all(), 6));
            let bad = ended
                .all()
                .lines()
                .find(|line| line.contains("ERROR") || line.contains("Exception"))
                .map(str::to_owned);
            // The consumer ends by its time limit, which it calls an error.
            ensure!(bad.is_none() || name == "consume_assigned", "{bad:?}");
            Ok(())
        });
        world.report.check(&format!("console.{name}"), result);
    }
    let result = world
        .tools
        .run_java(
            &world.work,
            OFFSETS,
            &["--bootstrap-server", address, "--topic", topic, "--time", "latest"],
            "",
        )
        .and_then(|ended| {
            let sum: i64 = ended
                .stdout
                .lines()
                .filter_map(|line| line.rsplit(':').next())
                .filter_map(|offset| offset.trim().parse::<i64>().ok())
                .sum();
            ensure!(sum == 10, "the end offsets add up to {sum}, 10 records were written");
            Ok(())
        });
    world.report.check("console.all_records_are_counted", result);
}
