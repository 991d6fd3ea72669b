//! The device's MMU: walker, TLBs, the epoch handshake, sections.

use crate::memory::{GuestMemory, Span};
use crate::pool::Backing;
use std::sync::Arc;
use uma_protocol::fault::{Access, FaultCause};
use uma_protocol::AsidHandle;

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
pub trait View {
    /// Translates `va` for `access`. The span reaches from `va` to the end of the page that maps it, at most 2 MiB.
    ///
    /// # Errors
    /// The [`Fault`]; nothing was accessed.
    fn translate(&self, va: u64, access: Access) -> Result<Span<'_>, Fault>;

    /// Whether the EU should leave now: an invalidation was published, the device parks, the job was cancelled or its
    /// deadline passed. Asked after every 4 KiB streamed and after 16 translations at the latest; costs one relaxed load or two.
    fn must_leave(&self) -> bool;
}

/// One address space, shared by all EUs. Made by CREATE_ASID.
pub struct AddressSpace {
    handle: AsidHandle,
}

/// Why an EU may not enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The address space is dead.
    Gone,
    /// The device parks.
    Parked,
}

/// The MMU of one EU; lives on the EU's thread.
pub struct EuMmu {
    _memory: Arc<GuestMemory>,
    _backing: Arc<Backing>,
}

/// Time between enter and leave; leaving is dropping it.
pub struct Section<'m> {
    _mmu: &'m mut EuMmu,
}

impl AddressSpace {
    /// Its name.
    pub fn handle(&self) -> AsidHandle {
        self.handle
    }
}

impl EuMmu {
    /// Publishes the section, applies the ring, checks the state.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn enter<'m>(&'m mut self, space: &'m AddressSpace) -> Result<Section<'m>, Refusal> {
        let _ = space;
        unimplemented!()
    }
}

impl View for Section<'_> {
    fn translate(&self, _va: u64, _access: Access) -> Result<Span<'_>, Fault> {
        unimplemented!()
    }

    fn must_leave(&self) -> bool {
        unimplemented!()
    }
}
