//! Sections: the time in which an EU uses translations.

use super::epoch::{self, Drop as Invalidation};
use super::tlb::{Entry, Tlb, Token};
use super::walk::walk;
use super::{AddressSpace, Fault, Gates, View};
use crate::memory::{ControlPage, GuestMemory, RegionTable, Span};
use crate::mmu::owner::Registered;
use crate::pool::Backing;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use uma_protocol::fault::{Access, FaultCause};
use uma_protocol::sync::{EuLine, EU_LINES_OFFSET};
use uma_protocol::{HUGE_SIZE, PAGE_SIZE};

/// Why an EU may not enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The address space is dead.
    Gone,
    /// The device parks, or has no sync page.
    Parked,
}

/// What one EU's MMU did; read by others.
#[derive(Default)]
pub struct MmuCounters {
    /// Translations answered by the TLB.
    pub hits: AtomicU64,
    /// Translations that walked.
    pub misses: AtomicU64,
    /// Ring entries applied.
    pub invalidations: AtomicU64,
    /// Address spaces dropped because the ring had run over.
    pub overruns: AtomicU64,
}

/// What the EU remembers of one ASID index.
#[derive(Clone, Copy, Default)]
struct Known {
    generation: u32,
    token: Token,
    seen: Option<u64>,
    kicks: u64,
}

/// The MMU of one EU; lives on the EU's thread.
pub struct EuMmu {
    eu: u32,
    memory: Arc<GuestMemory>,
    backing: Arc<Backing>,
    gates: Arc<Gates>,
    counters: Arc<MmuCounters>,
    table: Arc<RegionTable>,
    line: Option<Arc<ControlPage>>,
    _owner: Registered,
    generation: u64,
    tlb: Tlb,
    /// By ASID index; 24 bytes each, so 65,536 indices at most cost 2 MiB.
    known: Vec<Known>,
}

/// Time between enter and leave; leaving is dropping it.
pub struct Section<'m> {
    mmu: &'m EuMmu,
    space: &'m AddressSpace,
    stop: &'m AtomicBool,
    line: &'m AtomicU64,
    token: Token,
    seen: u64,
    kicks: u64,
    hits: Cell<u64>,
    misses: Cell<u64>,
}

impl EuMmu {
    /// The MMU of EU `eu`. Made on the EU's own thread, since it registers that thread as the owner of the EU's line.
    pub fn new(eu: u32, memory: Arc<GuestMemory>, backing: Arc<Backing>, gates: Arc<Gates>, max_asids: u32) -> Self {
        let registered = Registered::this_thread();
        gates.add_owner(eu, registered.owner().clone());
        Self {
            eu,
            table: memory.load(),
            memory,
            backing,
            gates,
            counters: Arc::default(),
            line: None,
            _owner: registered,
            generation: 0,
            tlb: Tlb::new(),
            known: vec![Known::default(); max_asids as usize + 1],
        }
    }

    /// Counters that others may read.
    pub fn counters(&self) -> Arc<MmuCounters> {
        self.counters.clone()
    }

    /// Publishes the section, applies the ring, checks the state. `stop` makes [`View::must_leave`] answer yes.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn enter<'m>(&'m mut self, space: &'m AddressSpace, stop: &'m AtomicBool) -> Result<Section<'m>, Refusal> {
        self.gates.mark_inside(self.eu);
        let entered = self.try_enter(space);
        if entered.is_err() {
            self.gates.mark_outside(self.eu);
        }
        let known = entered?;
        let mmu = &*self;
        let Some(page) = &mmu.line else {
            mmu.gates.mark_outside(mmu.eu);
            return Err(Refusal::Parked);
        };
        Ok(Section {
            mmu,
            space,
            stop,
            line: line_word(page, mmu.eu),
            token: known.token,
            seen: known.seen.unwrap_or_default(),
            kicks: known.kicks,
            hits: Cell::new(0),
            misses: Cell::new(0),
        })
    }

    fn try_enter(&mut self, space: &AddressSpace) -> Result<Known, Refusal> {
        // The fence inside `epoch::enter` orders `mark_inside` before every look at what waiters change; the looks before it
        // are repeated behind it.
        self.refresh();
        let line = self.line.clone().ok_or(Refusal::Parked)?;
        let word = line_word(&line, self.eu);
        let index = space.handle().index as usize;
        let slot = self.known.get_mut(index).ok_or(Refusal::Gone)?;
        if slot.generation != space.handle().generation || slot.token == 0 {
            *slot = Known { generation: space.handle().generation, token: self.tlb.new_token(), ..Known::default() };
        }
        let mut known = *slot;
        let (tlb, counters) = (&self.tlb, &*self.counters);
        let alive = epoch::enter(word, space, space.handle().index, &mut known.seen, |dropped| {
            known.token = apply(tlb, counters, known.token, dropped);
        });
        let kicks = space.kicks();
        if kicks != known.kicks {
            known = Known { kicks, token: self.tlb.new_token(), ..known };
        }
        *slot = known;
        let refusal = if alive.is_err() || space.is_gone() {
            Some(Refusal::Gone)
        } else if self.gates.is_closed() || self.gates.generation() != self.generation {
            Some(Refusal::Parked)
        } else {
            None
        };
        match refusal {
            None => Ok(known),
            Some(refusal) => {
                epoch::leave(word);
                Err(refusal)
            }
        }
    }

    /// What it knows of memory and sync page; compare with [`Gates::generation`].
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Takes the current memory and sync page. Everything cached dies with the old ones.
    pub fn refresh(&mut self) {
        let generation = self.gates.generation();
        if generation == self.generation {
            return;
        }
        self.generation = generation;
        self.table = self.memory.load();
        self.known.fill(Known::default());
        self.line = self.gates.sync_page();
    }
}

