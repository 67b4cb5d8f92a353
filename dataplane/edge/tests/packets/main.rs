//! What an edge does with packets, in one process.

mod carriers;
mod lcores;
mod passage;
mod probes;
mod two_edges;
