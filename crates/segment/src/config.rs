//! How a partition's files are cut into segments and indexed.

/// Options of a [`LocalLog`](crate::LocalLog). Names, meanings, units and defaults are Kafka's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SegmentConfig {
    /// `segment.bytes`: a segment takes no further batch that would make it larger than this, in bytes. A batch that
    /// is larger by itself gets a segment of its own. Default 1 GiB; 1 to [`i32::MAX`].
    pub segment_bytes: u32,
    /// `segment.ms`: a segment takes no further batch whose largest timestamp is more than this after that of its
    /// first one, in milliseconds. Default seven days; at least 1.
    pub segment_ms: i64,
    /// `segment.index.bytes`: a segment whose offset index or time index reaches this size is rolled, in bytes. Default
    /// 10 MiB; at least 24.
    pub segment_index_bytes: u32,
    /// `index.interval.bytes`: an index entry is made for a batch that has more than this many bytes between it and the
    /// batch of the entry before. Default 4,096.
    pub index_interval_bytes: u32,
}

impl Default for SegmentConfig {
    fn default() -> SegmentConfig {
        SegmentConfig {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 60 * 60 * 1_000,
            segment_index_bytes: 10 << 20,
            index_interval_bytes: 4_096,
        }
    }
}

/// An option outside its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{option} is {value}, and must be from {least} to {most}")]
pub struct SegmentConfigError {
    /// Its Kafka name.
    pub option: &'static str,
    /// Its value.
    pub value: i64,
    /// The least that it may be.
    pub least: i64,
    /// The most that it may be.
    pub most: i64,
}

impl SegmentConfig {
    /// Whether every option is within its limits.
    ///
    /// # Errors
    /// The first option that is not.
    pub fn validate(&self) -> Result<(), SegmentConfigError> {
        let most = i64::from(i32::MAX);
        let table = [
            ("segment.bytes", i64::from(self.segment_bytes), 1, most),
            ("segment.ms", self.segment_ms, 1, i64::MAX),
            ("segment.index.bytes", i64::from(self.segment_index_bytes), 24, most),
            ("index.interval.bytes", i64::from(self.index_interval_bytes), 0, most),
        ];
        for (option, value, least, most) in table {
            if value < least || value > most {
                return Err(SegmentConfigError { option, value, least, most });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_outside_its_limits_is_named() {
        assert_eq!(SegmentConfig::default().validate(), Ok(()));
        let config = SegmentConfig { segment_index_bytes: 8, ..SegmentConfig::default() };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "segment.index.bytes is 8, and must be from 24 to 2147483647"
        );
    }
}
