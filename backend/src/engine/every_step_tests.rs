//! Every kernel over the real MMU, with a fault, an invalidation and a park forced at every step. The result is compared
//! bit for bit with the undisturbed run, and so is the work that was done: a step done twice would show there.

use super::fixed::{Cursor, FixedEngine};
use super::testing::guest::Guest;
use super::testing::jobs::{kinds, random, Case};
use super::testing::memory::{Asked, FakeMemory, FakeView, Interrupt, BASE};
use super::testing::runner::Finished;
use super::{Engine, Outcome, Work};
use crate::memory::Span;
use crate::mmu::{AddressSpace, EuMmu, Fault, Refusal, Section, View};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use uma_protocol::fault::{Access, FaultCause};
use uma_protocol::kernel::JobRequest;
use uma_protocol::PAGE_SIZE;
use zerocopy::{FromBytes, IntoBytes};

/// An EU that runs one job.
struct Eu<'j> {
    mmu: EuMmu,
    space: AddressSpace,
    job: &'j JobRequest,
    cursor: Cursor,
    work: Work,
    stop: AtomicBool,
}

/// Where something can happen in a section; both are counted over the whole job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    /// Before this translation.
    Translation(u64),
    /// Before this look at whether to leave.
    Look(u64),
}

/// How many points there were.
#[derive(Default)]
struct Points {
    translations: Cell<u64>,
    looks: Cell<u64>,
}

/// A section in which something happens at some points.
struct Disturbed<'s, F> {
    section: &'s Section<'s>,
    points: &'s Points,
    happens: F,
}

impl<F: Fn(Point)> View for Disturbed<'_, F> {
    fn translate(&self, va: u64, access: Access) -> Result<Span<'_>, Fault> {
        (self.happens)(Point::Translation(next(&self.points.translations)));
        self.section.translate(va, access)
    }

    fn must_leave(&self) -> bool {
        (self.happens)(Point::Look(next(&self.points.looks)));
        self.section.must_leave()
    }
}

fn next(counter: &Cell<u64>) -> u64 {
    counter.replace(counter.get() + 1)
}

impl<'j> Eu<'j> {
    fn new(guest: &Guest, job: &'j JobRequest) -> Self {
        Self {
            mmu: guest.mmu(),
            space: guest.address_space(),
            job,
            cursor: FixedEngine.start(job),
            work: Work::default(),
            stop: AtomicBool::new(false),
        }
    }

    /// One section. The cursor is stored and loaded as bytes before it.
    fn run(&mut self, fuel: u32, points: &Points, happens: impl Fn(Point)) -> Outcome {
        self.cursor = Cursor::read_from_bytes(self.cursor.as_bytes()).unwrap();
        let section = self.mmu.enter(&self.space, &self.stop).expect("the EU may enter");
        let view = Disturbed { section: &section, points, happens };
        FixedEngine.step(&view, self.job, &mut self.cursor, fuel, &mut self.work)
    }

    fn steps(&mut self, fuel: u32) -> Outcome {
        self.run(fuel, &Points::default(), |_| ())
    }

    fn finished(&self, outcome: Outcome, guest: &Guest) -> Finished {
        assert!(guest.is_idle());
        Finished { outcome, work: self.work, bytes: guest.bytes() }
    }
}

fn cases(count: u64, percent: u64) -> impl Iterator<Item = Case> {
    kinds().into_iter().flat_map(move |(kernel, elem)| {
        let tag = u64::from(kernel as u16) << 8 | elem.size();
        (0..count).map(move |i| random(kernel, elem, 1 << 56 | i << 32 | tag, percent))
    })
}

fn undisturbed(case: &Case) -> (Finished, Points) {
    let guest = Guest::new(&case.memory.0, 1);
    let (mut eu, points) = (Eu::new(&guest, &case.job), Points::default());
    let outcome = eu.run(u32::MAX, &points, |_| ());
    assert!(!matches!(outcome, Outcome::Yield | Outcome::Fault(_)));
    (eu.finished(outcome, &guest), points)
}

