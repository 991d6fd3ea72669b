//! Entering a tree: as root, or as a user through a user namespace.

use crate::command::{output, succeeds};
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
    ///
    /// The user stays owner of what "root" makes, so homes that others may not enter are no obstacle. Everything in there dies
    /// with us: a change of user namespaces forgets the wish to die with the parent, therefore it is repeated after it.
    pub fn command(self) -> Command {
        let mut command = match self {
            Self::Root => Command::new("setpriv"),
            Self::User => {
                let mut command = Command::new("unshare");
                command.args(["--user", "--map-root-user", "--map-auto", "setpriv"]);
                command
            }
        };
        // Users of Debian do not have chroot, mount and others in their path.
        let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/bin:/bin".into());
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--mount-proc", "--pid", "--fork", "--kill-child"]);
        command
    }
}

/// Why namespaces are refused, and the command that helps.
fn diagnose(root: bool) -> (String, String) {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let uid = rustix::process::getuid().as_raw();
    let user = user_name(&read("/etc/passwd"), uid).unwrap_or_else(|| uid.to_string());
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
    if read("/proc/self/status").lines().any(|line| line.starts_with("NoNewPrivs:") && line.ends_with('1')) {
        // newuidmap and sudo are both powerless here.
        let command = "cargo demo, from a session that may (in a container: --security-opt no-new-privileges=false)";
        return ("this session may not gain privileges (no_new_privs)".into(), command.into());
    }
    if !succeeds(Command::new("sh").args(["-c", "command -v newuidmap"])) {
        return ("newuidmap is not installed".into(), "sudo apt-get install -y uidmap".into());
    }
    let has_range = |path| has_range(&read(path), &user, uid);
    if !has_range("/etc/subuid") || !has_range("/etc/subgid") {
        let command = format!("sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}");
        return (format!("{user} has no subordinate user ids"), command);
    }
    let as_root = r#"sudo env "PATH=$PATH" "HOME=$HOME" cargo demo"#;
    if !output(Command::new("unshare").arg("--help")).is_ok_and(|text| text.contains("--map-auto")) {
        return ("this host's unshare has no --map-auto (util-linux before 2.38)".into(), as_root.into());
    }
    ("user namespaces are refused".into(), as_root.into())
}

/// Name of a user in the text of /etc/passwd.
fn user_name(passwd: &str, uid: u32) -> Option<String> {
    let uid = uid.to_string();
    let lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.filter(|fields| fields.get(2) == Some(&uid.as_str())).find_map(|fields| fields.first().map(|n| n.to_string()))
}

/// Whether a user, by name or number, has subordinate ids in the text of /etc/subuid or /etc/subgid.
fn has_range(text: &str, user: &str, uid: u32) -> bool {
    let owner = |line: &str| line.split(':').next().is_some_and(|owner| owner == user || owner == uid.to_string());
    text.lines().any(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_their_ranges() {
        let passwd = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(user_name(passwd, 1000).unwrap(), "ann");
        assert_eq!(user_name(passwd, 1001), None);
        assert!(has_range("ann:100000:65536\n", "ann", 1000));
        assert!(has_range("1000:100000:65536\n", "ann", 1000));
        assert!(!has_range("anna:100000:65536\n", "ann", 1000));
    }
}
