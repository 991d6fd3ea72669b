//! The adapter to the frontend: the one place that knows vhost-user.

mod activation;
mod backend;
mod transport;

pub use backend::{Backend, Memory};
