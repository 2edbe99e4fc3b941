//! weir's node: everything with a side effect. The binary `weir` is a thin shell around it.
//!
//! It binds the layers below to the world: options ([`config`]), the metadata store ([`meta_kv`],
//! [`metadata`]), threads that own partitions ([`shard`]), sockets and Kafka's requests, and the
//! command line. What it deliberately does not hold: rules about batches, producers, files or
//! mirrors, which live below and know nothing of this crate. Nothing depends on it.
//!
//! Start with [`config::Config`] and [`metadata::Metadata`]:
//!
//! ```
//! use std::sync::Arc;
//! use weir_node::meta_kv::MemoryKv;
//! use weir_node::metadata::{Metadata, producer_id_range_number, range_number_of};
//!
//! let kv = Arc::new(MemoryKv::new());
//! Metadata::format(&*kv, "R29sZGVuLWNsdXN0ZXItMQ", 1_000_000, &[])?;
//! let metadata = Metadata::open(kv)?;
//! let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! let id = runtime.block_on(metadata.next_producer_id())?;
//! assert_eq!(range_number_of(id), producer_id_range_number(metadata.cluster_id()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The long document: `docs/architecture.md`.

#![forbid(unsafe_code)]

pub mod api;
pub mod cli;
pub mod clock;
pub mod config;
pub mod data_dir;
pub mod error_code;
pub mod http;
pub mod loading;
pub mod meta_kv;
pub mod metadata;
pub mod metrics;
pub mod mirror_host;
pub mod node;
pub mod server;
pub mod shard;
pub mod uuid;
