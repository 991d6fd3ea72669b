//! Which QEMU, and its command line.

use crate::command::output;
use crate::error::Error;
use crate::kvm;
use crate::tree::Tree;
use std::process::Command;
use std::sync::OnceLock;

/// The oldest QEMU whose test device works.
const OLDEST: (u32, u32) = (11, 1);
/// Its name.
const DEVICE: &str = "vhost-user-test-device-pci";

/// A QEMU that can have the device.
#[derive(Clone, Debug)]
pub struct Qemu {
    host: bool,
    /// As `--version` says.
    pub version: String,
}

impl Qemu {
    /// The host's if it is suitable, otherwise the tree's.
    ///
    /// # Errors
    /// If the tree's does not run.
    pub fn find(tree: &Tree) -> Result<Self, Error> {
        let host = || Command::new("qemu-system-x86_64");
        let suitable = output(host().arg("--version"))
            .ok()
            .and_then(|text| parse(&text))
            .filter(|(_, version)| *version >= OLDEST);
        if let Some((version, _)) = suitable {
            if output(host().args(["-device", "help"])).is_ok_and(|text| text.contains(DEVICE)) {
                return Ok(Self { host: true, version });
            }
        }
        let text = output(tree.program("usr/bin/qemu-system-x86_64").arg("--version"))?;
        let version = parse(&text).map_or_else(|| "of unknown version".into(), |(version, _)| version);
        Ok(Self { host: false, version })
    }

    /// The program, without arguments but where its files are.
    pub fn command(&self, tree: &Tree) -> Command {
        if self.host {
            return Command::new("qemu-system-x86_64");
        }
        let mut command = tree.program("usr/bin/qemu-system-x86_64");
        for folder in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(tree.path().join(folder));
        }
        command
    }

    /// Acceleration: KVM if it really runs guests. Says once why not.
    pub fn accel() -> [&'static str; 4] {
        static REFUSAL: OnceLock<Option<String>> = OnceLock::new();
        let refusal = REFUSAL.get_or_init(|| {
            let refusal = kvm::refusal();
            match &refusal {
                Some(why) => eprintln!("KVM is not used ({why}): the guest is emulated, which is some 50 times slower"),
                None => eprintln!("KVM runs guests here"),
            }
            refusal
        });
        match refusal {
            None => ["-accel", "kvm", "-cpu", "host"],
            Some(_) => ["-accel", "tcg,thread=multi", "-cpu", "max"],
        }
    }
}

/// Version text and numbers of `QEMU emulator version 11.1.3 (…)`.
fn parse(text: &str) -> Option<(String, (u32, u32))> {
    let version = text.split("version ").nth(1)?.split_whitespace().next()?.to_owned();
    let mut numbers = version.split('.').map_while(|part| part.parse().ok());
    let pair = (numbers.next()?, numbers.next()?);
    Some((version, pair))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        let text = "QEMU emulator version 11.1.3 (Debian 1:11.1.3+ds-2)\nCopyright";
        assert_eq!(parse(text).unwrap(), ("11.1.3".into(), (11, 1)));
        assert_eq!(parse("nonsense"), None);
    }
}
