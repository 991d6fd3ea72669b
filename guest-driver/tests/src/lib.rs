//! What runs inside a guest to show (`uma-demo`) and to prove (`uma-test`) that the device works.
//!
//! A test is a function over a [`Fixture`]; it panics when something is wrong. Each runs in a process of its own, so
//! that a crash or a hang is that test's failure, and so that a process's end is part of what is tested. `cases` holds
//! the tests by topic, `runner` turns them into TAP.

pub mod cases;
pub mod fixture;
pub mod host;
pub mod kmod;
pub mod memory;
pub mod process;
pub mod reference;
pub mod runner;
pub mod tap;

pub use fixture::Fixture;

/// Where the device is.
pub const DEVICE: &str = "/dev/uma0";

/// One test.
#[derive(Clone, Copy)]
pub struct Test {
    /// Its name.
    pub name: &'static str,
    /// Tests of group `shared` run in one boot; any other group gets a boot of its own.
    pub group: &'static str,
    /// What the boot has to offer: words such as `memory=64M` (size of device memory), `host` (someone answers on the
    /// serial line), `kernel=6.12`; `-` for nothing.
    pub needs: &'static str,
    /// The code; panics on failure.
    pub run: Code,
}

/// Code of a test.
#[derive(Clone, Copy)]
pub enum Code {
    /// Over a fixture, with the balance checked at the end.
    Fixture(fn(&Fixture)),
    /// On its own, for tests in which the device goes away.
    Bare(fn()),
}

impl Test {
    /// A test that shares its boot with others.
    pub const fn shared(name: &'static str, run: fn(&Fixture)) -> Self {
        Self { name, group: "shared", needs: "-", run: Code::Fixture(run) }
    }

    /// A test with a boot of its own for its group.
    pub const fn in_group(name: &'static str, group: &'static str, needs: &'static str, run: Code) -> Self {
        Self { name, group, needs, run }
    }
}
