//! Making the tree with mmdebstrap.

use super::sources::Sources;
use crate::cache::Cache;
use crate::command::{die_with_us, output, succeeds, tail};
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
unset TMPDIR
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
    needs_apt()?;
    let entry = Entry::find()?;
    eprintln!(
        "Fetching a Debian tree with QEMU and kernels (about 400 MB, once; kept in {})",
        cache.path("").display()
    );
    let tools = cache.scratch("tools")?;
    let program = mmdebstrap(&tools)?;
    eprintln!("  packages come from {}", sources.mirror());
    let list = tools.join("sources.list");
    let text = match keyring(&tools, sources)? {
        Some(keyring) => sources.lines().replace("deb ", &format!("deb [signed-by={}] ", keyring.display())),
        None => sources.lines(),
    };
    std::fs::write(&list, text).map_err(Error::io("write", &list))?;
    let root = cache.scratch("tree")?;
    let hook = format!("chroot \"$1\" sh -c '{}'", STABLE_KERNEL.replace('\'', "'\\''"));
    let mut command = entry.command();
    command
        // Nobody boots the initramfs that the kernels' packages would make; it takes longer than all the rest.
        .args(["env", "INITRD=No"])
        // What it leaves when it is killed is then in the cache, where the next run removes it.
        .arg(format!("TMPDIR={}", tools.display()))
        .args(program)
        // We are root of our namespaces. mmdebstrap's own mode for users would need a home that others may enter.
        .args(["--mode=root", "--variant=apt", "--skip=check/qemu"])
        .arg("--aptopt=APT::Default-Release \"trixie-backports\"")
        .arg("--aptopt=APT::Install-Recommends \"false\"")
        // dpkg waits for the disk after each file; once at the end is enough.
        .arg("--dpkgopt=force-unsafe-io")
        .arg(format!("--include={}", packages.join(",")))
        .arg(format!("--customize-hook={hook}"))
        .arg("trixie")
        .arg(&root)
        .arg(&list);
    stream(die_with_us(&mut command).stdin(cache.lock_as_input()?), sources)?;
    let written = std::fs::File::open(&root).and_then(|folder| Ok(rustix::fs::syncfs(folder)?));
    written.map_err(Error::io("write", &root))?;
    cache.publish(&root, name)?;
    Ok(())
}

/// The tree is made of Debian packages by the host's apt.
fn needs_apt() -> Result<(), Error> {
    let missing =
        ["apt-get", "dpkg-deb", "perl"].into_iter().find(|program| !succeeds(Command::new(program).arg("--version")));
    match missing {
        None => Ok(()),
        Some(program) => Err(Error::NoGuest {
            cause: format!("{program} is not there, and this host is not a Debian or Ubuntu"),
            command: "docker run --rm -it --privileged -v \"$PWD:$PWD\" -w \"$PWD\" rust:trixie cargo demo".into(),
        }),
    }
}

/// mmdebstrap of the host, or its package unpacked: it is a script and runs from anywhere.
fn mmdebstrap(tools: &Path) -> Result<Vec<PathBuf>, Error> {
    if succeeds(Command::new("mmdebstrap").arg("--version")) {
        return Ok(vec!["mmdebstrap".into()]);
    }
    eprintln!("  mmdebstrap is not installed: taking it from its package");
    let root = unpack(tools, "mmdebstrap", &[])?;
    Ok(vec!["perl".into(), root.join("usr/bin/mmdebstrap")])
}

/// A keyring that knows trixie, if the host's apt does not by itself.
///
/// Ubuntu's package of Debian's keys is older than trixie. Then the mirror's own package is taken, unchecked by apt: what makes it
/// trustworthy is that only the one key of the right fingerprint goes into the keyring.
fn keyring(tools: &Path, sources: &Sources) -> Result<Option<PathBuf>, Error> {
    if let Some(path) = trixie_key(Path::new("/usr/share/keyrings")) {
        return Ok(Some(path));
    }
    eprintln!("  this host does not know trixie's key: taking debian-archive-keyring from {}", sources.mirror());
    let options = private_apt(tools, sources)?;
    let root = unpack(tools, "debian-archive-keyring", &options)?;
    let found = trixie_key(&root.join("usr/share/keyrings"));
    let path = found.ok_or_else(|| fetching(sources, "debian-archive-keyring has no key of trixie"))?;
    if !succeeds(Command::new("gpg").arg("--version")) {
        return Err(Error::NoGuest {
            cause: "gpg, which checks the fingerprint of trixie's key, is not installed".into(),
            command: "sudo apt-get install -y gpg".into(),
        });
    }
    let shown = output(Command::new("gpg").args(["--batch", "--show-keys", "--with-colons"]).arg(&path))?;
    if primary_keys(&shown) != [FINGERPRINT] {
        return Err(fetching(sources, "the key there is not trixie's"));
    }
    Ok(Some(path))
}

/// The file with trixie's key in a folder of keyrings.
fn trixie_key(folder: &Path) -> Option<PathBuf> {
    let names = ["debian-archive-trixie-automatic.gpg", "debian-archive-trixie-automatic.pgp"];
    names.iter().map(|name| folder.join(name)).find(|path| path.exists())
}

