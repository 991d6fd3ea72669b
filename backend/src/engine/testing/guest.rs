//! A guest for the real MMU: RAM in a memfd, page tables in it, sync pages, and what a driver does with them.

use super::memory::{is_local, BASE, PAGE, POISON};
use super::Random;
use crate::memory::{bulk, ControlPage, GuestMemory, GuestRegion, Span};
use crate::mmu::{AddressSpace, EuMmu, Gates};
use crate::pool::Backing;
use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};
use std::mem::offset_of;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::atomic::{fence, AtomicU64, Ordering};
use std::sync::Arc;
use uma_protocol::kernel::Elem;
use uma_protocol::request::CreateAsid;
use uma_protocol::sync::{asid_state, ring_slot_offset, AsidSyncHeader, RingSlot, EPOCH_MASK, EU_LINES_OFFSET, IDLE};
use uma_protocol::{pte, AsidHandle, PAGE_SIZE};

const RAM: u64 = 256 << 10;
const DEVICE_MEMORY: u64 = 2 << 20;
const DEVICE_SYNC: u64 = 0;
const SPACE_SYNC: u64 = PAGE_SIZE;
const ROOT: u64 = 2 * PAGE_SIZE;
const LEVELS: u32 = 4;
/// First page of RAM that holds data; the tables of all levels are before it.
const FIRST_FRAME: u64 = 16 * PAGE_SIZE;
/// Small, so that the ring is overrun now and then.
const RING_ENTRIES: u32 = 8;
const HANDLE: AsidHandle = AsidHandle { index: 1, generation: 1 };

/// A mapping of RAM.
struct Mapping(NonNull<u8>);

// SAFETY: the mapping belongs to the value; what is in it is reached by raw copies and atomics.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(file: &OwnedFd) -> Self {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nobody else's.
        let base = unsafe { mmap(std::ptr::null_mut(), RAM as usize, rights, MapFlags::SHARED, file, 0) };
        Self(NonNull::new(base.unwrap().cast()).unwrap())
    }

    fn span(&self) -> Span<'_> {
        // SAFETY: all of it is mapped as long as `self` lives.
        unsafe { Span::new(self.0, RAM as usize, false) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: who reaches into the mapping holds the Arc around it or borrows the value.
        unsafe { munmap(self.0.as_ptr().cast(), RAM as usize).unwrap() };
    }
}

/// The guest's RAM with the driver's mapping of it; the device has its own.
struct Ram {
    file: OwnedFd,
    driver: Mapping,
}

impl Ram {
    fn new() -> Self {
        let file = memfd_create("uma-test-ram", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, RAM).unwrap();
        Self { driver: Mapping::new(&file), file }
    }

    /// A new mapping for the device.
    fn region(&self) -> GuestRegion {
        let mapping = Arc::new(Mapping::new(&self.file));
        // SAFETY: the Arc keeps the mapping of `RAM` bytes.
        unsafe { GuestRegion::new(0, RAM, mapping.0, mapping) }
    }
}

/// Where a page is, and how the tables show it.
#[derive(Clone, Copy, Debug)]
struct Page {
    frame: u64,
    local: bool,
}

/// The guest: [`BASE`] and the pages behind it are one process's memory.
pub(crate) struct Guest {
    ram: Ram,
    pub memory: Arc<GuestMemory>,
    pub backing: Arc<Backing>,
    pub gates: Arc<Gates>,
    sync: ControlPage,
    space: ControlPage,
    pages: Vec<Page>,
    free: [Vec<u64>; 2],
    epoch: u64,
    random: Random,
}

