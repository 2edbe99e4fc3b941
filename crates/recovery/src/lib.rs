//! weir-recovery.
