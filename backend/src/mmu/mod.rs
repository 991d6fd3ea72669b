//! The device's MMU: walker, TLBs, the epoch handshake, sections.
//!
//! An EU *enters* an address space, translates and accesses, and *leaves*; in between it uses translations that no
//! invalidation has passed. [`epoch`] is the handshake with the driver, [`gate`] the one inside the device.

mod atomics;
pub mod epoch;
#[cfg(not(loom))]
pub mod gate;
#[cfg(not(loom))]
pub mod owner;
#[cfg(not(loom))]
mod pte;
#[cfg(not(loom))]
mod section;
#[cfg(not(loom))]
mod space;
#[cfg(not(loom))]
mod tlb;
#[cfg(not(loom))]
mod walk;

#[cfg(not(loom))]
pub use gate::Gates;
#[cfg(not(loom))]
pub use section::{EuMmu, MmuCounters, Refusal, Section};
#[cfg(not(loom))]
pub use space::AddressSpace;

#[cfg(not(loom))]
use crate::memory::Span;
use uma_protocol::fault::{Access, FaultCause};

/// A translation that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Page that was accessed, 4 KiB aligned.
    pub va: u64,
    /// Rights that the access needed.
    pub access: Access,
    /// Why it failed.
    pub cause: FaultCause,
}

/// What an engine sees of memory while its EU is inside a section: translations that stay good until it leaves.
#[cfg(not(loom))]
pub trait View {
    /// Translates `va` for `access`. The span reaches from `va` to the end of the page that maps it, at most 2 MiB.
    ///
    /// # Errors
    /// The [`Fault`]; nothing was accessed.
    fn translate(&self, va: u64, access: Access) -> Result<Span<'_>, Fault>;

    /// Whether the EU should leave now: an invalidation was published, the device parks, the job was cancelled or its
    /// deadline passed. Asked after every 4 KiB streamed and after 16 translations at the latest; costs a few relaxed
    /// loads.
    fn must_leave(&self) -> bool;
}
