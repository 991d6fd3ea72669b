//! What every kernel does around its steps: translate operands, count, and stop when the view or the fuel says so.

use super::super::Work;
use crate::memory::{bulk, Span};
use crate::mmu::{Fault, View};
use uma_protocol::fault::Access;
use uma_protocol::kernel::Elem;
use uma_protocol::{Status, PAGE_SIZE};

/// Steps between two looks at the view: 4 steps of at most 3 translations.
const STEPS_PER_LOOK: u32 = 4;
/// Bytes of one operand between two looks at the view.
const BYTES_PER_LOOK: u64 = PAGE_SIZE;

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

/// The rest of the page that an operand was translated in last; good until the section ends, and the run with it.
#[derive(Clone, Copy)]
struct Window<'r> {
    va: u64,
    access: Access,
    span: Span<'r>,
}

/// One run of a kernel inside a section.
pub(super) struct Run<'r, V> {
    view: &'r V,
    fuel: u32,
    steps_since_look: u32,
    bytes_since_look: u64,
    windows: [Option<Window<'r>>; 3],
    work: &'r mut Work,
}

impl<'r, V: View> Run<'r, V> {
    pub fn new(view: &'r V, fuel: u32, work: &'r mut Work) -> Self {
        Self { view, fuel, steps_since_look: 0, bytes_since_look: 0, windows: [None; 3], work }
    }

    /// Translates operand `slot` at `va` and gives its first `bytes` bytes, which cross no 4 KiB border: the caller cut its
    /// chunk with [`chunk`], or it is one aligned element. A kernel asks for a slot with the same rights always.
    #[inline(always)]
    pub fn operand(&mut self, slot: usize, va: u64, bytes: u64, access: Access) -> Result<Span<'r>, Stop> {
        if let Some(window) = &self.windows[slot] {
            debug_assert_eq!(window.access, access);
            if let Some(span) = bulk::part(window.span, va.wrapping_sub(window.va), bytes) {
                return Ok(span);
            }
        }
        let span = self.view.translate(va, access)?;
        debug_assert!(span.len() as u64 >= bytes);
        self.windows[slot] = Some(Window { va, access, span });
        Ok(span.truncate(bytes as usize))
    }

    /// Translates what operand `slot` needs at the next step and begins to fetch it, so that the memory works while the data
    /// of this step streams. Call it when this step has all its operands. Only a hint: what fails is left to the step itself.
    #[inline(always)]
    pub fn ahead(&mut self, slot: usize, va: u64, access: Access) {
        let known = self.windows[slot].is_some_and(|window| va.wrapping_sub(window.va) < window.span.len() as u64);
        if known || self.fuel <= 1 {
            return;
        }
        if let Ok(span) = self.view.translate(va, access) {
            bulk::prefetch(span);
            self.windows[slot] = Some(Window { va, access, span });
        }
    }

    /// Books a step that read or wrote these spans; a span that was read and written is named twice.
    #[inline(always)]
    pub fn book(&mut self, spans: &[Span<'_>]) {
        self.work.steps += 1;
        for span in spans {
            let bytes = if span.is_local() { &mut self.work.bytes_local } else { &mut self.work.bytes_system };
            *bytes += span.len() as u64;
        }
    }

    /// Between two steps, the first of which went over `bytes` bytes of its longest operand.
    #[inline(always)]
    pub fn after_step(&mut self, bytes: u64) -> Result<(), Stop> {
        self.fuel = self.fuel.saturating_sub(1);
        self.steps_since_look += 1;
        self.bytes_since_look += bytes;
        if self.steps_since_look == STEPS_PER_LOOK || self.bytes_since_look + bytes > BYTES_PER_LOOK {
            (self.steps_since_look, self.bytes_since_look) = (0, 0);
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

/// Elements, `left` at most, that cross no 4 KiB border of any operand. At least 1, since operands are aligned to their
/// elements.
#[inline(always)]
pub(super) fn chunk<const N: usize>(left: u64, elem: Elem, vas: [u64; N]) -> u64 {
    let shift = elem.size().trailing_zeros();
    vas.iter().map(|va| (PAGE_SIZE - va % PAGE_SIZE) >> shift).fold(left, u64::min)
}
