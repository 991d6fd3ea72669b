//! Guest memory as the device sees it, and all `unsafe` that touches it.
//!
//! Two ways only (docs/architecture.md, rule 3): *control data* through [`control_word`], each field read once as an
//! atomic; *bulk data* through [`bulk`], by raw pointers and never by a reference.

pub mod bulk;
pub mod control_word;
pub mod dirty;
pub mod regions;
pub mod sigbus;
mod span;

pub use control_word::ControlPage;
pub use regions::{GuestMemory, GuestRegion, RegionTable};
pub use span::Span;