/// What each step translates.
fn translations(case: &Case) -> Vec<Vec<Asked>> {
    let memory = FakeMemory::new(&case.memory.0, 3);
    let (mut cursor, mut work, mut steps) = (FixedEngine.start(&case.job), Work::default(), Vec::new());
    loop {
        let view = FakeView::new(&memory, Interrupt::default());
        let outcome = FixedEngine.step(&view, &case.job, &mut cursor, 1, &mut work);
        steps.push(view.asked());
        if outcome != Outcome::Yield {
            return steps;
        }
    }
}

fn page_of(va: u64) -> usize {
    ((va - BASE) / PAGE_SIZE) as usize
}

/// The page of each translation of each step is absent when the step begins, and lies in another frame afterwards.
#[test]
fn absent_at_every_translation() {
    for case in cases(2, 40) {
        let (whole, _) = undisturbed(&case);
        for (step, asked) in translations(&case).iter().enumerate() {
            for Asked { va, access } in asked {
                let got = run_with_absent_page(&case, step as u32, *va, *access);
                assert!(got == whole, "step {step}, {va:x} {access:?} of {:?}", case.job);
            }
        }
    }
}

fn run_with_absent_page(case: &Case, step: u32, va: u64, access: Access) -> Finished {
    let mut guest = Guest::new(&case.memory.0, 2);
    let mut eu = Eu::new(&guest, &case.job);
    if step > 0 {
        assert_eq!(eu.steps(step), Outcome::Yield);
    }
    guest.unmap(page_of(va));
    guest.wait();
    let before = (eu.cursor, eu.work, guest.bytes());
    // One step's worth of fuel, so that nothing of the step before is done anew.
    let Outcome::Fault(fault) = eu.steps(1) else { panic!("no fault at step {step} of {:?}", case.job) };
    assert_eq!((fault.va, fault.cause), (va & !(PAGE_SIZE - 1), FaultCause::NotPresent));
    assert!(!fault.access.is_empty() && (fault.access == access || fault.access == Access::READ));
    assert!(guest.is_idle());
    assert!((eu.cursor, eu.work, guest.bytes()) == before, "a step that faults does nothing");
    guest.relocate(page_of(va));
    guest.map(page_of(va), true);
    let outcome = eu.steps(u32::MAX);
    eu.finished(outcome, &guest)
}

