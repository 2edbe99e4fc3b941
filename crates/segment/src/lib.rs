//! weir-segment.
