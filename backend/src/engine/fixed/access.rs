//! What every kernel does around its steps: translate operands, count, and stop when the view or the fuel says so.

use super::super::Work;
use crate::memory::Span;
use crate::mmu::{Fault, View};
use uma_protocol::fault::Access;
use uma_protocol::{Status, PAGE_SIZE};

/// Steps of the random-access kernels between two looks at the view: 4 steps of at most 4 translations.
const STEPS_PER_LOOK: u32 = 4;

/// Why a kernel returns before its end.
pub(super) enum Stop {
    Fault(Fault),
    Yield,
    Trap(Status),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// One run of a kernel inside a section.
pub(super) struct Run<'r, V> {
    view: &'r V,
    fuel: u32,
    until_look: u32,
    work: &'r mut Work,
}

impl<'r, V: View> Run<'r, V> {
    pub fn new(view: &'r V, fuel: u32, work: &'r mut Work) -> Self {
        Self { view, fuel, until_look: STEPS_PER_LOOK, work }
    }

    /// Translates the operand at `va` and gives its first `bytes` bytes, which cross no 4 KiB border: the caller cut its
    /// chunk with [`chunk`], or it is one aligned element.
    pub fn operand(&self, va: u64, bytes: u64, access: Access) -> Result<Span<'r>, Stop> {
        let span = self.view.translate(va, access)?;
        debug_assert!(span.len() as u64 >= bytes);
        Ok(span.truncate(bytes as usize))
    }

    /// Books a step that read or wrote these spans; a span that was read and written is named twice.
    pub fn book(&mut self, spans: &[Span<'_>]) {
        self.work.steps += 1;
        for span in spans {
            let bytes = if span.is_local() { &mut self.work.bytes_local } else { &mut self.work.bytes_system };
            *bytes += span.len() as u64;
        }
    }

    /// Between two steps that each stream up to 4 KiB.
    pub fn after_chunk(&mut self) -> Result<(), Stop> {
        self.fuel = self.fuel.saturating_sub(1);
        if self.fuel == 0 || self.view.must_leave() {
            return Err(Stop::Yield);
        }
        Ok(())
    }

    /// Between two steps of single elements.
    pub fn after_element(&mut self) -> Result<(), Stop> {
        self.fuel = self.fuel.saturating_sub(1);
        self.until_look -= 1;
        if self.until_look == 0 {
            self.until_look = STEPS_PER_LOOK;
            if self.view.must_leave() {
                return Err(Stop::Yield);
            }
        }
        if self.fuel == 0 {
            return Err(Stop::Yield);
        }
        Ok(())
    }
}

/// Elements of `size` bytes, `left` at most, that cross no 4 KiB border of any operand. At least 1, since operands are
/// aligned to their elements.
pub(super) fn chunk(left: u64, size: u64, vas: &[u64]) -> u64 {
    vas.iter().map(|va| (PAGE_SIZE - va % PAGE_SIZE) / size).fold(left, u64::min)
}
