//! CreateTopics.

use std::collections::{BTreeMap, BTreeSet};

use weir_segment::layout::{MAX_TOPIC_NAME, is_valid_topic_name};
use weir_wire::ErrorCode;
use weir_wire::msg::create_topics_request::CreatableTopic;
use weir_wire::msg::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use weir_wire::msg::{CreateTopicsRequest, CreateTopicsResponse};

use super::key_32_describe_configs::topic_configs;
use super::{Call, text};
use crate::config::check_topic_configs;
use crate::error_code;
use crate::metadata::{Change, Topic};
use crate::node::{CreateTopicError, Node};
use crate::shard::describe;
use crate::uuid;

/// Most partitions that one request makes. Kafka: `ReplicationControlManager`.
const MAX_PARTITIONS: i32 = 10_000;

pub(super) async fn handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse {
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<String> = request
        .topics
        .iter()
        .map(|topic| topic.name.as_str().to_owned())
        .filter(|name| !seen.insert(name.clone()))
        .collect();
    let mut response = CreateTopicsResponse::default();
    let mut answered = BTreeSet::new();
    let mut left = MAX_PARTITIONS;
    for wanted in request.topics {
        if !answered.insert(wanted.name.as_str().to_owned()) {
            continue;
        }
        let made = if twice.contains(wanted.name.as_str()) {
            Err((ErrorCode::INVALID_REQUEST, "Duplicate topic name.".to_owned()))
        } else {
            create(&call.node, &wanted, request.validate_only, &mut left).await
        };
        response.topics.push(result(&call.node, &wanted, made));
    }
    response
}

pub(super) type Refusal = (ErrorCode, String);

fn result(node: &Node, wanted: &CreatableTopic, made: Result<Topic, Refusal>) -> CreatableTopicResult {
    let mut answer = CreatableTopicResult::default();
    answer.name = wanted.name.clone();
    match made {
        Ok(topic) => {
            answer.topic_id = uuid::to_wire(topic.id);
            answer.num_partitions = topic.partitions;
            answer.replication_factor = 1;
            let configs = topic_configs(node.config(), &topic.configs).into_iter().map(|found| {
                let mut config = CreatableTopicConfigs::default();
                config.name = text(found.name);
                config.value = Some(text(&found.value));
                config.config_source = found.source;
                config
            });
            answer.configs = Some(configs.collect());
        }
        Err((code, message)) => {
            answer.error_code = code.get();
            answer.error_message = Some(text(&message));
            (answer.num_partitions, answer.replication_factor) = (-1, -1);
            answer.configs = Some(Vec::new());
        }
    }
    answer
}

async fn create(
    node: &Node,
    wanted: &CreatableTopic,
    validate_only: bool,
    left: &mut i32,
) -> Result<Topic, Refusal> {
    let name = wanted.name.as_str();
    if node.metadata().topic(name).is_some() {
        return Err((ErrorCode::TOPIC_ALREADY_EXISTS, format!("Topic '{name}' already exists.")));
    }
    check_name(node, name)?;
    let partitions = partitions(node, wanted)?;
    if partitions > *left {
        let why = format!("Excessively large number of partitions per request: more than {MAX_PARTITIONS}.");
        return Err((ErrorCode::POLICY_VIOLATION, why));
    }
    *left -= partitions;
    let mut configs = BTreeMap::new();
    for config in &wanted.configs {
        let Some(value) = &config.value else {
            let why = format!("Null value not supported for topic configs: {}", config.name.as_str());
            return Err((ErrorCode::INVALID_CONFIG, why));
        };
        configs.insert(config.name.as_str().to_owned(), value.as_str().to_owned());
    }
    check_topic_configs(&configs).map_err(|why| (ErrorCode::INVALID_CONFIG, why))?;
    let mut topic = Topic { name: name.to_owned(), id: uuid::ZERO, partitions, configs, mirror: None };
    if validate_only {
        return Ok(topic);
    }
    topic.id = uuid::random().map_err(|error| (ErrorCode::UNKNOWN_SERVER_ERROR, error.to_string()))?;
    node.create_topic(topic.clone(), Change::default()).await.map_err(|error| {
        let code = match &error {
            CreateTopicError::Exists { .. } => ErrorCode::TOPIC_ALREADY_EXISTS,
            CreateTopicError::IdTaken { .. } => ErrorCode::UNKNOWN_SERVER_ERROR,
            CreateTopicError::InTheWay { .. } | CreateTopicError::Disk { .. } => {
                ErrorCode::KAFKA_STORAGE_ERROR
            }
            CreateTopicError::Metadata(error) => error_code::of_metadata(error),
            CreateTopicError::ShutDown => ErrorCode::NOT_CONTROLLER,
        };
        (code, describe(&error))
    })?;
    Ok(topic)
}

