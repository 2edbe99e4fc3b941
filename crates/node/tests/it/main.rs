//! The node, whole: one binary for all its integration tests.

mod dump_log;
