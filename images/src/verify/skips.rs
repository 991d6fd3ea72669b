//! Which skips are allowed: in CI every skip must be listed with its reason.

use crate::tap::Tally;

/// Turns skips that are not listed into failures if `ci`. A list has one name per line and `#` comments.
pub fn apply(total: &mut Tally, ci: bool, list: &str) {
    if !ci {
        return;
    }
    let allowed: Vec<&str> = list
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|name| !name.is_empty())
        .collect();
    let (kept, refused): (Vec<_>, Vec<_>) =
        total.skipped.drain(..).partition(|(name, _)| allowed.contains(&name.as_str()));
    total.skipped = kept;
    total
        .failed
        .extend(refused.into_iter().map(|(name, reason)| format!("{name}: skipped without being allowed: {reason}")));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(names: &[&str]) -> Tally {
        let skipped = names.iter().map(|name| ((*name).to_owned(), "why".to_owned())).collect();
        Tally { skipped, ..Tally::default() }
    }

    #[test]
    fn only_listed_skips_pass_in_ci() {
        let mut tally = skipped(&["deny", "guest"]);
        apply(&mut tally, true, "# none\ndeny # not installed everywhere\n");
        assert_eq!((tally.skipped.len(), tally.failed.len()), (1, 1));
        let mut tally = skipped(&["guest"]);
        apply(&mut tally, false, "");
        assert_eq!((tally.skipped.len(), tally.failed.len()), (1, 0));
    }
}
