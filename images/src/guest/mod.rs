//! A guest: its programs, its initramfs, QEMU, and one run of it.

pub mod cpio;
pub mod folder;
pub mod initramfs;
pub mod options;
pub mod programs;
pub mod qemu;
pub mod run;
pub mod side;
