//! The node, whole: one binary for all its integration tests.

mod dump_log;
mod lifecycle;
mod mirror;
mod produce_fetch;
mod protocol;
mod support;
