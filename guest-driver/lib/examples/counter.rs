//! CPU and device count on one word at the same time.

use libuma::{Device, Error, Task};
use std::sync::atomic::{AtomicU64, Ordering};

fn main() -> Result<(), Error> {
    let context = Device::open("/dev/uma0")?.context()?;
    let counter = [AtomicU64::new(0)];
    context.scope(|scope| {
        let job = scope.submit(Task::atomic_add(&counter, 100_000, 1, 0))?;
        for _ in 0..100_000 {
            counter[0].fetch_add(1, Ordering::Relaxed);
        }
        job.wait()
    })?;
    println!("counter = {}", counter[0].load(Ordering::Relaxed)); // 200000
    assert_eq!(counter[0].load(Ordering::Relaxed), 200_000);
    Ok(())
}
