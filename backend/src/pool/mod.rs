//! Device memory: the pool's budget over all logical devices, and each logical device's own sparse file.

mod backing;

pub use backing::Backing;
