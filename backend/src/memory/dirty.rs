//! Dirty log for live migration.