impl Guest {
    /// A guest whose process has this content, all of it mapped and writable. The device is not parked.
    pub fn new(bytes: &[u8], seed: u64) -> Self {
        let ram = Ram::new();
        let memory = Arc::new(GuestMemory::default());
        memory.replace(vec![ram.region()]);
        let table = memory.load();
        let page = |gpa| ControlPage::new(&table, gpa).unwrap();
        let gates = Arc::new(Gates::new(1));
        gates.set_sync_page(Some(Arc::new(page(DEVICE_SYNC))));
        gates.open();
        let frames = |from: u64, to: u64| (from / PAGE_SIZE..to / PAGE_SIZE).map(|frame| frame * PAGE_SIZE).collect();
        let mut guest = Self {
            ram,
            backing: Arc::new(Backing::new(DEVICE_MEMORY).unwrap()),
            sync: page(DEVICE_SYNC),
            space: page(SPACE_SYNC),
            gates,
            memory,
            pages: Vec::new(),
            free: [frames(FIRST_FRAME, RAM), frames(0, DEVICE_MEMORY / 8)],
            epoch: 0,
            random: Random(seed),
        };
        guest.space.u64_at(offset_of!(AsidSyncHeader, state)).store(asid_state::LIVE, Ordering::Release);
        guest.build_tables();
        guest.load(bytes);
        guest
    }

    /// What the device makes of CREATE_ASID.
    pub fn address_space(&self) -> AddressSpace {
        let levels = LEVELS as u8;
        let request =
            CreateAsid { levels, root: ROOT, sync_addr: SPACE_SYNC, ring_entries: RING_ENTRIES, ..Default::default() };
        AddressSpace::new(HANDLE, &request, &self.memory.load()).unwrap()
    }

    /// The EU, to be made on its thread.
    pub fn mmu(&self) -> EuMmu {
        EuMmu::new(0, self.memory.clone(), self.backing.clone(), self.gates.clone(), 4)
    }

    /// Number of the process's pages.
    pub fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Some page.
    pub fn random_page(&mut self) -> usize {
        self.random.below(self.pages.len() as u64) as usize
    }

    /// Heads or tails.
    pub fn random_bit(&mut self) -> bool {
        self.random.below(2) == 0
    }

    /// Whether the EU is outside of every section, as the driver sees it.
    pub fn is_idle(&self) -> bool {
        self.sync.u64_at(EU_LINES_OFFSET).load(Ordering::Acquire) == IDLE
    }

