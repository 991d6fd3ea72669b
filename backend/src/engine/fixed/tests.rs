use super::super::testing::jobs::{kinds, random, Case};
use super::super::testing::memory::{is_local, FakeMemory, FakeView, Interrupt, BASE, PAGE};
use super::super::testing::reference::{self, Flat};
use super::super::testing::runner::{run, Finished, Plan, Trace};
use super::super::{Engine, Outcome, Work};
use super::FixedEngine;
use crate::mmu::View;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Barrier;
use uma_protocol::fault::{Access, FaultCause};
use uma_protocol::kernel::{Elem, JobRequest, Kernel, KernelArgs};
use uma_protocol::{Status, PAGE_SIZE};

fn expected(case: &Case) -> (Outcome, Vec<u8>) {
    let mut flat = case.memory.clone();
    let outcome = reference::run(&case.job, &mut flat);
    (outcome, flat.0)
}

fn uninterrupted(case: &Case) -> (Finished, Trace) {
    run(&case.job, &mut FakeMemory::new(&case.memory.0, 1), |_, _| Plan::NONE)
}

fn interrupted(case: &Case, plan: impl FnMut(u64, &Work) -> Plan) -> (Finished, Trace) {
    run(&case.job, &mut FakeMemory::new(&case.memory.0, 2), plan)
}

/// Interrupts the first run only.
fn once(plan: Plan) -> impl FnMut(u64, &Work) -> Plan {
    move |run, _| if run == 0 { plan } else { Plan::NONE }
}

fn cases(count: u64, percent: u64) -> impl Iterator<Item = Case> {
    kinds().into_iter().flat_map(move |(kernel, elem)| {
        let tag = u64::from(kernel as u16) << 8 | elem.size();
        (0..count).map(move |i| random(kernel, elem, i << 32 | tag, percent))
    })
}

#[test]
fn every_kernel_does_what_its_words_say() {
    for case in cases(40, 100) {
        let (got, _) = uninterrupted(&case);
        let (outcome, bytes) = expected(&case);
        assert_eq!(got.outcome, outcome, "{:?}", case.job);
        assert!(got.bytes == bytes, "{:?}", case.job);
    }
}

#[test]
fn a_fault_at_every_translation_changes_nothing() {
    for case in cases(2, 40) {
        let (whole, trace) = uninterrupted(&case);
        for k in 0..trace.asked.len() as u64 {
            let (got, _) = interrupted(&case, once(Plan::fault_at(k)));
            assert!(got == whole, "translation {k} of {:?}", case.job);
        }
    }
}

#[test]
fn leaving_at_every_look_changes_nothing() {
    for case in cases(3, 60) {
        let (whole, trace) = uninterrupted(&case);
        for look in 0..trace.looks {
            let (got, _) = interrupted(&case, once(Plan::leave_at(look)));
            assert!(got == whole, "look {look} of {:?}", case.job);
        }
    }
}

/// The step is entered anew for each of its translations, and each finds its page absent once.
#[test]
fn faults_at_all_translations_of_all_steps_of_one_run_change_nothing() {
    for case in cases(6, 100) {
        let (whole, trace) = uninterrupted(&case);
        let mut step = (u64::MAX, 0);
        let (got, got_trace) = interrupted(&case, |_, work| {
            step = if step.0 == work.steps { (step.0, step.1 + 1) } else { (work.steps, 0) };
            // One step per run, so that translations are counted from the step's first.
            Plan { fuel: 1, ..Plan::fault_at(step.1) }
        });
        assert!(got == whole, "{:?}", case.job);
        // Each translation faulted once, and each step ended a run.
        assert!(got_trace.runs >= trace.asked.len() as u64, "{:?}", case.job);
    }
}

/// A park is a leave in which everything, the cursor included, lies elsewhere afterwards.
#[test]
fn a_park_after_every_step_changes_nothing() {
    for case in cases(10, 100) {
        let (whole, _) = uninterrupted(&case);
        for fuel in [1, 2, 3, 7] {
            let (got, trace) = interrupted(&case, |_, _| Plan::fuel(fuel));
            assert!(got == whole, "fuel {fuel} of {:?}", case.job);
            assert!(trace.runs >= whole.work.steps / u64::from(fuel), "{:?}", case.job);
        }
    }
}

