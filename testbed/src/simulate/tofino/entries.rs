//! Entries of the control plane on a modelled switch.

use anyhow::{Context, Result};
use calumma_switchd::tables::{Match, TableEntry};
use calumma_tna::{Entry, Switch};

/// Adds an entry, or sets what its table does on a miss.
pub(super) fn add(switch: &mut Switch, entry: &TableEntry) -> Result<()> {
    let added = if entry.keys.is_empty() {
        let args: Vec<_> = entry.args.iter().map(|&(name, value)| (name, value.into())).collect();
        switch.set_default_action(&entry.table, entry.action, &args)
    } else {
        switch.add_entry(&entry.table, &modelled(entry))
    };
    added.with_context(|| format!("an entry of {}", entry.table))
}

/// An entry of the control plane as the model takes it.
pub(super) fn modelled(entry: &TableEntry) -> Entry {
    let keys = entry.keys.iter().fold(Entry::new(entry.action), |out, (key, field)| match *field {
        Match::Exact(value) => out.exact(key, value),
        Match::Range(low, high) => out.range(key, low, high),
        Match::Ternary(value, mask) => out.ternary(key, value, mask),
    });
    entry.args.iter().fold(keys, |out, (name, value)| out.arg(name, *value))
}
