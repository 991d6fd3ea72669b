//! Pages move to the device before it needs them, and one comes back when the CPU looks at it.

use libuma::{Device, Error, Target, HUGE_SIZE, PAGE_SIZE};

fn main() -> Result<(), Error> {
    let context = Device::open("/dev/uma0")?.context()?;
    let memory = vec![7u8; 10 * HUGE_SIZE];
    let start = memory.as_ptr().wrapping_add(memory.as_ptr().align_offset(PAGE_SIZE));
    println!("{:?}", context.prefetch(start, 8 * HUGE_SIZE, Target::Device)?);
    assert_eq!(memory[3 * HUGE_SIZE], 7);
    let now = context.residency(start, 8 * HUGE_SIZE)?;
    println!("now {} pages in system memory, {} on the device", now.system, now.device);
    Ok(())
}
