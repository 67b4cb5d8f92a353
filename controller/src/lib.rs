//! The central controller: collect, decode, answer, reconfigure.
