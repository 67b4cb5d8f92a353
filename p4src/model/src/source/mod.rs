//! From files to tokens: positions, the lexer and the preprocessor.
//!
//! Knows nothing of P4's grammar.

pub(crate) mod condition;
pub(crate) mod lexer;
pub(crate) mod preprocess;

use std::sync::Arc;

use crate::error::{LoadError, Location};

/// A place in a source file, small enough to stand in every node of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) file: u16,
    pub(crate) column: u16,
    pub(crate) line: u32,
}

/// What is wrong, where. Becomes a [`LoadError`] when the file names are at hand.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    pub(crate) span: Span,
    pub(crate) message: String,
}

/// Result of everything that reads a program.
pub(crate) type Res<T> = Result<T, Fault>;

/// A [`Fault`] as an error.
pub(crate) fn fault<T>(span: Span, message: impl Into<String>) -> Res<T> {
    Err(Fault { span, message: message.into() })
}

/// The names of the files that were read; [`Span::file`] is an index into it.
#[derive(Debug, Default)]
pub(crate) struct SourceMap {
    names: Vec<Arc<str>>,
}

impl SourceMap {
    /// Adds a file and gives its number.
    pub(crate) fn add(&mut self, name: &str) -> u16 {
        self.names.push(name.into());
        u16::try_from(self.names.len() - 1).unwrap_or(u16::MAX)
    }

    /// The place with its file name.
    pub(crate) fn locate(&self, span: Span) -> Location {
        let file = self.names.get(usize::from(span.file)).cloned();
        Location {
            file: file.unwrap_or_else(|| "<built-in>".into()),
            line: span.line,
            column: u32::from(span.column),
        }
    }

    /// The fault with its file name.
    pub(crate) fn error(&self, fault: Fault) -> LoadError {
        LoadError::Program { at: self.locate(fault.span), message: fault.message }
    }
}
