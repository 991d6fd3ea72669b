//! `cargo vm guest-tests`: the TAP programs, group by group.

use crate::error::Error;
use crate::guest::options::Options;
use crate::guest::run::{console_tail, Kit, Outcome};
use crate::tap::{parse, Line, Tally};
use std::time::Duration;

/// A group of tests that share a boot.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    name: String,
    tests: Vec<String>,
    memory: Option<String>,
    kernel: Option<String>,
    host: bool,
}

/// Runs every group that is for the kernel of this kit and whose name or tests match `filter`.
///
/// # Errors
/// If a guest can't be started.
pub fn run(kit: &Kit, usual: bool, filter: Option<&str>) -> Result<Tally, Error> {
    let mut tally = Tally::default();
    for group in list(kit)? {
        let wanted = match &group.kernel {
            Some(kernel) => kit.kernel.release.starts_with(kernel.as_str()),
            None => usual,
        };
        let matches = filter
            .is_none_or(|filter| group.name.contains(filter) || group.tests.iter().any(|test| test.contains(filter)));
        if wanted && matches {
            tally.merge(run_group(kit, &group, filter)?);
        }
    }
    Ok(tally)
}

/// The groups, as the guest program lists them; it runs here too.
fn list(kit: &Kit) -> Result<Vec<Group>, Error> {
    let program = kit.programs.iter().find(|path| path.ends_with("uma-test"));
    let Some(program) = program else { return Ok(Vec::new()) };
    let text = crate::command::output(std::process::Command::new(program).arg("--list"))?;
    Ok(groups(&text))
}

fn groups(text: &str) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for line in text.lines() {
        let mut fields = line.split('\t');
        let (Some(test), Some(name), needs) = (fields.next(), fields.next(), fields.next().unwrap_or("-")) else {
            continue;
        };
        let at = groups.iter().position(|group| group.name == name).unwrap_or_else(|| {
            let name = name.to_owned();
            groups.push(Group { name, tests: Vec::new(), memory: None, kernel: None, host: false });
            groups.len() - 1
        });
        let group = &mut groups[at];
        group.tests.push(test.into());
        for need in needs.split_whitespace() {
            match need.split_once('=') {
                Some(("memory", size)) => group.memory = Some(size.into()),
                Some(("kernel", version)) => group.kernel = Some(version.into()),
                _ => group.host |= need == "host",
            }
        }
    }
    groups
}

fn run_group(kit: &Kit, group: &Group, filter: Option<&str>) -> Result<Tally, Error> {
    let single: Vec<&str> = match filter {
        Some(filter) if !group.name.contains(filter) => {
            group.tests.iter().map(String::as_str).filter(|test| test.contains(filter)).collect()
        }
        _ => Vec::new(),
    };
    let command = if single.is_empty() {
        format!("uma-test --group {}", group.name)
    } else {
        format!("uma-test {}", single.join(" "))
    };
    println!("Guest tests, group {} on Linux {}", group.name, kit.kernel.release);
    let options = Options {
        device_memory: group.memory.clone().unwrap_or_else(|| "256M".into()),
        deadline: Duration::from_secs(900),
        reboot: group.host,
        ..Options::default()
    };
    let mut tally = Tally::default();
    let mut planned = None;
    let outcome = kit.run(&command, &options, |line| {
        println!("  {line}");
        match parse(line) {
            Line::Plan(count) => planned = Some(count),
            line => tally.add(&line),
        }
    })?;
    judge(group, outcome, planned, &mut tally);
    Ok(tally)
}

/// What the results alone do not show: a guest that died, tests that are missing, a kernel that complained.
fn judge(group: &Group, outcome: Outcome, planned: Option<u32>, tally: &mut Tally) {
    let name = format!("{} (group)", group.name);
    let what = if let Some(complaint) = outcome.complaint() {
        complaint
    } else if outcome.status.is_none() {
        "the guest ended without a result".into()
    } else if planned != Some(tally.total()) {
        format!("{} results of {planned:?} planned", tally.total())
    } else if !tally.failed.is_empty() {
        println!("{}", crate::error::describe(&outcome.failure("tests failed")));
        return;
    } else {
        return;
    };
    println!("{}", console_tail(&outcome.console));
    println!("{}", crate::error::describe(&outcome.failure(what)));
    tally.failed.push(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_a_list() {
        let groups = groups("a\tshared\t-\nb\tshared\t-\nc\tsmall\tmemory=64M\nd\tpause\thost\ne\told\tkernel=6.12\n");
        assert_eq!(groups.len(), 4);
        assert_eq!(groups[0].tests, ["a", "b"]);
        assert_eq!(groups[1].memory.as_deref(), Some("64M"));
        assert!(groups[2].host && !groups[0].host);
        assert_eq!(groups[3].kernel.as_deref(), Some("6.12"));
    }
}
