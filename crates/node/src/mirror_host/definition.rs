//! What the store holds of a mirror as a whole: its source and its topics.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_mirror::partition::Desired;
use weir_mirror::runner::RunnerConfig;
use weir_mirror::source::EXCLUDED_TOPIC_CONFIGS;
use weir_wire::Limits;
use weir_wire::client::ClientConfig;

use super::MirrorError;
use crate::metadata::Fields;

pub(super) const PREFIX: &str = "mirror/";
const TOPIC: &str = "/topic/";

const BOOTSTRAP: &str = "bootstrap.servers";
const SECURITY_PROTOCOL: &str = "security.protocol";
const REQUEST_TIMEOUT: &str = "request.timeout.ms";
const CONNECTION_TIMEOUT: &str = "socket.connection.setup.timeout.ms";
const FETCH_WAIT: &str = "fetch.wait.max.ms";
const RESPONSE_BYTES: &str = "fetch.response.max.bytes";
const PARTITION_BYTES: &str = "fetch.max.bytes";
const EXCLUDED_CONFIGS: &str = "topic.properties.exclude";

/// The keys that have an effect. KIP-1279's others are refused by name rather than ignored.
const KNOWN: [&str; 8] = [
    BOOTSTRAP,
    SECURITY_PROTOCOL,
    REQUEST_TIMEOUT,
    CONNECTION_TIMEOUT,
    FETCH_WAIT,
    RESPONSE_BYTES,
    PARTITION_BYTES,
    EXCLUDED_CONFIGS,
];

/// Kafka: the rule for topic names, which KIP-1279 uses for mirrors, too.
pub(super) fn check_name(name: &str) -> Result<(), MirrorError> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 249 || name == "." || name == ".." || !name.chars().all(legal) {
        return Err(MirrorError::InvalidName { name: name.to_owned() });
    }
    Ok(())
}

/// A mirror: where its source is, and how it is fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) name: String,
    pub(super) source_cluster_id: Option<String>,
    pub(super) configs: BTreeMap<String, String>,
}

impl Definition {
    /// A definition from a request's configuration, every value checked.
    pub(super) fn new(
        name: &str,
        configs: impl IntoIterator<Item = (String, Option<String>)>,
    ) -> Result<Self, MirrorError> {
        check_name(name)?;
        let mut checked = BTreeMap::new();
        for (key, value) in configs {
            let Some(value) = value else { continue };
            let value = value.trim();
            let invalid = |reason: &str| MirrorError::InvalidConfig {
                key: key.clone(),
                value: value.to_owned(),
                reason: reason.to_owned(),
            };
            match key.as_str() {
                BOOTSTRAP | EXCLUDED_CONFIGS => {}
                SECURITY_PROTOCOL if value.eq_ignore_ascii_case("PLAINTEXT") => {}
                SECURITY_PROTOCOL => {
                    return Err(invalid("this version connects to a source with PLAINTEXT only"));
                }
                known if KNOWN.contains(&known) => {
                    value
                        .parse::<i32>()
                        .ok()
                        .filter(|number| *number > 0)
                        .ok_or_else(|| invalid("a whole number above 0 is needed"))?;
                }
                _ => {
                    let known = KNOWN.join(", ");
                    return Err(invalid(&format!(
                        "not an option of a mirror in this version, which has {known}"
                    )));
                }
            }
            checked.insert(key.clone(), value.to_owned());
        }
        let definition = Self { name: name.to_owned(), source_cluster_id: None, configs: checked };
        let bad_address = |address: &String| {
            !address
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
        };
        let addresses = definition.bootstrap();
        if addresses.is_empty() || addresses.iter().any(bad_address) {
            return Err(MirrorError::InvalidConfig {
                key: BOOTSTRAP.to_owned(),
                value: definition.configs.get(BOOTSTRAP).cloned().unwrap_or_default(),
                reason: "HOST:PORT of at least one source broker is needed, several with commas".to_owned(),
            });
        }
        Ok(definition)
    }

    pub(super) fn bootstrap(&self) -> Vec<String> {
        let list = self.configs.get(BOOTSTRAP).map(String::as_str).unwrap_or_default();
        list.split(',').map(str::trim).filter(|address| !address.is_empty()).map(str::to_owned).collect()
    }

    fn number(&self, key: &str) -> Option<i32> {
        self.configs.get(key)?.parse().ok()
    }

    fn duration(&self, key: &str) -> Option<Duration> {
        Some(Duration::from_millis(u64::try_from(self.number(key)?).ok()?))
    }

    pub(super) fn client(&self) -> ClientConfig {
        let default = ClientConfig::default();
        let runner = self.runner();
        // A response is as large as was asked for, or as its first batch, and some more.
        let asked = runner.response_max_bytes.max(runner.limits.partition_max_bytes);
        let response = usize::try_from(asked)
            .unwrap_or(0)
            .saturating_add(runner.limits.max_batch_bytes)
            .saturating_add(1 << 20);
        let max_frame_bytes = default.limits.max_frame_bytes.max(response);
        ClientConfig {
            limits: Limits { max_frame_bytes, ..default.limits },
            client_id: format!("mirrorName-{}", self.name),
            connect_timeout: self.duration(CONNECTION_TIMEOUT).unwrap_or(Duration::from_secs(5)),
            request_timeout: self.duration(REQUEST_TIMEOUT).unwrap_or(default.request_timeout),
        }
    }

