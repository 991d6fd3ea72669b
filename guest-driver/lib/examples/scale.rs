//! The device scales a vector, through the pointer that the CPU uses.

use libuma::{Device, Error, Task};

fn main() -> Result<(), Error> {
    let context = Device::open("/dev/uma0")?.context()?;
    let mut a: Vec<f32> = (0..1 << 20).map(|i| i as f32).collect();
    let end = context.run(Task::scale(&mut a, 2.0))?;
    println!("{} bytes in {:?} with {} faults", end.bytes, end.device_time, end.faults);
    println!("a[1000] = {}", a[1000]); // 2000; reading it brings the page back
    assert_eq!(a[1000], 2000.0);
    Ok(())
}
