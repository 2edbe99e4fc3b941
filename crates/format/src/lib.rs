//! weir-format.