    pub(super) fn runner(&self) -> RunnerConfig {
        let mut config = RunnerConfig::new(self.name.as_str());
        config.source_cluster_id.clone_from(&self.source_cluster_id);
        config.fetch_max_wait = self.duration(FETCH_WAIT).unwrap_or(config.fetch_max_wait);
        config.response_max_bytes = self.number(RESPONSE_BYTES).unwrap_or(config.response_max_bytes);
        config.limits.partition_max_bytes =
            self.number(PARTITION_BYTES).unwrap_or(config.limits.partition_max_bytes);
        config
    }

    /// Whether a setting of a source topic is left out.
    pub(super) fn excludes_config(&self, name: &str) -> bool {
        match self.configs.get(EXCLUDED_CONFIGS) {
            Some(list) => name == "mirror.name" || list.split(',').any(|excluded| excluded.trim() == name),
            None => EXCLUDED_TOPIC_CONFIGS.contains(&name),
        }
    }

    pub(super) fn key(name: &str) -> String {
        format!("{PREFIX}{name}")
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut fields = Fields::new().with_some("source.cluster.id", self.source_cluster_id.as_ref());
        for (key, value) in &self.configs {
            fields = fields.with(&format!("config.{key}"), value);
        }
        fields.encode()
    }

    pub(super) fn decode(name: &str, value: &[u8]) -> Option<Self> {
        let fields = Fields::decode(value)?;
        let configs = fields
            .iter()
            .filter_map(|(key, value)| Some((key.strip_prefix("config.")?.to_owned(), value.to_owned())));
        Some(Self {
            name: name.to_owned(),
            source_cluster_id: fields.get("source.cluster.id").map(str::to_owned),
            configs: configs.collect(),
        })
    }
}

pub(super) fn topic_key(mirror: &str, topic: &str) -> String {
    format!("{PREFIX}{mirror}{TOPIC}{topic}")
}

pub(super) fn encode_desired(desired: Desired) -> Vec<u8> {
    let word = match desired {
        Desired::Mirroring => "MIRRORING",
        Desired::Stopped => "STOPPED",
    };
    Fields::new().with("desired", word).encode()
}

pub(super) fn decode_desired(value: &[u8]) -> Option<Desired> {
    match Fields::decode(value)?.get("desired")? {
        "MIRRORING" => Some(Desired::Mirroring),
        "STOPPED" => Some(Desired::Stopped),
        _ => None,
    }
}

/// What a key below [`PREFIX`] is of: a mirror, or one of its topics.
pub(super) fn split_key(key: &[u8]) -> Option<(&str, Option<&str>)> {
    let rest = std::str::from_utf8(key).ok()?.strip_prefix(PREFIX)?;
    Some(match rest.split_once(TOPIC) {
        Some((mirror, topic)) => (mirror, Some(topic)),
        None => (rest, None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configs(pairs: &[(&str, &str)]) -> Vec<(String, Option<String>)> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), Some((*value).to_owned()))).collect()
    }

    #[test]
    fn a_definition_comes_back_as_it_was_stored() {
        let pairs = [("bootstrap.servers", "a:9092, [::1]:9093"), ("fetch.max.bytes", "2048")];
        let mut definition = Definition::new("dr", configs(&pairs)).expect("valid");
        definition.source_cluster_id = Some("R29sZGVuLWNsdXN0ZXItMQ".to_owned());
        assert_eq!(Definition::decode("dr", &definition.encode()), Some(definition.clone()));
        assert_eq!(definition.bootstrap(), ["a:9092", "[::1]:9093"]);
        assert_eq!(definition.runner().limits.partition_max_bytes, 2048);
        assert_eq!(split_key(Definition::key("dr").as_bytes()), Some(("dr", None)));
        assert_eq!(split_key(topic_key("dr", "orders").as_bytes()), Some(("dr", Some("orders"))));
    }

    #[test]
    fn an_answer_of_the_size_that_is_asked_for_is_taken() {
        let frame = |pairs: &[(&str, &str)]| {
            let definition = Definition::new("dr", configs(pairs)).expect("valid");
            definition.client().limits.max_frame_bytes
        };
        assert_eq!(frame(&[("bootstrap.servers", "a:1")]), Limits::CLIENT.max_frame_bytes);
        for key in ["fetch.response.max.bytes", "fetch.max.bytes"] {
            let most = frame(&[("bootstrap.servers", "a:1"), (key, "1073741824")]);
            assert!(most > (1 << 30) + (100 << 20), "{key}: {most}");
        }
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        for (name, pairs, says) in [
            ("dr", &[][..], "bootstrap.servers"),
            ("dr", &[("bootstrap.servers", "nohost")][..], "bootstrap.servers"),
            ("dr", &[("bootstrap.servers", "a:99999")][..], "bootstrap.servers"),
            ("dr", &[("bootstrap.servers", "a:1"), ("fetch.max.bytes", "0")][..], "fetch.max.bytes"),
            ("dr", &[("bootstrap.servers", "a:1"), ("security.protocol", "SSL")][..], "PLAINTEXT"),
            ("dr", &[("bootstrap.servers", "a:1"), ("acls.include", "*")][..], "acls.include"),
            ("a/b", &[("bootstrap.servers", "a:1")][..], "a/b"),
            ("..", &[("bootstrap.servers", "a:1")][..], ".."),
        ] {
            let error = Definition::new(name, configs(pairs)).expect_err("must be refused").to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
