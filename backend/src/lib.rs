//! The device behind a vhost-user socket: a unified-memory accelerator.
//!
//! `device`, `mmu`, `pool`, `dma`, `engine` and `memory` are the device and know nothing of vhost-user; `queues` turns
//! descriptor chains into typed requests; `vhost_user` is the adapter to the frontend.

pub mod device;
pub mod dma;
pub mod engine;
pub mod memory;
pub mod mmu;
pub mod pool;
