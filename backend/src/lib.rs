//! The device behind a vhost-user socket: a unified-memory accelerator.
//!
//! `device`, `mmu`, `pool`, `dma`, `engine` and `memory` are the device and know nothing of vhost-user; `queues` turns
//! descriptor chains into typed requests; `vhost_user` is the adapter to the frontend.
//!
//! Under `cfg(loom)` only the lock-free handshake of `mmu::epoch` is built.

#[cfg(not(loom))]
pub mod device;
#[cfg(not(loom))]
pub mod dma;
#[cfg(not(loom))]
pub mod engine;
#[cfg(not(loom))]
pub mod memory;
pub mod mmu;
#[cfg(not(loom))]
pub mod pool;
#[cfg(not(loom))]
pub mod queues;
#[cfg(not(loom))]
pub mod trace;
#[cfg(not(loom))]
pub mod vhost_user;
