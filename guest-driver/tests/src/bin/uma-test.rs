//! The tests of a guest with a virtio-uma device. Writes TAP 13.

use std::process::ExitCode;
use uma_guest_tests::{cases, runner, Test};

const USAGE: &str = "usage: uma-test --list | --group NAME | TEST...";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let tests = cases::all();
    match words.as_slice() {
        ["--list"] => {
            for test in tests {
                println!("{}\t{}\t{}", test.name, test.group, test.needs);
            }
            ExitCode::SUCCESS
        }
        ["--here", name] => match tests.iter().find(|test| test.name == *name) {
            Some(test) => {
                runner::run_here(test);
                ExitCode::SUCCESS
            }
            None => refuse(&format!("There is no test {name}")),
        },
        ["--group", group] => run(&tests.iter().filter(|test| test.group == *group).collect::<Vec<_>>()),
        [] => refuse(USAGE),
        [first, ..] if first.starts_with('-') => refuse(USAGE),
        names => {
            let known = |name: &&str| tests.iter().find(|test| test.name == *name);
            match names.iter().find(|name| known(name).is_none()) {
                Some(name) => refuse(&format!("There is no test {name}")),
                None => run(&names.iter().filter_map(known).collect::<Vec<_>>()),
            }
        }
    }
}

fn run(tests: &[&Test]) -> ExitCode {
    if tests.is_empty() {
        return refuse("No such group");
    }
    match runner::run(tests, std::io::stdout()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            println!("Bail out! {error}");
            ExitCode::FAILURE
        }
    }
}

fn refuse(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(2)
}
