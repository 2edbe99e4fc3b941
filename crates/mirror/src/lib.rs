//! weir-mirror.
