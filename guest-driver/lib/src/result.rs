//! How a job ended.

use crate::{sys, Access, Error, FaultCause, FaultResult, Result, Status};
use std::time::Duration;

/// The end of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobResult {
    /// How it ended.
    pub status: Status,
    /// With [`Status::Fault`]: the access that could not be served.
    pub fault: Option<FaultDetail>,
    /// Execution unit that ran the last step.
    pub eu: u16,
    /// Steps done.
    pub steps: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Times that the job was parked on a fault.
    pub faults: u64,
    /// Time that execution units spent on it.
    pub device_time: Duration,
    /// The result as bits: the sum of REDUCE and DOT, exchanges of CAS, the last pointer of CHASE.
    pub bits: u64,
}

/// A fault that ended a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultDetail {
    /// The page.
    pub va: u64,
    /// What the job wanted there.
    pub access: Access,
    /// Why the translation failed.
    pub cause: FaultCause,
    /// What the driver answered; `None` for causes that are not asked about.
    pub result: Option<FaultResult>,
}

impl JobResult {
    pub(crate) fn from_raw(raw: &sys::Wait) -> Result<Self> {
        let unknown = |what, value| Error::Unknown { what, value };
        let status = Status::from_code(raw.status).ok_or(unknown("job status", raw.status.into()))?;
        let fault = match status {
            Status::Fault => Some(FaultDetail {
                va: raw.fault_va,
                access: Access::from_bits_retain(raw.fault_access),
                cause: FaultCause::from_code(raw.fault_cause).ok_or(unknown("fault cause", raw.fault_cause.into()))?,
                result: FaultResult::from_code(raw.fault_result.into()).filter(|result| *result != FaultResult::Retry),
            }),
            _ => None,
        };
        Ok(Self {
            status,
            fault,
            eu: raw.eu,
            steps: raw.steps,
            bytes: raw.bytes,
            faults: raw.faults,
            device_time: Duration::from_nanos(raw.device_ns),
            bits: raw.result,
        })
    }

    /// Itself if the job ended with success.
    ///
    /// # Errors
    /// [`Error::Job`] with any other status.
    pub fn ok(self) -> Result<Self> {
        match self.status {
            Status::Ok => Ok(self),
            _ => Err(Error::Job(Box::new(self))),
        }
    }
}
