//! Making the tree with mmdebstrap.

use super::sources::Sources;
use crate::cache::Cache;
use crate::command::{die_with_us, output, tail};
use crate::error::Error;
use crate::namespace::Entry;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The key that signs trixie (Debian Archive Automatic Signing Key 13).
const FINGERPRINT: &str = "04B54C3CDCA79751B16BC6B5225629DF75B188BD";

/// Also installs image and headers of the stable suite's kernel: the oldest that the meta packages name.
const STABLE_KERNEL: &str = r#"set -e
for kind in image headers; do
  name=$(apt-cache show "linux-$kind-cloud-amd64" | sed -n "s/^Depends: .*\(linux-$kind-[0-9][^ ,]*\).*/\1/p" | sort -V | head -n1)
  set -- "$@" "$name"
done
apt-get install -y --no-install-recommends "$@"
dpkg-query -W > /versions.lock
"#;

/// Makes the tree under `name`.
///
/// # Errors
/// [`Error::NoGuest`] where it can't be made; otherwise what went wrong.
pub fn make(cache: &Cache, sources: &Sources, packages: &[&str], name: &str) -> Result<(), Error> {
    let entry = Entry::find()?;
    println!("Fetching a Debian tree with QEMU and kernels (about 400 MB, once; kept in {})", cache.path("").display());
    let tools = cache.scratch("tools")?;
    let program = mmdebstrap(&tools)?;
    let list = tools.join("sources.list");
    let text = match keyring(&tools)? {
        Some(keyring) => sources.lines().replace("deb ", &format!("deb [signed-by={}] ", keyring.display())),
        None => sources.lines(),
    };
    std::fs::write(&list, text).map_err(Error::io("write", &list))?;
    let root = cache.scratch("tree")?;
    let hook = format!("chroot \"$1\" sh -c '{}'", STABLE_KERNEL.replace('\'', "'\\''"));
    let mut command = program;
    command
        .arg(entry.mode())
        .args(["--variant=apt", "--skip=check/qemu"])
        .arg("--aptopt=APT::Default-Release \"trixie-backports\"")
        .arg("--aptopt=APT::Install-Recommends \"false\"")
        .arg(format!("--include={}", packages.join(",")))
        .arg(format!("--customize-hook={hook}"))
        .arg("trixie")
        .arg(&root)
        .arg(&list);
    stream(die_with_us(&mut command))?;
    cache.publish(&root, name)?;
    Ok(())
}

/// mmdebstrap of the host, or its package unpacked: it is a script and runs from anywhere.
fn mmdebstrap(tools: &Path) -> Result<Command, Error> {
    if crate::command::succeeds(Command::new("mmdebstrap").arg("--version")) {
        return Ok(Command::new("mmdebstrap"));
    }
    println!("  mmdebstrap is not installed: taking it from its package");
    let root = unpack(tools, "mmdebstrap")?;
    let mut command = Command::new("perl");
    command.arg(root.join("usr/bin/mmdebstrap"));
    Ok(command)
}

/// A keyring that knows trixie, if the host's apt does not by itself.
fn keyring(tools: &Path) -> Result<Option<PathBuf>, Error> {
    let names = ["debian-archive-trixie-automatic.gpg", "debian-archive-trixie-automatic.pgp"];
    let find = |folder: &Path| names.iter().map(|name| folder.join(name)).find(|path| path.exists());
    if let Some(path) = find(Path::new("/usr/share/keyrings")) {
        return Ok(Some(path));
    }
    println!("  this host does not know trixie's key: taking debian-archive-keyring");
    let root = unpack(tools, "debian-archive-keyring")?;
    let missing = || Error::NoGuest {
        cause: "this host's debian-archive-keyring does not know Debian 13".into(),
        command: "sudo apt-get update && sudo apt-get install -y debian-archive-keyring".into(),
    };
    let path = find(&root.join("usr/share/keyrings")).ok_or_else(missing)?;
    let shown = output(Command::new("gpg").args(["--show-keys", "--with-colons"]).arg(&path))?;
    if !shown.contains(FINGERPRINT) {
        return Err(missing());
    }
    Ok(Some(path))
}

/// Downloads a package with the host's apt and unpacks it; needs no root.
fn unpack(tools: &Path, package: &str) -> Result<PathBuf, Error> {
    let folder = tools.join(package);
    std::fs::create_dir_all(&folder).map_err(Error::io("make", &folder))?;
    let download = || output(Command::new("apt-get").args(["download", package]).current_dir(&folder));
    if download().is_err() {
        // A machine that never ran `apt-get update` finds nothing; users can't run it.
        let updated = output(Command::new("apt-get").args(["update", "-q"]));
        download().map_err(|error| match updated {
            Ok(_) => error,
            Err(_) => Error::NoGuest {
                cause: format!("apt does not know the package {package}"),
                command: "sudo apt-get update".into(),
            },
        })?;
    }
    let archive = std::fs::read_dir(&folder)
        .map_err(Error::io("read", &folder))?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .unwrap_or_else(|| folder.join("none.deb"));
    let root = folder.join("root");
    output(Command::new("dpkg-deb").arg("-x").arg(archive).arg(&root))?;
    Ok(root)
}

/// Shows mmdebstrap's stages as they come, with the time.
fn stream(command: &mut Command) -> Result<(), Error> {
    let begin = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| Error::Start { program: "mmdebstrap".into(), source })?;
    let mut all = String::new();
    let lines = child.stderr.take().map(|pipe| BufReader::new(pipe).lines()).into_iter().flatten();
    for line in lines.map_while(Result::ok) {
        if let Some(stage) = line.strip_prefix("I: ") {
            println!("  {:3} s  {stage}", begin.elapsed().as_secs());
        }
        all.push_str(&line);
        all.push('\n');
    }
    let status = child.wait().map_err(|source| Error::Start { program: "mmdebstrap".into(), source })?;
    if !status.success() {
        let output = tail(&all, 30);
        return Err(Error::Failed { program: "mmdebstrap".into(), status: status.to_string(), output });
    }
    Ok(())
}
