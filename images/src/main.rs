//! Placeholder until the images work lands.
fn main() {}