/// Runs with `disturb` at the points that `at` names, and `repair` between the sections.
fn run_disturbed(
    case: &Case,
    at: impl Fn(Point) -> bool,
    disturb: impl Fn(&mut Guest),
    repair: impl Fn(&mut Guest, &mut Eu<'_>),
) -> Finished {
    let guest = RefCell::new(Guest::new(&case.memory.0, 2));
    let (mut eu, points) = (Eu::new(&guest.borrow(), &case.job), Points::default());
    loop {
        let (disturbed, left) = (Cell::new(false), Cell::new(false));
        let outcome = eu.run(u32::MAX, &points, |point| {
            assert!(!left.get(), "the EU goes on although it must leave");
            if at(point) && !disturbed.replace(true) {
                disturb(&mut guest.borrow_mut());
            }
            left.set(disturbed.get() && matches!(point, Point::Look(_)));
        });
        let guest = &mut *guest.borrow_mut();
        assert!(guest.is_idle());
        match outcome {
            Outcome::Yield => assert!(left.get()),
            // Disturbed in the middle of a step, which then lacked a page.
            Outcome::Fault(fault) => assert!(disturbed.get() && !left.get() && fault.cause == FaultCause::NotPresent),
            // Also after a disturbance, if no look followed: who disturbs waits until the EU has left.
            _ => return eu.finished(outcome, guest),
        }
        repair(guest, &mut eu);
    }
}

fn invalidate(guest: &mut Guest) {
    // As one entry, or as more entries than the ring holds.
    if guest.random_bit() {
        guest.unmap_all();
    } else {
        (0..guest.pages()).for_each(|page| guest.unmap(page));
    }
}

fn run_invalidated(case: &Case, at: impl Fn(Point) -> bool) -> Finished {
    run_disturbed(case, at, invalidate, |guest, _| {
        guest.wait();
        guest.relocate_all();
    })
}

/// At each look, and at all of them, every page is taken away under the running EU; when it has left, all lie elsewhere.
#[test]
fn invalidated_at_every_look() {
    for case in cases(2, 50) {
        let (whole, points) = undisturbed(&case);
        for k in 0..points.looks.get() {
            assert!(run_invalidated(&case, |point| point == Point::Look(k)) == whole, "look {k} of {:?}", case.job);
        }
        assert!(run_invalidated(&case, |point| matches!(point, Point::Look(_))) == whole, "{:?}", case.job);
    }
}

/// The same before each translation, so in the middle of steps: a step ends with the pages that it began with, or faults.
#[test]
fn invalidated_within_every_step() {
    for case in cases(2, 50) {
        let (whole, points) = undisturbed(&case);
        for k in 0..points.translations.get() {
            let got = run_invalidated(&case, |point| point == Point::Translation(k));
            assert!(got == whole, "translation {k} of {:?}", case.job);
        }
    }
}

/// At each look, and at all of them, the device is parked; it goes on with its RAM mapped elsewhere.
#[test]
fn parked_at_every_look() {
    for case in cases(2, 50) {
        let (whole, points) = undisturbed(&case);
        let run = |at: &dyn Fn(Point) -> bool| run_disturbed(&case, at, |guest| guest.gates.close(), park);
        for k in 0..points.looks.get() {
            assert!(run(&|point| point == Point::Look(k)) == whole, "look {k} of {:?}", case.job);
        }
        assert!(run(&|point| matches!(point, Point::Look(_))) == whole, "{:?}", case.job);
    }
}

fn park(guest: &mut Guest, eu: &mut Eu<'_>) {
    assert!(guest.gates.wait_quiescent(Instant::now() + Duration::from_secs(5)));
    assert_eq!(eu.mmu.enter(&eu.space, &eu.stop).err(), Some(Refusal::Parked));
    assert!(guest.is_idle());
    // Nothing else need change for what was cached to be wrong.
    eu.space = guest.remap(&eu.space);
    if guest.random_bit() {
        guest.unmap_all();
        guest.relocate_all();
    }
    guest.gates.open();
}

/// Nothing is mapped at first; what is read is mapped read-only, and what is then written moves to a frame of its own, or
/// becomes writable where it is, which needs no invalidation.
#[test]
fn demand_paging_and_copy_on_write() {
    for case in cases(8, 100) {
        let (whole, _) = undisturbed(&case);
        let mut guest = Guest::new(&case.memory.0, 2);
        let mut eu = Eu::new(&guest, &case.job);
        guest.unmap_all();
        let mut faults = 0;
        let outcome = loop_over_faults(&mut eu, |fault| {
            faults += 1;
            assert!(faults <= 2 * guest.pages(), "a page that was served faults again");
            let page = page_of(fault.va);
            let in_place = fault.cause == FaultCause::NotPermitted && page.is_multiple_of(2);
            if !in_place {
                guest.unmap(page);
                guest.wait();
                guest.relocate(page);
            }
            guest.map(page, fault.access.contains(Access::WRITE));
        });
        assert!(eu.finished(outcome, &guest) == whole, "{:?}", case.job);
    }
}

fn loop_over_faults(eu: &mut Eu<'_>, mut serve: impl FnMut(Fault)) -> Outcome {
    loop {
        match eu.steps(u32::MAX) {
            Outcome::Yield => {}
            Outcome::Fault(fault) => serve(fault),
            outcome => return outcome,
        }
    }
}

/// A driver on another thread moves pages all the time, with nothing but the handshake between the two.
#[test]
fn pages_move_while_the_eu_runs() {
    for case in cases(2, 100) {
        let (whole, _) = undisturbed(&case);
        let guest = Mutex::new(Guest::new(&case.memory.0, 2));
        let done = AtomicBool::new(false);
        let (outcome, work) = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    move_one(&mut guest.lock().unwrap());
                }
            });
            let mut eu = Eu::new(&guest.lock().unwrap(), &case.job);
            let outcome = loop_over_faults(&mut eu, |_| std::thread::yield_now());
            done.store(true, Ordering::Relaxed);
            (outcome, eu.work)
        });
        let bytes = guest.into_inner().unwrap().bytes();
        assert!(Finished { outcome, work, bytes } == whole, "{:?}", case.job);
    }
}

fn move_one(guest: &mut Guest) {
    let page = guest.random_page();
    guest.unmap(page);
    guest.wait();
    guest.relocate(page);
    guest.map(page, true);
}