    /// The process's memory.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.pages.len() * PAGE];
        for (page, chunk) in self.pages.iter().zip(bytes.chunks_exact_mut(PAGE)) {
            let target = NonNull::new(chunk.as_mut_ptr()).unwrap();
            // SAFETY: the chunk is a page long and ours.
            bulk::copy(unsafe { Span::new(target, PAGE, false) }, self.frame(*page));
        }
        bytes
    }

    /// Takes a page out of the tables and publishes it. The page may still be used until [`Self::wait`] returns.
    pub fn unmap(&mut self, index: usize) {
        self.entry(index).store(0, Ordering::Release);
        let va = BASE + index as u64 * PAGE_SIZE;
        self.publish(va, va + PAGE_SIZE);
    }

    /// Takes all pages out of the tables; one ring entry.
    pub fn unmap_all(&mut self) {
        (0..self.pages.len()).for_each(|index| self.entry(index).store(0, Ordering::Release));
        self.publish(0, u64::MAX);
    }

    /// Moves an unmapped page to another frame of its kind.
    pub fn relocate(&mut self, index: usize) {
        let old = self.pages[index];
        let frame = self.take_frame(old.local);
        self.pages[index].frame = frame;
        bulk::copy(self.frame(self.pages[index]), self.frame(old));
        poison(self.frame(old));
        self.free[usize::from(old.local)].push(old.frame);
    }

    /// Puts a page into the tables.
    pub fn map(&self, index: usize, writable: bool) {
        let Page { frame, local } = self.pages[index];
        let rights = if writable { pte::WRITABLE } else { 0 };
        let place = if local { pte::LOCAL } else { 0 };
        self.entry(index).store(frame | pte::PRESENT | pte::USER | rights | place, Ordering::Release);
    }

    /// Moves all unmapped pages and maps them again.
    pub fn relocate_all(&mut self) {
        for index in 0..self.pages.len() {
            self.relocate(index);
            self.map(index, true);
        }
    }

    /// The driver's wait at the end of an invalidation.
    pub fn wait(&self) {
        fence(Ordering::SeqCst);
        let line = self.sync.u64_at(EU_LINES_OFFSET);
        let older = |active: u64| active != IDLE && active & EPOCH_MASK < self.epoch;
        while older(line.load(Ordering::Acquire)) {
            std::thread::yield_now();
        }
    }

    /// SET_MEM_TABLE: the same RAM in another file, mapped elsewhere. The device is parked.
    pub fn remap(&mut self, space: &AddressSpace) -> AddressSpace {
        let ram = Ram::new();
        bulk::copy(ram.driver.span(), self.ram.driver.span());
        poison(self.ram.driver.span());
        self.ram = ram;
        self.memory.replace(vec![self.ram.region()]);
        let table = self.memory.load();
        self.sync = ControlPage::new(&table, DEVICE_SYNC).unwrap();
        self.space = ControlPage::new(&table, SPACE_SYNC).unwrap();
        self.gates.set_sync_page(ControlPage::new(&table, DEVICE_SYNC).map(Arc::new));
        space.rebind(&table).unwrap()
    }

    fn publish(&mut self, start: u64, end: u64) {
        self.epoch += 1;
        let at = ring_slot_offset(self.epoch, RING_ENTRIES);
        let word = |field: usize| self.space.u64_at(at + field);
        word(offset_of!(RingSlot, seq)).store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        word(offset_of!(RingSlot, start)).store(start, Ordering::Relaxed);
        word(offset_of!(RingSlot, end)).store(end, Ordering::Relaxed);
        word(offset_of!(RingSlot, flags)).store(0, Ordering::Relaxed);
        word(offset_of!(RingSlot, seq)).store(self.epoch, Ordering::Release);
        self.space.u64_at(offset_of!(AsidSyncHeader, epoch)).store(self.epoch, Ordering::Release);
    }

    fn load(&mut self, bytes: &[u8]) {
        for (index, chunk) in bytes.chunks(PAGE).enumerate() {
            let local = is_local(index);
            let frame = self.take_frame(local);
            let page = Page { frame, local };
            self.pages.push(page);
            let source = NonNull::from(chunk).cast();
            // SAFETY: the chunk is only read.
            bulk::copy(self.frame(page), unsafe { Span::new(source, chunk.len(), false) });
            self.map(index, true);
        }
    }

    fn take_frame(&mut self, local: bool) -> u64 {
        let free = &mut self.free[usize::from(local)];
        let at = self.random.below(free.len() as u64) as usize;
        free.swap_remove(at)
    }

    fn frame(&self, page: Page) -> Span<'_> {
        if page.local {
            return self.backing.span(page.frame, PAGE_SIZE).unwrap();
        }
        // SAFETY: frames are inside the RAM, which the driver maps whole.
        unsafe { Span::new(self.ram.driver.0.add(page.frame as usize), PAGE, false) }
    }

    /// One table per level, since the process's memory lies in one block of 2 MiB.
    fn build_tables(&self) {
        for level in (2..=LEVELS).rev() {
            let table = ROOT + u64::from(LEVELS - level) * PAGE_SIZE;
            let below = (table + PAGE_SIZE) | pte::PRESENT | pte::USER | pte::WRITABLE;
            self.word(table + 8 * pte::index(BASE, level) as u64).store(below, Ordering::Release);
        }
    }

    fn entry(&self, index: usize) -> &AtomicU64 {
        let table = ROOT + u64::from(LEVELS - 1) * PAGE_SIZE;
        self.word(table + 8 * (pte::index(BASE, 1) + index) as u64)
    }

    fn word(&self, gpa: u64) -> &AtomicU64 {
        // SAFETY: aligned and inside the RAM, which the driver maps whole; tables are reached as atomics only.
        unsafe { self.ram.driver.0.add(gpa as usize).cast().as_ref() }
    }
}

fn poison(span: Span<'_>) {
    bulk::fill(span, span.len() / 8, Elem::U64, u64::from_ne_bytes([POISON; 8]));
}
