//! The real daemon against a real vhost-user frontend over a socket, without a VM.

mod basics;
mod daemon;
mod driver;
mod jobs;
mod malformed;
mod sessions;
mod vm;
