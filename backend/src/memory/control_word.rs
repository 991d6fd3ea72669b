//! Control data: atomics in guest memory, each field read once.
