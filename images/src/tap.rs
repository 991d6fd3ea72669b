//! The Test Anything Protocol, as far as `uma-test` speaks it.

/// One line of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// `1..N`.
    Plan(u32),
    /// A test that passed.
    Ok(String),
    /// A test that failed.
    NotOk(String),
    /// A test that was skipped, with its reason.
    Skip(String, String),
    /// Anything else.
    Other,
}

/// Reads one line.
pub fn parse(line: &str) -> Line {
    if let Some(count) = line.strip_prefix("1..").and_then(|count| count.trim().parse().ok()) {
        return Line::Plan(count);
    }
    let (ok, rest) = match (line.strip_prefix("ok "), line.strip_prefix("not ok ")) {
        (Some(rest), _) => (true, rest),
        (_, Some(rest)) => (false, rest),
        _ => return Line::Other,
    };
    let name = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches([' ', '-']);
    if let Some((name, reason)) = name.split_once("# SKIP") {
        return Line::Skip(name.trim().into(), reason.trim().into());
    }
    let name = name.trim().to_owned();
    if ok {
        Line::Ok(name)
    } else {
        Line::NotOk(name)
    }
}

/// A count of results.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Tests that passed.
    pub passed: u32,
    /// Names of those that failed.
    pub failed: Vec<String>,
    /// Names and reasons of those that were skipped.
    pub skipped: Vec<(String, String)>,
}

impl Tally {
    /// Takes a line.
    pub fn add(&mut self, line: &Line) {
        match line {
            Line::Ok(_) => self.passed += 1,
            Line::NotOk(name) => self.failed.push(name.clone()),
            Line::Skip(name, reason) => self.skipped.push((name.clone(), reason.clone())),
            Line::Plan(_) | Line::Other => {}
        }
    }

    /// Results so far.
    pub fn total(&self) -> u32 {
        self.passed + (self.failed.len() + self.skipped.len()) as u32
    }

    /// Takes another count in.
    pub fn merge(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
        self.skipped.extend(other.skipped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert_eq!(parse("1..12"), Line::Plan(12));
        assert_eq!(parse("ok 3 - kernel_fill"), Line::Ok("kernel_fill".into()));
        assert_eq!(parse("not ok 4 - kernel_copy"), Line::NotOk("kernel_copy".into()));
        assert_eq!(parse("ok 5 - hugetlb # SKIP no pages"), Line::Skip("hugetlb".into(), "no pages".into()));
        assert_eq!(parse("# a remark"), Line::Other);
        assert_eq!(parse("TAP version 13"), Line::Other);
    }

    #[test]
    fn counts() {
        let mut tally = Tally::default();
        for line in ["ok 1 - a", "not ok 2 - b", "ok 3 - c # SKIP d"] {
            tally.add(&parse(line));
        }
        assert_eq!((tally.passed, tally.failed.len(), tally.skipped.len(), tally.total()), (1, 1, 1, 3));
    }
}