#[test]
fn no_fuel_at_all_is_one_step() {
    for case in cases(1, 100) {
        let (whole, _) = uninterrupted(&case);
        assert!(interrupted(&case, |_, _| Plan::fuel(0)).0 == whole, "{:?}", case.job);
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    let place = || proptest::option::weighted(0.6, 0u64..40);
    (place(), place(), prop_oneof![Just(u32::MAX), 1u32..20])
        .prop_map(|(fault_at, leave_at, fuel)| Plan { interrupt: Interrupt { fault_at, leave_at }, fuel })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn random_jobs_with_random_interruptions(
        kind in proptest::sample::select(kinds()),
        seed: u64,
        percent in 0u64..=100,
        plans in proptest::collection::vec(plans(), 0..60),
    ) {
        let case = random(kind.0, kind.1, seed, percent);
        let (outcome, bytes) = expected(&case);
        let (whole, _) = uninterrupted(&case);
        let (got, _) = interrupted(&case, |run, _| plans.get(run as usize).copied().unwrap_or(Plan::NONE));
        prop_assert_eq!(got.outcome, outcome);
        prop_assert_eq!(got.work, whole.work);
        prop_assert!(got.bytes == bytes);
    }
}

fn job(kernel: Kernel, elem: Elem, args: KernelArgs) -> JobRequest {
    JobRequest { kernel: kernel as u16, elem: elem as u16, args, ..JobRequest::default() }
}

/// Each step asks for each operand with its final rights: not less, or it would write where it may not; not more, or a
/// read-only or copy-on-write page would fault for nothing.
#[test]
fn operands_are_translated_with_their_final_rights() {
    for case in cases(5, 100) {
        let (kernel, _) = case.job.kernel().unwrap();
        let mut asked = Vec::new();
        let mut memory = FakeMemory::new(&case.memory.0, 4);
        let (mut cursor, mut work) = (FixedEngine.start(&case.job), Work::default());
        loop {
            let view = FakeView::new(&memory, Interrupt::default());
            let outcome = FixedEngine.step(&view, &case.job, &mut cursor, 1, &mut work);
            asked.push(view.asked().iter().map(|asked| asked.access).collect::<Vec<_>>());
            if outcome != Outcome::Yield {
                break;
            }
            memory.move_all();
        }
        let (read, store, update) = (Access::READ, Access::STORE, Access::UPDATE);
        let allowed: &[&[Access]] = match kernel {
            Kernel::Nop => &[],
            Kernel::Fill => &[&[store]],
            Kernel::Copy | Kernel::Scale => &[&[read, store]],
            Kernel::Axpy => &[&[read, update]],
            Kernel::Reduce | Kernel::Chase => &[&[read], &[store]],
            Kernel::Dot => &[&[read, read], &[store]],
            // The second is a bad index.
            Kernel::Gather | Kernel::Scatter => &[&[read, read, store], &[read]],
            // The second is a product of no terms.
            Kernel::Gemm => &[&[read, read, update], &[update]],
            Kernel::AtomicAdd | Kernel::AtomicCas => &[&[Access::RMW]],
        };
        for step in asked.iter().filter(|step| !step.is_empty()) {
            assert!(allowed.contains(&step.as_slice()), "{step:?} of {:?}", case.job);
        }
    }
}

#[test]
fn work_counts_bytes_where_they_were() {
    // Pages 0, 1, 2 of which 1 is local; 100 bytes of page 0, all of 1, 100 of 2.
    let args = KernelArgs { va: [BASE + PAGE_SIZE - 100, 0, 0, 0], n: [PAGE_SIZE + 200, 0, 0, 0], scalar: [7, 0] };
    let mut memory = FakeMemory::new(&vec![0; 3 * PAGE], 0);
    assert!(is_local(1) && !is_local(0) && !is_local(2));
    let (done, _) = run(&job(Kernel::Fill, Elem::U8, args), &mut memory, |_, _| Plan::NONE);
    assert_eq!(done.work, Work { steps: 3, bytes_system: 200, bytes_local: PAGE_SIZE });
}

#[test]
fn elements_before_a_bad_index_are_moved() {
    let mut flat = Flat(vec![0; 3 * PAGE]);
    let [dst, src, indices] = [0, 1, 2].map(|page| BASE + page * PAGE_SIZE);
    for (i, index) in [2, 1, 3, 0].into_iter().enumerate() {
        flat.put(indices + 8 * i as u64, 8, index);
        flat.put(src + 4 * i as u64, 4, 10 + i as u64);
    }
    let args = KernelArgs { va: [dst, src, indices, 0], n: [4, 3, 0, 0], scalar: [0; 2] };
    let mut memory = FakeMemory::new(&flat.0, 0);
    let (done, _) = run(&job(Kernel::Gather, Elem::U32, args), &mut memory, |_, _| Plan::NONE);
    assert_eq!(done.outcome, Outcome::Trap(Status::BadArgument));
    let after = Flat(done.bytes);
    assert_eq!([0, 4, 8, 12].map(|at| after.get(dst + at, 4)), [12, 11, 0, 0]);
}

#[test]
fn a_pointer_out_of_the_address_space_is_a_fault() {
    for pointer in [0, 8, u64::MAX - 7, 1 << 63] {
        let mut flat = Flat(vec![0; PAGE]);
        flat.put(BASE, 8, pointer);
        let args = KernelArgs { va: [BASE, BASE + 8, 0, 0], n: [2, 0, 0, 0], scalar: [0; 2] };
        let mut memory = FakeMemory::new(&flat.0, 0);
        let (done, _) = run(&job(Kernel::Chase, Elem::U64, args), &mut memory, |_, _| Plan::NONE);
        let Outcome::Fault(fault) = done.outcome else { panic!("{:?}", done.outcome) };
        assert_eq!((fault.va, fault.cause), (pointer & !0xfff, FaultCause::BadAddress));
    }
}

#[test]
fn counts_of_zero_end_at_once() {
    let flat = vec![0xff; 3 * PAGE];
    for (kernel, elem) in kinds() {
        let mut args = KernelArgs::default();
        let (vas, ..) = kernel.uses();
        for (i, va) in args.va[..vas].iter_mut().enumerate() {
            *va = BASE + i as u64 * PAGE_SIZE;
        }
        let (done, _) = run(&job(kernel, elem, args), &mut FakeMemory::new(&flat, 0), |_, _| Plan::NONE);
        let writes = matches!(kernel, Kernel::Reduce | Kernel::Dot | Kernel::Chase);
        let result = if kernel == Kernel::Chase { BASE } else { 0 };
        assert_eq!((done.outcome, done.work.steps), (Outcome::Done(result), u64::from(writes)), "{kernel:?}");
        assert_eq!(done.bytes == flat, !writes, "{kernel:?}");
    }
    assert_eq!(run(&JobRequest::default(), &mut FakeMemory::new(&flat, 0), |_, _| Plan::NONE).0.work, Work::default());
}

fn run_on(view: &impl View, job: &JobRequest) -> u64 {
    let (mut cursor, mut work) = (FixedEngine.start(job), Work::default());
    loop {
        match FixedEngine.step(view, job, &mut cursor, 5, &mut work) {
            Outcome::Done(result) => return result,
            Outcome::Yield => {}
            other => panic!("{other:?}"),
        }
    }
}

/// Two EUs and a CPU add to the same words: nothing is lost.
#[test]
fn atomic_adds_are_counted_exactly() {
    // Few words, so that the three meet all the time.
    const SLOTS: u64 = 3;
    const ADDS: u64 = 500_000;
    let mut memory = FakeMemory::new(&vec![0; 2 * PAGE], 5);
    let va = BASE + 128;
    let add = |seed, by| {
        let args = KernelArgs { va: [va, 0, 0, 0], n: [SLOTS, ADDS, 0, 0], scalar: [by, seed] };
        job(Kernel::AtomicAdd, Elem::U64, args)
    };
    let start = Barrier::new(3);
    std::thread::scope(|scope| {
        let (memory, start) = (&memory, &start);
        for (seed, by) in [(0, 3), (1, 5)] {
            scope.spawn(move || {
                start.wait();
                run_on(&FakeView::new(memory, Interrupt::default()), &add(seed, by))
            });
        }
        scope.spawn(move || {
            let view = FakeView::new(memory, Interrupt::default());
            let word = view.translate(va, Access::RMW).unwrap().as_ptr().cast::<AtomicU64>();
            start.wait();
            for _ in 0..ADDS {
                // SAFETY: the span is mapped and aligned as long as `memory` is borrowed; everybody uses atomics on it.
                unsafe { &*word }.fetch_add(7, Ordering::Relaxed);
            }
        });
    });
    let flat = Flat(memory.bytes());
    let total: u64 = (0..SLOTS).map(|slot| flat.get(va + 8 * slot, 8)).sum();
    assert_eq!(total, ADDS * (3 + 5 + 7));
}

/// EUs and a CPU race for every word: each is exchanged once, by one of them.
#[test]
fn atomic_exchanges_are_counted_exactly() {
    const WORDS: u64 = 3000;
    let mut memory = FakeMemory::new(&vec![0; 4 * PAGE], 6);
    let va = BASE + 64;
    let exchanged: u64 = std::thread::scope(|scope| {
        let memory = &memory;
        let mut threads: Vec<_> = [11u64, 22]
            .into_iter()
            .map(|new| {
                let args = KernelArgs { va: [va, 0, 0, 0], n: [WORDS, 0, 0, 0], scalar: [0, new] };
                let job = job(Kernel::AtomicCas, Elem::U32, args);
                scope.spawn(move || run_on(&FakeView::new(memory, Interrupt::default()), &job))
            })
            .collect();
        threads.push(scope.spawn(move || {
            let view = FakeView::new(memory, Interrupt::default());
            let exchange = |i: u64| {
                view.must_leave();
                let word = view.translate(va + 4 * i, Access::RMW).unwrap().as_ptr().cast::<AtomicU32>();
                // SAFETY: as above.
                unsafe { &*word }.compare_exchange(0, 33, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            };
            (0..WORDS).rev().map(|i| u64::from(exchange(i))).sum()
        }));
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let flat = Flat(memory.bytes());
    assert_eq!(exchanged, WORDS);
    assert!((0..WORDS).all(|i| [11, 22, 33].contains(&flat.get(va + 4 * i, 4))));
}
