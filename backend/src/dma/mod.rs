//! Copies between guest RAM and device memory.
