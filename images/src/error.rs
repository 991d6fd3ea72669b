//! What can go wrong, with what helps.

use std::path::PathBuf;
use thiserror::Error;

/// Errors of `uma-vm`.
#[derive(Debug, Error)]
pub enum Error {
    /// No guest can be had on this machine as it is; exit status 2.
    #[error("No guest here: {cause}; this helps: {command}")]
    NoGuest {
        /// Why.
        cause: String,
        /// The one command that helps.
        command: String,
    },
    /// Something of the file system.
    #[error("Cannot {what} {path:?}")]
    Io {
        /// Verb.
        what: &'static str,
        /// What it is about.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A program can't be started.
    #[error("Cannot start {program}")]
    Start {
        /// Its name.
        program: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A program failed.
    #[error("{program} failed with {status}\n{output}")]
    Failed {
        /// Its name.
        program: String,
        /// How it ended.
        status: String,
        /// The end of what it printed.
        output: String,
    },
    /// The compiler warned about the module.
    #[error("The module build for {kernel} printed warnings:\n{output}")]
    Warnings {
        /// Kernel release.
        kernel: String,
        /// All of them.
        output: String,
    },
    /// A kernel that is not in the tree.
    #[error("No kernel {wanted} in the tree, only {have}")]
    NoKernel {
        /// As asked for.
        wanted: String,
        /// What there is.
        have: String,
    },
    /// The guest did not do what it should.
    #[error("{what}; artefacts are in {artefacts:?}")]
    Guest {
        /// What happened.
        what: String,
        /// Console, daemon log, command lines.
        artefacts: PathBuf,
    },
}

impl Error {
    /// Exit status of the program.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoGuest { .. } => 2,
            _ => 1,
        }
    }

    /// For `map_err` on file operations.
    pub fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { what, path, source }
    }
}

/// The error and all its causes on one line.
pub fn describe(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}
