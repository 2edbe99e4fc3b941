//! One partition's files: the disk seam, segments, indexes and small durable files.
#![deny(unsafe_code)]

pub mod io;
