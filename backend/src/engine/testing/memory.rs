//! A piece of address space over shuffled pages, without an MMU.

use super::Random;
use crate::memory::Span;
use crate::mmu::{Fault, View};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::ptr::NonNull;
use uma_protocol::fault::{Access, FaultCause};
use uma_protocol::PAGE_SIZE;

/// First address of every test's memory.
pub(crate) const BASE: u64 = 0x7f12_3440_0000;
/// Bytes of a page.
pub(crate) const PAGE: usize = PAGE_SIZE as usize;
/// What a page that has moved away leaves behind.
pub(crate) const POISON: u8 = 0xdb;
/// Translations between two looks at [`View::must_leave`] (architecture.md, *Epochs*).
const MAX_TRANSLATIONS: u64 = 16;

#[repr(C, align(4096))]
struct Frame(UnsafeCell<[u8; PAGE]>);

/// Pages from [`BASE`] on, each in some frame. Pages 1, 4, 7, … count as device memory.
pub(crate) struct FakeMemory {
    frames: Box<[Frame]>,
    /// Frame of each page.
    map: Vec<usize>,
    free: Vec<usize>,
    random: Random,
}

// SAFETY: frames are reached through spans, by several threads at once as guest memory is; tests do so with atomics only.
unsafe impl Sync for FakeMemory {}

/// Whether page `index` counts as device memory.
pub(crate) fn is_local(index: usize) -> bool {
    index % 3 == 1
}

impl FakeMemory {
    /// Memory with this content, zeroes up to the next page.
    pub fn new(bytes: &[u8], seed: u64) -> Self {
        let pages = bytes.len().div_ceil(PAGE);
        let mut random = Random(seed);
        let mut order: Vec<usize> = (0..2 * pages).collect();
        random.shuffle(&mut order);
        let free = order.split_off(pages);
        let frames = (0..2 * pages).map(|_| Frame(UnsafeCell::new([POISON; PAGE]))).collect();
        let mut memory = Self { frames, map: order, free, random };
        for (page, chunk) in bytes.chunks(PAGE).enumerate() {
            let frame = memory.frame_mut(memory.map[page]);
            frame.fill(0);
            frame[..chunk.len()].copy_from_slice(chunk);
        }
        memory
    }

    fn frame_mut(&mut self, frame: usize) -> &mut [u8; PAGE] {
        self.frames[frame].0.get_mut()
    }

    /// Everything, in the order of the addresses.
    pub fn bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.map.len() * PAGE);
        for page in 0..self.map.len() {
            bytes.extend_from_slice(self.frame_mut(self.map[page]));
        }
        bytes
    }

    /// Moves every page to another frame, as migration does between two sections.
    pub fn move_all(&mut self) {
        let mut free = std::mem::take(&mut self.free);
        self.random.shuffle(&mut free);
        for (page, new) in free.iter_mut().enumerate() {
            let old = std::mem::replace(&mut self.map[page], *new);
            let content = std::mem::replace(self.frame_mut(old), [POISON; PAGE]);
            *self.frame_mut(*new) = content;
            *new = old;
        }
        self.free = free;
    }

    fn span(&self, va: u64) -> Option<Span<'_>> {
        let page = (va.checked_sub(BASE)? / PAGE_SIZE) as usize;
        let frame = self.frames[*self.map.get(page)?].0.get().cast::<u8>();
        let offset = (va % PAGE_SIZE) as usize;
        // SAFETY: the offset is inside the frame, which lives and stays as long as `self` is borrowed.
        Some(unsafe { Span::new(NonNull::new(frame.add(offset))?, PAGE - offset, is_local(page)) })
    }
}

/// Where a view interrupts; counted from 0 in the run that it is made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interrupt {
    /// This translation finds its page absent.
    pub fault_at: Option<u64>,
    /// This look says that the EU must leave.
    pub leave_at: Option<u64>,
}

/// One translation that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub va: u64,
    pub access: Access,
}

/// A section over [`FakeMemory`].
pub(crate) struct FakeView<'m> {
    memory: &'m FakeMemory,
    interrupt: Interrupt,
    looks: Cell<u64>,
    since_look: Cell<u64>,
    asked: RefCell<Vec<Asked>>,
}

impl<'m> FakeView<'m> {
    pub fn new(memory: &'m FakeMemory, interrupt: Interrupt) -> Self {
        Self { memory, interrupt, looks: Cell::new(0), since_look: Cell::new(0), asked: RefCell::default() }
    }

    /// How often it was asked whether to leave.
    pub fn looks(&self) -> u64 {
        self.looks.get()
    }

    /// The translations that it was asked for.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.borrow().clone()
    }
}

impl View for FakeView<'_> {
    fn translate(&self, va: u64, access: Access) -> Result<Span<'_>, Fault> {
        let index = self.asked.borrow().len() as u64;
        self.asked.borrow_mut().push(Asked { va, access });
        self.since_look.set(self.since_look.get() + 1);
        assert!(self.since_look.get() <= MAX_TRANSLATIONS, "too many translations without a look");
        let fault = |cause| Fault { va: va & !(PAGE_SIZE - 1), access, cause };
        if self.interrupt.fault_at == Some(index) {
            return Err(fault(FaultCause::NotPresent));
        }
        self.memory.span(va).ok_or(fault(FaultCause::BadAddress))
    }

    fn must_leave(&self) -> bool {
        let look = self.looks.replace(self.looks.get() + 1);
        self.since_look.set(0);
        self.interrupt.leave_at == Some(look)
    }
}
