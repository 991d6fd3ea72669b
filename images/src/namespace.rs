//! Entering a tree: as root, or as a user through a user namespace.

use crate::command::succeeds;
use crate::error::Error;
use std::process::Command;

/// How this machine lets us act as root of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// We are root.
    Root,
    /// A user namespace maps us to root.
    User,
}

impl Entry {
    /// Finds out.
    ///
    /// # Errors
    /// [`Error::NoGuest`] naming the cause and the command that helps.
    pub fn find() -> Result<Self, Error> {
        let root = rustix::process::geteuid().is_root();
        let entry = if root { Self::Root } else { Self::User };
        if succeeds(entry.command().arg("true")) {
            return Ok(entry);
        }
        let (cause, command) = diagnose(root);
        Err(Error::NoGuest { cause, command })
    }

    /// A command that runs its further arguments in namespaces of its own: mounts, processes, and users if needed.
    pub fn command(self) -> Command {
        let mut command = Command::new("unshare");
        if self == Self::User {
            command.args(["--user", "--map-root-user", "--map-auto"]);
        }
        command.args(["--mount", "--pid", "--fork", "--kill-child"]);
        command
    }

    /// mmdebstrap's word for it.
    pub fn mode(self) -> &'static str {
        match self {
            Self::Root => "--mode=root",
            Self::User => "--mode=unshare",
        }
    }
}

/// Why namespaces are refused, and the command that helps.
fn diagnose(root: bool) -> (String, String) {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let user = std::env::var("USER").unwrap_or_else(|_| "your-user".into());
    if root {
        return (
            "root may not make namespaces here (a container without CAP_SYS_ADMIN?)".into(),
            "docker run --cap-add SYS_ADMIN --security-opt seccomp=unconfined …".into(),
        );
    }
    if read("/proc/sys/user/max_user_namespaces") == "0" {
        return ("user namespaces are switched off".into(), "sudo sysctl user.max_user_namespaces=10000".into());
    }
    if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
        let command = "sudo sysctl kernel.unprivileged_userns_clone=1";
        return ("users may not make user namespaces".into(), command.into());
    }
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
        let command = "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0";
        return ("AppArmor restricts user namespaces".into(), command.into());
    }
    if !succeeds(Command::new("sh").args(["-c", "command -v newuidmap"])) {
        return ("newuidmap is not installed".into(), "sudo apt-get install -y uidmap".into());
    }
    let has_range = read("/etc/subuid").lines().any(|line| line.starts_with(&format!("{user}:")));
    if !has_range {
        let command = format!("sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}");
        return (format!("{user} has no subordinate user ids"), command);
    }
    ("user namespaces are refused".into(), "sudo cargo demo".into())
}