/// Fingerprints of all primary keys that gpg shows.
fn primary_keys(shown: &str) -> Vec<&str> {
    let mut primary = false;
    let mut found = Vec::new();
    for line in shown.lines() {
        let fields: Vec<_> = line.split(':').collect();
        match fields[0] {
            "fpr" if primary => found.extend(fields.get(9)),
            "pub" => primary = true,
            "sub" => primary = false,
            _ => {}
        }
    }
    found
}

/// Options that let apt know the mirror and nothing else, with state of its own; needs no root.
fn private_apt(tools: &Path, sources: &Sources) -> Result<Vec<String>, Error> {
    let folder = tools.join("apt");
    for part in ["state/lists/partial", "cache/archives/partial", "etc"] {
        let path = folder.join(part);
        std::fs::create_dir_all(&path).map_err(Error::io("make", &path))?;
    }
    let list = folder.join("etc/sources.list");
    let text = format!("deb [trusted=yes] {} trixie main\n", sources.mirror());
    std::fs::write(&list, text).map_err(Error::io("write", &list))?;
    let folder = folder.display();
    let options: Vec<_> = [
        format!("Dir::State={folder}/state"),
        "Dir::State::status=/dev/null".into(),
        format!("Dir::Cache={folder}/cache"),
        format!("Dir::Etc::sourcelist={folder}/etc/sources.list"),
        "Dir::Etc::sourceparts=-".into(),
        "Acquire::AllowInsecureRepositories=true".into(),
        "APT::Sandbox::User=".into(),
    ]
    .into_iter()
    .flat_map(|option| ["-o".to_owned(), option])
    .collect();
    output(Command::new("apt-get").args(&options).args(["update", "-q"]))
        .map_err(|error| fetching(sources, &crate::error::describe(&error)))?;
    Ok(options)
}

/// Downloads a package with the host's apt and unpacks it; needs no root.
fn unpack(tools: &Path, package: &str, options: &[String]) -> Result<PathBuf, Error> {
    let folder = tools.join(package);
    std::fs::create_dir_all(&folder).map_err(Error::io("make", &folder))?;
    let download = || output(Command::new("apt-get").args(options).args(["download", package]).current_dir(&folder));
    if download().is_err() {
        // A machine that never ran `apt-get update` finds nothing; users can't run it.
        let updated = output(Command::new("apt-get").args(["update", "-q"]));
        download().map_err(|_| Error::NoGuest {
            cause: match updated {
                Ok(_) => format!("apt can't fetch the package {package} (no network?)"),
                Err(_) => format!("apt can't fetch the package {package}"),
            },
            command: format!("sudo apt-get update && sudo apt-get install -y {package}"),
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
fn stream(command: &mut Command, sources: &Sources) -> Result<(), Error> {
    let begin = Instant::now();
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| Error::Start { program: "mmdebstrap".into(), source })?;
    let mut all = String::new();
    let lines = child.stderr.take().map(|pipe| BufReader::new(pipe).lines()).into_iter().flatten();
    for line in lines.map_while(Result::ok) {
        if let Some(stage) = line.strip_prefix("I: ") {
            let stage = if stage.contains("--customize-hook") { "installing trixie's own kernel..." } else { stage };
            eprintln!("  {:3} s  {stage}", begin.elapsed().as_secs());
        }
        all.push_str(&line);
        all.push('\n');
    }
    let status = child.wait().map_err(|source| Error::Start { program: "mmdebstrap".into(), source })?;
    if status.success() {
        return Ok(());
    }
    if let Some(line) = network_trouble(&all) {
        return Err(fetching(sources, line));
    }
    Err(Error::Failed { program: "mmdebstrap".into(), status: status.to_string(), output: tail(&all, 30) })
}

/// The first line in which apt says that the network or the mirror is at fault.
fn network_trouble(text: &str) -> Option<&str> {
    const SIGNS: &[&str] = &[
        "Could not resolve",
        "Temporary failure resolving",
        "Could not connect",
        "Unable to connect",
        "Failed to fetch",
    ];
    text.lines().map(str::trim).find(|line| SIGNS.iter().any(|sign| line.contains(sign)))
}

/// Packages that can't be had.
fn fetching(sources: &Sources, why: &str) -> Error {
    let why = network_trouble(why).unwrap_or_else(|| why.lines().next().unwrap_or_default());
    Error::NoGuest {
        cause: format!("no packages from {}: {why}", sources.mirror()),
        command: "UMA_DEBIAN_MIRROR=http://another.mirror/debian cargo demo".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_primary_keys_count() {
        let one = "pub:-:4096:1:X:1:::-:::scSC::::::23::0:\nrvk:::1::::::DDDD:80:\nfpr:::::::::AAAA:\nuid:-::::1::H::Name:\nsub:-:4096\nfpr:::::::::BBBB:\n";
        assert_eq!(primary_keys(one), ["AAAA"]);
        let two = format!("{one}pub:-:4096\nfpr:::::::::CCCC:\n");
        assert_eq!(primary_keys(&two), ["AAAA", "CCCC"]);
    }

    #[test]
    fn trouble_with_the_network_is_recognised() {
        let text =
            "I: running apt-get update...\nErr:1 http://x trixie InRelease\n  Could not resolve 'x'\nE: failed\n";
        assert_eq!(network_trouble(text), Some("Could not resolve 'x'"));
        assert_eq!(network_trouble("E: no space left on device"), None);
    }
}
