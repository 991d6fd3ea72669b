//! `vhost-device-uma`: see `--help`.
fn main() {}
