//! Where Debian packages come from.

use std::path::Path;

/// Debian's public mirror.
const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian";

/// The mirror.
pub struct Sources {
    mirror: String,
}

impl Sources {
    /// `$UMA_DEBIAN_MIRROR`, or the mirror of a Debian host, or the public one.
    pub fn find() -> Self {
        let chosen = std::env::var("UMA_DEBIAN_MIRROR").ok().filter(|mirror| !mirror.is_empty());
        let mirror = chosen.or_else(host_mirror).unwrap_or_else(|| DEFAULT_MIRROR.into());
        Self { mirror }
    }

    /// Its address.
    pub fn mirror(&self) -> &str {
        &self.mirror
    }

    /// Lines for apt.
    pub fn lines(&self) -> String {
        let mirror = &self.mirror;
        format!("deb {mirror} trixie main\ndeb {mirror} trixie-backports main\n")
    }
}

fn host_mirror() -> Option<String> {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    if !release.lines().any(|line| line == "ID=debian") {
        return None;
    }
    let mut texts = vec![std::fs::read_to_string("/etc/apt/sources.list").unwrap_or_default()];
    let parts = std::fs::read_dir(Path::new("/etc/apt/sources.list.d")).ok().into_iter().flatten().flatten();
    texts.extend(parts.filter_map(|part| std::fs::read_to_string(part.path()).ok()));
    texts.iter().find_map(|text| mirror_in(text))
}

/// The first address in a sources file that ends in `/debian`: one-line and deb822 style.
fn mirror_in(text: &str) -> Option<String> {
    let words = text.lines().filter(|line| !line.trim_start().starts_with('#')).flat_map(str::split_whitespace);
    let mut found = words
        .filter(|word| word.starts_with("http"))
        .map(|word| word.trim_end_matches('/'))
        .filter(|word| word.ends_with("/debian"));
    found.next().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_styles_of_sources() {
        let list = "# deb http://old/debian x main\ndeb [arch=amd64] https://mirror.example/debian/ bookworm main\n";
        assert_eq!(mirror_in(list).unwrap(), "https://mirror.example/debian");
        let deb822 = "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\n";
        assert_eq!(mirror_in(deb822).unwrap(), "http://mirror.example/debian");
        assert_eq!(mirror_in("deb http://x/debian-security trixie main"), None);
    }
}
