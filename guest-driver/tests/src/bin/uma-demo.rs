//! One array from malloc, one pointer, two processors: watch the pages move.

use libuma::{Context, Device, DeviceStats, Stats, Task};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use uma_guest_tests::memory::Mapping;
use uma_guest_tests::{reference, DEVICE};

const BYTES: usize = 64 << 20;
const N: usize = BYTES / size_of::<f32>();
const FACTOR: f32 = 1.5;
/// The part that the CPU changes: 8 MiB in the middle.
const CHANGED: std::ops::Range<usize> = N / 2..N / 2 + N / 8;

/// A block of memory from malloc(3).
struct Malloc(*mut f32);

impl Malloc {
    fn new() -> Result<Self, String> {
        // SAFETY: malloc has no conditions.
        let pointer = unsafe { libc::malloc(BYTES) }.cast::<f32>();
        if pointer.is_null() {
            return Err(format!("malloc of {BYTES} bytes failed"));
        }
        Ok(Self(pointer))
    }

    fn slice(&mut self) -> &mut [f32] {
        // SAFETY: malloc gave BYTES bytes at this address, aligned for any type; their pages are zero at first, and any
        // bits are an f32. The exclusive borrow keeps other users out.
        unsafe { std::slice::from_raw_parts_mut(self.0, N) }
    }
}

impl Drop for Malloc {
    fn drop(&mut self) {
        // SAFETY: from malloc, freed once.
        unsafe { libc::free(self.0.cast()) };
    }
}

/// The counters, before and after each phase.
struct Meter {
    context: Context,
    last: Stats,
    first: DeviceStats,
}

impl Meter {
    fn phase(
        &mut self,
        what: &str,
        why: &str,
        work: impl FnOnce(&Context) -> Result<(), String>,
    ) -> Result<(), String> {
        let start = Instant::now();
        work(&self.context)?;
        let time = start.elapsed();
        let now = self.context.stats().map_err(|error| error.to_string())?;
        let (before, pages) = (self.last, |now: u64, before: u64| mib((now - before) * 4096));
        println!(
            "{what:<26} {time:>8} {device:>7} {cpu:>7} {into:>11} {back:>11}  {why}",
            time = milliseconds(time),
            device = now.faults - before.faults,
            cpu = now.cpu_faults - before.cpu_faults,
            into = pages(now.to_device(), before.to_device()),
            back = pages(now.to_system(), before.to_system()),
        );
        let _ = std::io::stdout().flush(); // shown as it happens; a closed terminal is no reason to stop
        self.last = now;
        Ok(())
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

fn mib(bytes: u64) -> String {
    match bytes {
        0 => "-".to_owned(),
        1..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

fn start(index: usize) -> f32 {
    (index % 1021) as f32 - 300.0
}

fn changed(index: usize) -> f32 {
    (index % 17) as f32 + 0.25
}

fn main() -> ExitCode {
    match show() {
        Ok(()) => {
            println!("RESULT ok");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("RESULT failed: {why}");
            ExitCode::FAILURE
        }
    }
}

fn show() -> Result<(), String> {
    let say = |error: libuma::Error| uma_guest_tests::fixture::chain(&error);
    let device = Device::open(DEVICE).map_err(say)?;
    let info = device.query().map_err(say)?;
    let meter =
        Meter { context: device.context().map_err(say)?, last: Stats::default(), first: device.stats().map_err(say)? };
    println!(
        "One {} MiB array from malloc, one pointer, two processors: the CPU of this guest and the device.",
        BYTES >> 20
    );
    println!(
        "Device: {} of memory, {} execution units. {}\n",
        mib(info.device_bytes),
        info.num_eus,
        if info.features.private() {
            "Pages move to it on first touch."
        } else {
            "This kernel can't move pages to it."
        }
    );
    println!("{:<26} {:>8} {:>15} {:>11} {:>11}", "", "", "faults", "moved to", "moved back");
    println!("{:<26} {:>8} {:>7} {:>7} {:>11} {:>11}", "phase", "time", "device", "CPU", "the device", "to the CPU");
    phases(meter)
}

fn phases(mut meter: Meter) -> Result<(), String> {
    let say = |error: libuma::Error| uma_guest_tests::fixture::chain(&error);
    let mut memory = Malloc::new()?;
    let mut sum = Mapping::small(size_of::<f32>()); // a page of its own: what shares a page moves with it
    meter.phase("1 CPU writes the array", "ordinary memory, the device does not know of it", |_| {
        memory.slice().iter_mut().enumerate().for_each(|(index, value)| *value = start(index));
        Ok(())
    })?;
    meter.phase("2 device multiplies it", "each block moves when the device first touches it", |context| {
        context.run(Task::scale(memory.slice(), FACTOR)).map(drop).map_err(say)
    })?;
    meter.phase("3 CPU changes 8 MiB of it", "what the CPU touches comes back, the rest stays", |_| {
        CHANGED.for_each(|index| memory.slice()[index] = changed(index));
        Ok(())
    })?;
    meter.phase("4 device adds it up", "only what the CPU had moves again", |context| {
        context.run(Task::reduce(&mut sum.slice_mut()[0], memory.slice())).map(drop).map_err(say)
    })?;
    let expected = |index: usize| if CHANGED.contains(&index) { changed(index) } else { FACTOR * start(index) };
    let mut wrong = 0;
    meter.phase("5 CPU reads all of it", "the whole array comes home", |_| {
        let differs = |(index, value): &(usize, &mut f32)| value.to_bits() != expected(*index).to_bits();
        wrong = memory.slice().iter_mut().enumerate().filter(differs).count();
        Ok(())
    })?;
    let right = reference::sum((0..N).map(expected));
    let sum = sum.slice::<f32>()[0];
    println!("\nsum from the device {sum:?}, from the CPU {right:?}; elements that differ: {wrong} of {N}");
    if sum.to_bits() != right.to_bits() {
        return Err("the device's sum is not the CPU's".to_owned());
    }
    if wrong != 0 {
        return Err(format!("{wrong} elements are not what the CPU computes"));
    }
    account(&meter)
}

/// The driver's count against the device's own.
fn account(meter: &Meter) -> Result<(), String> {
    let now = meter.context.device_stats().map_err(|error| uma_guest_tests::fixture::chain(&error))?;
    // Not the last phase's: the sum was read, and came back, since.
    let driver = meter.context.stats().map_err(|error| uma_guest_tests::fixture::chain(&error))?;
    let (before, after) = (meter.first.counters, now.counters);
    let copied_in = after.pages_to_device - before.pages_to_device;
    let copied_out = after.pages_to_system - before.pages_to_system;
    println!(
        "driver counts {} pages in ({} of them empty) and {} out; the device copied {copied_in} in and {copied_out} out",
        driver.to_device(),
        driver.zero_filled,
        driver.to_system()
    );
    if driver.to_device() - driver.zero_filled != copied_in || driver.to_system() != copied_out {
        return Err("driver and device disagree on what moved".to_owned());
    }
    Ok(())
}
