//! The node, whole: one binary for all its integration tests.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should fail loudly")]

mod bad_input;
mod bounds;
mod delete_records;
mod demo;
mod dump_log;
mod golden;
mod golden_folder;
mod inspect;
mod lifecycle;
mod metrics;
mod mirror;
mod produce_fetch;
mod protocol;
mod reads;
mod recover;
mod refusals;
mod support;