fn line_offset(eu: u32) -> usize {
    EU_LINES_OFFSET + eu as usize * size_of::<EuLine>()
}

fn line_word(page: &ControlPage, eu: u32) -> &AtomicU64 {
    page.u64_at(line_offset(eu))
}

fn apply(tlb: &Tlb, counters: &MmuCounters, token: Token, dropped: Invalidation) -> Token {
    counters.invalidations.fetch_add(1, Ordering::Relaxed);
    match dropped {
        Invalidation::Range { start, end } if tlb.drop_range(token, start, end) => token,
        Invalidation::Range { .. } => tlb.new_token(),
        Invalidation::All { overrun } => {
            counters.overruns.fetch_add(u64::from(overrun), Ordering::Relaxed);
            tlb.new_token()
        }
    }
}

impl Section<'_> {
    /// Walks and caches. A page in guest RAM must lie in one region, a local one in device memory.
    fn walk(&self, va: u64) -> Result<Entry, FaultCause> {
        self.misses.set(self.misses.get() + 1);
        let leaf = walk(&self.mmu.table, self.space.root(), self.space.levels(), va)?;
        let bytes = 1 << leaf.shift;
        let host = if leaf.local {
            self.mmu.backing.resolve(leaf.frame, bytes)
        } else {
            self.mmu.table.resolve(leaf.frame, bytes)
        };
        let host = host.ok_or(FaultCause::BadFrame)?;
        Ok(self.mmu.tlb.insert(self.token, va, &leaf, host))
    }

    fn permits(entry: &Entry, access: Access) -> Result<(), FaultCause> {
        if access.contains(Access::WRITE) && !entry.writable {
            return Err(FaultCause::NotPermitted);
        }
        if access.contains(Access::ATOMIC) && entry.noatomic {
            return Err(FaultCause::AtomicDenied);
        }
        Ok(())
    }

    fn find(&self, va: u64, access: Access) -> Result<Entry, FaultCause> {
        if va >= self.space.user_end() {
            return Err(FaultCause::BadAddress);
        }
        if let Some(entry) = self.mmu.tlb.lookup(self.token, va) {
            if Self::permits(&entry, access).is_ok() {
                self.hits.set(self.hits.get() + 1);
                return Ok(entry);
            }
        }
        // Not cached, or cached with fewer rights than the tables may give by now.
        let entry = self.walk(va)?;
        Self::permits(&entry, access)?;
        Ok(entry)
    }

    fn span(&self, entry: &Entry, va: u64, access: Access) -> Span<'_> {
        let offset = va & ((1 << entry.shift) - 1);
        let mut len = ((1u64 << entry.shift) - offset).min(HUGE_SIZE);
        if access.contains(Access::WRITE) && !entry.local && self.mmu.table.has_log() {
            // The log has a bit per 4 KiB: a write that it does not cover would be lost, so the span ends there.
            len = len.min(PAGE_SIZE - va % PAGE_SIZE);
            self.mmu.table.mark_dirty(entry.frame + offset, len);
        }
        // SAFETY: `offset + len` is within the page, whose every byte `walk` resolved in the region table or the backing that
        // this section's MMU keeps mapped; the entry dies before either is replaced (`refresh`).
        unsafe {
            let ptr = NonNull::new_unchecked(entry.host.as_ptr().add(offset as usize));
            Span::new(ptr, len as usize, entry.local)
        }
    }
}

impl View for Section<'_> {
    #[inline]
    fn translate(&self, va: u64, access: Access) -> Result<Span<'_>, Fault> {
        match self.find(va, access) {
            Ok(entry) => Ok(self.span(&entry, va, access)),
            Err(cause) => Err(Fault { va: va & !(PAGE_SIZE - 1), access, cause }),
        }
    }

    #[inline]
    fn must_leave(&self) -> bool {
        epoch::is_behind(self.space, self.seen)
            || self.space.kicks() != self.kicks
            || self.mmu.gates.is_closed()
            || self.stop.load(Ordering::Relaxed)
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        epoch::leave(self.line);
        self.mmu.gates.mark_outside(self.mmu.eu);
        self.mmu.counters.hits.fetch_add(self.hits.get(), Ordering::Relaxed);
        self.mmu.counters.misses.fetch_add(self.misses.get(), Ordering::Relaxed);
    }
}
