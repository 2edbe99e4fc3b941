//! The values of KRaft's control records, in the JSON that Kafka's DumpLogSegments prints: its fields, in its order.

use std::fmt::{self, Write as _};

use weir_format::{ControlRecordType, ControlRecordValue, Endpoint, Voter};

/// How Kafka introduces a value of this type, if it is one of KRaft's.
pub(super) fn heading(record_type: ControlRecordType) -> Option<&'static str> {
    Some(match record_type {
        ControlRecordType::LeaderChange => "LeaderChange:",
        ControlRecordType::SnapshotHeader => "SnapshotHeader",
        ControlRecordType::SnapshotFooter => "SnapshotFooter",
        ControlRecordType::KraftVersion => "KRaftVersion",
        ControlRecordType::KraftVoters => "KRaftVoters",
        _ => return None,
    })
}

/// A value as one line of JSON.
pub(super) fn json(value: &ControlRecordValue<'_>) -> String {
    let mut out = String::new();
    write(&mut out, value).expect("a string takes everything");
    out
}

fn write(out: &mut String, value: &ControlRecordValue<'_>) -> fmt::Result {
    match value {
        ControlRecordValue::LeaderChange { version, leader_id, voters, granting_voters } => {
            write!(out, r#"{{"version":{version},"leaderId":{leader_id},"voters":"#)?;
            list(out, voters, leader_change_voter)?;
            out.push_str(r#","grantingVoters":"#);
            list(out, granting_voters, leader_change_voter)?;
            out.push('}');
        }
        ControlRecordValue::SnapshotHeader { version, last_contained_log_timestamp } => write!(
            out,
            r#"{{"version":{version},"lastContainedLogTimestamp":{last_contained_log_timestamp}}}"#
        )?,
        ControlRecordValue::SnapshotFooter { version } => write!(out, r#"{{"version":{version}}}"#)?,
        ControlRecordValue::KraftVersion { version, kraft_version } => {
            write!(out, r#"{{"version":{version},"kRaftVersion":{kraft_version}}}"#)?;
        }
        ControlRecordValue::KraftVoters { version, voters } => {
            write!(out, r#"{{"version":{version},"voters":"#)?;
            list(out, voters, voter)?;
            out.push('}');
        }
        // The enum may grow in `format`; its name says more than nothing.
        other => out.push_str(&serde_json::Value::String(format!("{other:?}")).to_string()),
    }
    Ok(())
}

fn list<T>(
    out: &mut String,
    elements: &[T],
    mut each: impl FnMut(&mut String, &T) -> fmt::Result,
) -> fmt::Result {
    out.push('[');
    for (place, element) in elements.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        each(out, element)?;
    }
    out.push(']');
    Ok(())
}

fn leader_change_voter(out: &mut String, voter: &Voter<'_>) -> fmt::Result {
    write!(out, r#"{{"voterId":{}"#, voter.id)?;
    directory(out, voter)?;
    out.push('}');
    Ok(())
}

fn voter(out: &mut String, voter: &Voter<'_>) -> fmt::Result {
    write!(out, r#"{{"voterId":{}"#, voter.id)?;
    directory(out, voter)?;
    out.push_str(r#","endpoints":"#);
    list(out, &voter.endpoints, endpoint)?;
    if let Some((min, max)) = voter.kraft_versions {
        write!(out, r#","kRaftVersionFeature":{{"minSupportedVersion":{min},"maxSupportedVersion":{max}}}"#)?;
    }
    out.push('}');
    Ok(())
}

fn directory(out: &mut String, voter: &Voter<'_>) -> fmt::Result {
    match voter.directory_id {
        Some(id) => write!(out, r#","voterDirectoryId":"{}""#, crate::uuid::Uuid(id)),
        None => Ok(()),
    }
}

fn endpoint(out: &mut String, endpoint: &Endpoint<'_>) -> fmt::Result {
    let text = |bytes: &[u8]| serde_json::Value::String(String::from_utf8_lossy(bytes).into_owned());
    write!(
        out,
        r#"{{"name":{},"host":{},"port":{}}}"#,
        text(endpoint.name),
        text(endpoint.host),
        endpoint.port
    )
}
