//! DescribeConfigs: settings of topics and of this node, with where they come from.

use std::collections::BTreeMap;

use weir_wire::ErrorCode;
use weir_wire::msg::describe_configs_request::DescribeConfigsResource;
use weir_wire::msg::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use weir_wire::msg::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::{Call, text};
use crate::config::keys::{KEYS, TOPIC_KEYS};
use crate::config::{Config, Origin};
use crate::node::Node;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

// Kafka: `DescribeConfigsResponse.ConfigSource`.
const FROM_TOPIC: i8 = 1;
const FROM_STATIC_BROKER: i8 = 4;
const FROM_DEFAULT: i8 = 5;

/// One setting, as it is described.
pub(super) struct Described {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) source: i8,
    config_type: i8,
    doc: &'static str,
    /// All places that give it a value, the one that counts first.
    synonyms: Vec<(&'static str, String, i8)>,
}

/// All settings of a topic.
pub(super) fn topic_configs(config: &Config, own: &BTreeMap<String, String>) -> Vec<Described> {
    let mut all = Vec::with_capacity(TOPIC_KEYS.len());
    for key in TOPIC_KEYS {
        let mut synonyms = Vec::new();
        if let Some(value) = own.get(key.name) {
            synonyms.push((key.name, value.clone(), FROM_TOPIC));
        }
        if let Some((value, origin)) = config.topic_default(key.name)
            && origin != Origin::Default
        {
            synonyms.push((key.synonym.unwrap_or(key.name), value, FROM_STATIC_BROKER));
        }
        if let Some(synonym) = key.synonym {
            synonyms.push((synonym, key.default.to_owned(), FROM_DEFAULT));
        }
        let (value, source) = match synonyms.first() {
            Some((_, value, source)) => (value.clone(), *source),
            None => (key.default.to_owned(), FROM_DEFAULT),
        };
        let config_type = key.kind.describe_type();
        all.push(Described { name: key.name, value, source, config_type, doc: key.doc, synonyms });
    }
    all
}

fn broker_configs(config: &Config) -> Vec<Described> {
    let mut all = Vec::new();
    for key in KEYS {
        let Some((value, origin)) = config.value(key.name) else { continue };
        let mut synonyms = Vec::new();
        let source = if origin == Origin::Default { FROM_DEFAULT } else { FROM_STATIC_BROKER };
        synonyms.push((key.name, value.to_owned(), source));
        if let (Some(default), true) = (key.default, origin != Origin::Default) {
            synonyms.push((key.name, default.to_owned(), FROM_DEFAULT));
        }
        let config_type = key.kind.describe_type();
        let value = value.to_owned();
        all.push(Described { name: key.name, value, source, config_type, doc: key.doc, synonyms });
    }
    all
}

pub(super) async fn handle(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse {
    let mut response = DescribeConfigsResponse::default();
    for resource in &request.resources {
        let mut result = DescribeConfigsResult::default();
        result.resource_type = resource.resource_type;
        result.resource_name = resource.resource_name.clone();
        result.error_message = Some(text(""));
        match find(&call.node, resource) {
            Ok(found) => {
                let is_broker = resource.resource_type == BROKER;
                for config in found {
                    // Kafka: no list and an empty one both ask for all.
                    let wanted = resource.configuration_keys.as_ref().filter(|keys| !keys.is_empty());
                    if wanted.is_some_and(|keys| !keys.iter().any(|key| key.as_str() == config.name)) {
                        continue;
                    }
                    result.configs.push(entry(config, is_broker, &request, call.header.api_version));
                }
            }
            Err((code, why)) => {
                result.error_code = code.get();
                result.error_message = Some(text(&why));
            }
        }
        response.results.push(result);
    }
    response
}

fn entry(
    config: Described,
    read_only: bool,
    request: &DescribeConfigsRequest,
    version: i16,
) -> DescribeConfigsResourceResult {
    let mut entry = DescribeConfigsResourceResult::default();
    entry.name = text(config.name);
    entry.value = Some(text(&config.value));
    entry.read_only = read_only;
    entry.config_source = config.source;
    if request.include_synonyms {
        for (name, value, source) in config.synonyms {
            let mut synonym = DescribeConfigsSynonym::default();
            synonym.name = text(name);
            synonym.value = Some(text(&value));
            synonym.source = source;
            entry.synonyms.push(synonym);
        }
    }
    if version >= 3 {
        entry.config_type = config.config_type;
        if request.include_documentation {
            entry.documentation = Some(text(config.doc));
        }
    }
    entry
}

fn find(node: &Node, resource: &DescribeConfigsResource) -> Result<Vec<Described>, (ErrorCode, String)> {
    let name = resource.resource_name.as_str();
    match resource.resource_type {
        TOPIC => match node.metadata().topic(name) {
            Some(topic) => Ok(topic_configs(node.config(), &topic.configs)),
            None => Err((ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, String::new())),
        },
        // An empty name asks for what all brokers have in common, of which there is nothing.
        BROKER if name.is_empty() => Ok(Vec::new()),
        BROKER => {
            let expected = node.metadata().node_id();
            if name.parse() == Ok(expected) {
                return Ok(broker_configs(node.config()));
            }
            let why = format!("Unexpected broker id, expected {expected}, but received {name}");
            Err((ErrorCode::INVALID_REQUEST, why))
        }
        other => Err((ErrorCode::INVALID_REQUEST, format!("Unsupported resource type: {other}"))),
    }
}
