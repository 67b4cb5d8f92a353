//! What can go wrong, always with the place and the remedy.

use std::fmt;
use std::sync::Arc;

/// A line of a source file, as errors name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file as it was opened or included.
    pub file: Arc<str>,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// A program that can't be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A source file can't be read.
    #[error("{path}: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why it can't be read.
        source: std::io::Error,
    },
    /// The program is wrong, breaks a limit of the hardware, or uses something the model does not
    /// support.
    #[error("{at}: {message}")]
    Program {
        /// Where.
        at: Location,
        /// What, and where it helps, what to write instead.
        message: String,
    },
}

impl LoadError {
    /// The line that is at fault, when the error is about one.
    pub fn line(&self) -> Option<u32> {
        match self {
            LoadError::Read { .. } => None,
            LoadError::Program { at, .. } => Some(at.line),
        }
    }
}

/// A request of the control plane that the switch refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// No object of that kind and name in the program, or more than one.
    #[error("{kind} `{name}`: {problem}")]
    Name {
        /// Table, register, action, key field, ...
        kind: &'static str,
        /// The name that was asked for.
        name: String,
        /// Unknown (with what there is) or ambiguous (with the candidates).
        problem: String,
    },
    /// The table is full.
    #[error("table `{table}` is full: it has {size} entries")]
    TableFull {
        /// The table.
        table: String,
        /// Its size in the program.
        size: usize,
    },
    /// An entry with the same match is there already.
    #[error("table `{table}` already has an entry for {key}; modify it instead")]
    Exists {
        /// The table.
        table: String,
        /// The match.
        key: String,
    },
    /// No entry with that match.
    #[error("table `{table}` has no entry for {key}")]
    NoEntry {
        /// The table.
        table: String,
        /// The match.
        key: String,
    },
    /// A value does not fit, a key has the wrong kind of match, an index is out of range, ...
    #[error("{place}: {problem}")]
    Invalid {
        /// Table, field or register.
        place: String,
        /// What is wrong with it.
        problem: String,
    },
}
