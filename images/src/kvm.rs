//! Whether KVM really runs guest code here. A device node that is there proves nothing: under some hypervisors guests
//! start and never get anywhere.

use crate::command::{die_with_us, wait_within};
use kvm_ioctls::{Kvm, VcpuExit};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Argument of our own program that runs the probe; in a child, since a vCPU that hangs can't be stopped from inside.
pub const PROBE_ARGUMENT: &str = "kvm-probe";
/// The probe takes a millisecond where KVM works.
const DEADLINE: Duration = Duration::from_secs(5);

/// Why KVM is not used, or nothing if it is.
pub fn refusal() -> Option<String> {
    let Ok(program) = std::env::current_exe() else { return Some("cannot find myself".into()) };
    let mut probe = Command::new(program);
    let probe = die_with_us(&mut probe).arg(PROBE_ARGUMENT).stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = probe else { return Some("cannot start the probe".into()) };
    let Some(status) = wait_within(&mut child, DEADLINE) else {
        let _ = child.kill();
        let _ = child.wait();
        return Some("a vCPU does not run".into());
    };
    if status.success() {
        return None;
    }
    let output = child.wait_with_output().ok();
    let why = output.map(|output| String::from_utf8_lossy(&output.stderr).trim().to_owned()).unwrap_or_default();
    Some(if why.is_empty() { format!("the probe ended with {status}") } else { why })
}

/// Guest code: `paddd xmm0, xmm0; mov al, 40; add al, 2; out 0x80, al; hlt`. The first instruction is one that processors
/// run and KVM's own instruction emulator does not know: where there is no hardware behind KVM, everything is emulated and
/// a kernel dies at the first such instruction.
const CODE: &[u8] = &[0x66, 0x0f, 0xfe, 0xc0, 0xb0, 0x28, 0x04, 0x02, 0xe6, 0x80, 0xf4];
/// Lets SSE instructions run.
const CR4_OSFXSR: u64 = 1 << 9;

/// Body of the probe.
///
/// # Errors
/// What does not work.
pub fn probe() -> Result<(), String> {
    let failed = |what: &'static str| move |error: kvm_ioctls::Error| format!("{what}: {error}");
    let kvm = Kvm::new().map_err(failed("/dev/kvm"))?;
    let vm = kvm.create_vm().map_err(failed("no VM"))?;
    let memory = Page::new().ok_or("no memory")?;
    memory.write(CODE);
    let region = kvm_ioctls_region(memory.0 as u64);
    // SAFETY: the page stays mapped until the end of this function, and the VM with it.
    unsafe { vm.set_user_memory_region(region) }.map_err(failed("no guest memory"))?;
    let mut vcpu = vm.create_vcpu(0).map_err(failed("no vCPU"))?;
    let mut special = vcpu.get_sregs().map_err(failed("no registers"))?;
    special.cs.base = 0;
    special.cs.selector = 0;
    special.cr4 |= CR4_OSFXSR;
    vcpu.set_sregs(&special).map_err(failed("no registers"))?;
    let mut registers = vcpu.get_regs().map_err(failed("no registers"))?;
    registers.rip = 0;
    registers.rflags = 2;
    vcpu.set_regs(&registers).map_err(failed("no registers"))?;
    match vcpu.run().map_err(failed("a vCPU does not run"))? {
        VcpuExit::IoOut(0x80, [42]) => {}
        other => return Err(format!("a vCPU ran astray: {other:?}")),
    }
    match vcpu.run().map_err(failed("a vCPU does not run"))? {
        VcpuExit::Hlt => Ok(()),
        other => Err(format!("a vCPU ran astray: {other:?}")),
    }
}

fn kvm_ioctls_region(host: u64) -> kvm_bindings::kvm_userspace_memory_region {
    kvm_bindings::kvm_userspace_memory_region {
        slot: 0,
        guest_phys_addr: 0,
        memory_size: 4096,
        userspace_addr: host,
        flags: 0,
    }
}

/// One page of memory.
struct Page(*mut u8);

impl Page {
    fn new() -> Option<Self> {
        let (read, write) = (libc::PROT_READ, libc::PROT_WRITE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping at an address of the kernel's choice touches nobody else's.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, read | write, flags, -1, 0) };
        (at != libc::MAP_FAILED).then(|| Self(at.cast()))
    }

    fn write(&self, code: &[u8]) {
        assert!(code.len() <= 4096);
        // SAFETY: the mapping has 4096 bytes, and nobody else knows it yet.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), self.0, code.len()) };
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and is not used after this.
        unsafe { libc::munmap(self.0.cast(), 4096) };
    }
}