/// Whether a topic may have this name, which may be taken.
///
/// Kafka: `Topic.validate`, and names that differ in `.` and `_` alone, which share their metrics.
pub(super) fn check_name(node: &Node, name: &str) -> Result<(), Refusal> {
    let invalid = |why: String| (ErrorCode::INVALID_TOPIC_EXCEPTION, why);
    if name.is_empty() {
        return Err(invalid("Topic name is invalid: the empty string is not allowed".to_owned()));
    }
    if matches!(name, "." | "..") {
        return Err(invalid(format!("Topic name is invalid: '{name}' is not allowed")));
    }
    if name.len() > MAX_TOPIC_NAME {
        let why = format!(
            "Topic name is invalid: the length of '{}...' is longer than the max allowed length {MAX_TOPIC_NAME}",
            name.chars().take(MAX_TOPIC_NAME).collect::<String>()
        );
        return Err(invalid(why));
    }
    if !is_valid_topic_name(name) {
        let why = format!(
            "Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        );
        return Err(invalid(why));
    }
    if name.contains(['.', '_']) {
        let plain = name.replace('.', "_");
        let collides = node
            .metadata()
            .topics()
            .into_iter()
            .find(|topic| topic.name.replace('.', "_") == plain && topic.name != name);
        if let Some(other) = collides {
            return Err(invalid(format!("Topic '{name}' collides with existing topic: {}", other.name)));
        }
    }
    Ok(())
}

/// How many partitions are wanted, by number or by assignment.
fn partitions(node: &Node, wanted: &CreatableTopic) -> Result<i32, Refusal> {
    if wanted.assignments.is_empty() {
        if wanted.num_partitions == 0 || wanted.num_partitions < -1 {
            let why = "Number of partitions was set to an invalid non-positive value.".to_owned();
            return Err((ErrorCode::INVALID_PARTITIONS, why));
        }
        let factor = wanted.replication_factor;
        if factor == 0 || factor < -1 {
            let why = "Replication factor was set to an invalid non-positive value.".to_owned();
            return Err((ErrorCode::INVALID_REPLICATION_FACTOR, why));
        }
        if factor > 1 {
            let why = format!(
                "Unable to replicate the partition {factor} time(s): The target replication factor of {factor} \
                 cannot be reached because only 1 broker(s) are registered."
            );
            return Err((ErrorCode::INVALID_REPLICATION_FACTOR, why));
        }
        let partitions =
            if wanted.num_partitions == -1 { node.config().num_partitions } else { wanted.num_partitions };
        return Ok(partitions);
    }
    if wanted.num_partitions != -1 || wanted.replication_factor != -1 {
        let why = "A manual partition assignment was specified, but numPartitions or replicationFactor was not set to -1.";
        return Err((ErrorCode::INVALID_REQUEST, why.to_owned()));
    }
    let invalid = |why: &str| (ErrorCode::INVALID_REPLICA_ASSIGNMENT, why.to_owned());
    let mut indexes = BTreeSet::new();
    for assignment in &wanted.assignments {
        if assignment.broker_ids != [node.metadata().node_id()] {
            return Err(invalid("The manual partition assignment includes brokers that are not registered."));
        }
        if !indexes.insert(assignment.partition_index) {
            return Err(invalid("Found multiple manual partition assignments for one partition."));
        }
    }
    let consecutive = indexes.iter().zip(0..).all(|(found, expected)| *found == expected);
    if !consecutive {
        return Err(invalid("partitions should be a consecutive 0-based integer sequence"));
    }
    i32::try_from(indexes.len()).map_err(|_| invalid("too many partitions"))
}
