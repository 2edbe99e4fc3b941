//! weir-wire.
