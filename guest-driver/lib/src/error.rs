//! What can go wrong.

use crate::result::JobResult;
use crate::{FaultCause, Status};
use std::io;
use std::path::PathBuf;

/// Result of a call of this library.
pub type Result<T> = std::result::Result<T, Error>;

/// A call that failed, or a job that did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device file can't be opened.
    #[error("Cannot open {path}", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The driver refused a call.
    #[error("The driver refused {call}")]
    Call {
        /// Name of the ioctl, as in `uma.h`.
        call: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The job ended, but not with success.
    #[error("The job ended with {name}: {text}{detail}", name = .0.status.name(), text = .0.status.text(), detail = detail(.0))]
    Job(Box<JobResult>),
    /// The job is still running.
    #[error("The job is still running")]
    Running,
    /// The driver reported something that this library does not know.
    #[error("The driver reported an unknown {what}: {value}")]
    Unknown {
        /// Kind of value.
        what: &'static str,
        /// The value.
        value: u64,
    },
    /// Slices that a kernel combines differ in length.
    #[error("Slices of {left} and {right} elements do not fit together")]
    Shape {
        /// Length of one.
        left: usize,
        /// Length of the other.
        right: usize,
    },
}

fn detail(result: &JobResult) -> String {
    result.fault.as_ref().map_or_else(String::new, |fault| {
        let cause = match fault.cause {
            FaultCause::NotPresent => "not present",
            FaultCause::NotPermitted => "not permitted",
            FaultCause::BadAddress => "bad address",
            FaultCause::BadEntry => "bad table entry",
            FaultCause::BadFrame => "bad frame",
            FaultCause::AtomicDenied => "no atomics there",
            FaultCause::MemoryError => "memory error",
        };
        format!(" (page {:#x}, access {:?}, {cause}, {:?})", fault.va, fault.access, fault.result)
    })
}

impl Error {
    /// The errno behind the error, if there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Open { source, .. } | Self::Call { source, .. } => source.raw_os_error(),
            Self::Job(result) => Some(result.status.errno()),
            Self::Running => Some(libc::ETIME),
            Self::Unknown { .. } | Self::Shape { .. } => None,
        }
    }

    /// The status of the job, if it is the job that failed.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Job(result) => Some(result.status),
            _ => None,
        }
    }
}
