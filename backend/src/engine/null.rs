//! An engine that does nothing: what a job costs around its kernel.

use super::{Engine, Outcome, Work};
use crate::mmu::View;
use uma_protocol::kernel::JobRequest;

/// Ends every job at its first step.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullEngine;

impl Engine for NullEngine {
    type Cursor = ();

    fn start(&self, _job: &JobRequest) {}

    fn step<V: View>(&self, _view: &V, _job: &JobRequest, _cursor: &mut (), _fuel: u32, _work: &mut Work) -> Outcome {
        Outcome::Done(0)
    }
}
