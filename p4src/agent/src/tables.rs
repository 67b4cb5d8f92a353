//! Entries of a program's tables, by its names.

/// How one field of an entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Match {
    /// Equal.
    Exact(u32),
    /// Between the two, both included.
    Range(u32, u32),
    /// Equal where the mask has ones: value, mask.
    Ternary(u32, u32),
}

/// One entry of one table, by the names of the program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableEntry {
    /// Full name of the table.
    pub table: String,
    /// Key fields and how they match; none where it is what the table does on a miss.
    pub keys: Vec<(&'static str, Match)>,
    /// Name of the action.
    pub action: &'static str,
    /// Action data.
    pub args: Vec<(&'static str, u32)>,
}
