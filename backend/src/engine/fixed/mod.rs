//! The fixed-function engine: one file per family of kernels.
