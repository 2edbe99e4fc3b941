//! weir-psm.
