//! weir-node.
