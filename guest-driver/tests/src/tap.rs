//! TAP version 13, the format of the results.

use std::io::{self, Write};

/// How one test went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It passed.
    Ok,
    /// It could not run here; the reason.
    Skipped(String),
    /// It failed; what to know about it, line by line.
    Failed(String),
}

/// Writes results as they come.
#[derive(Debug)]
pub struct Tap<W> {
    out: W,
    number: usize,
    failed: usize,
}

impl<W: Write> Tap<W> {
    /// Begins a report of `planned` tests.
    ///
    /// # Errors
    /// Those of the writer; so do the others.
    pub fn begin(mut out: W, planned: usize) -> io::Result<Self> {
        writeln!(out, "TAP version 13\n1..{planned}")?;
        out.flush()?;
        Ok(Self { out, number: 0, failed: 0 })
    }

    /// Reports one test.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn report(&mut self, name: &str, outcome: &Outcome) -> io::Result<()> {
        self.number += 1;
        match outcome {
            Outcome::Ok => writeln!(self.out, "ok {} - {name}", self.number)?,
            Outcome::Skipped(reason) => writeln!(self.out, "ok {} - {name} # SKIP {reason}", self.number)?,
            Outcome::Failed(detail) => {
                self.failed += 1;
                writeln!(self.out, "not ok {} - {name}", self.number)?;
                for line in detail.lines() {
                    writeln!(self.out, "# {line}")?;
                }
            }
        }
        self.out.flush()
    }

    /// Tests that failed so far.
    pub fn failed(&self) -> usize {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_plan_numbers_and_diagnostics() {
        let mut bytes = Vec::new();
        let mut tap = Tap::begin(&mut bytes, 3).unwrap();
        tap.report("a", &Outcome::Ok).unwrap();
        tap.report("b", &Outcome::Skipped("no hugetlbfs".into())).unwrap();
        tap.report("c", &Outcome::Failed("one\ntwo".into())).unwrap();
        assert_eq!(tap.failed(), 1);
        let text = "TAP version 13\n1..3\nok 1 - a\nok 2 - b # SKIP no hugetlbfs\nnot ok 3 - c\n# one\n# two\n";
        assert_eq!(String::from_utf8(bytes).unwrap(), text);
    }
}
