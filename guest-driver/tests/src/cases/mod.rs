//! The tests by topic.

use crate::Test;

mod access;
mod advice;
mod coherence;
mod jobs;
mod kernels;
mod lifecycle;
mod old_kernel;
mod prefetch;
mod pressure;
mod processes;
mod uapi;
mod userfault;
mod vma;

/// Every test.
pub fn all() -> Vec<Test> {
    let topics: &[&[Test]] = &[
        access::TESTS,
        kernels::TESTS,
        jobs::TESTS,
        coherence::TESTS,
        processes::TESTS,
        prefetch::TESTS,
        advice::TESTS,
        vma::TESTS,
        userfault::TESTS,
        uapi::TESTS,
        pressure::TESTS,
        lifecycle::TESTS,
        old_kernel::TESTS,
    ];
    topics.concat()
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_unique_and_words() {
        let mut names: Vec<&str> = super::all().iter().map(|test| test.name).collect();
        assert!(names
            .iter()
            .all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')));
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
