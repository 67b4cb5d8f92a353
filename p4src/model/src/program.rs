//! A loaded program: what the control plane can know about it before it runs.

use std::path::Path;
use std::sync::Arc;

use crate::error::{ControlError, LoadError};
use crate::hash::Function;
use crate::ir::{Code, CounterKind, MatchKind};
use crate::source::preprocess::{self, Stop};
use crate::source::{Fault, SourceMap};
use crate::{lower, optimize, syntax};

/// A program that passed all checks. Cheap to clone; any number of switches can run it.
#[derive(Debug, Clone)]
pub struct Program {
    pub(crate) code: Arc<Code>,
}

/// A table as the control plane sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableInfo {
    /// Full name: control, instances, table.
    pub name: String,
    /// Key fields in their order.
    pub keys: Vec<KeyInfo>,
    /// Actions; the index is stable for this program.
    pub actions: Vec<ActionInfo>,
    /// How many entries it holds.
    pub size: usize,
    /// The entries stand in the program and can't be changed.
    pub const_entries: bool,
}

/// A key field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    /// Name, as written in the program or given by `@name`.
    pub name: String,
    /// How it is matched.
    pub kind: MatchKind,
    /// Bits.
    pub width: u16,
}

/// An action of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActionInfo {
    /// Full name.
    pub name: String,
    /// Action data: name and bits.
    pub params: Vec<(String, u16)>,
}

/// A register as the control plane sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterInfo {
    /// Full name.
    pub name: String,
    /// Elements.
    pub size: usize,
    /// One or two values an element: name (empty for a plain value) and bits.
    pub fields: Vec<(String, u16)>,
}

/// A counter as the control plane sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CounterInfo {
    /// Full name.
    pub name: String,
    /// Elements.
    pub size: usize,
    /// What it counts.
    pub kind: CounterKind,
}

/// A hash that computes a CRC, as the control plane sees it: the table `algorithm` of that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HashInfo {
    /// Full name of the `Hash` instance.
    pub name: String,
}

impl Program {
    /// Loads the program at `path` with all it includes. `defines` are macros, as with `-D`.
    ///
    /// # Errors
    /// The first thing that is wrong, unsupported or beyond the hardware, with its file and line.
    pub fn load(
        path: impl AsRef<Path>,
        defines: &[(String, String)],
    ) -> Result<Program, LoadError> {
        let mut map = SourceMap::default();
        let tokens = preprocess::file(path.as_ref(), defines, &mut map);
        Program::finish(tokens, map)
    }

    /// Loads a program from a text; `name` stands for it in errors. It can include the built-in
    /// headers only.
    ///
    /// # Errors
    /// As [`Program::load`].
    pub fn from_text(
        name: &str,
        text: &str,
        defines: &[(String, String)],
    ) -> Result<Program, LoadError> {
        let mut map = SourceMap::default();
        let tokens = preprocess::program(name, text, None, defines, &mut map);
        Program::finish(tokens, map)
    }

    fn finish(
        tokens: Result<Vec<crate::source::lexer::Token>, Stop>,
        map: SourceMap,
    ) -> Result<Program, LoadError> {
        let located = |fault: Fault| map.error(fault);
        let tokens = tokens.map_err(|stop| match stop {
            Stop::Fault(fault) => located(fault),
            Stop::Load(error) => error,
        })?;
        let decls = syntax::program(&tokens).map_err(located)?;
        let mut code = lower::program(&decls).map_err(located)?;
        optimize::run(&mut code);
        Ok(Program { code: Arc::new(code) })
    }

    /// All tables.
    pub fn tables(&self) -> Vec<TableInfo> {
        self.code.tables.iter().map(table_info).collect()
    }

    /// The table with that name (the full one or an unambiguous end of it).
    ///
    /// # Errors
    /// None or several tables have that name.
    pub fn table(&self, name: &str) -> Result<TableInfo, ControlError> {
        Ok(table_info(&self.code.tables[self.table_index(name)?]))
    }

    /// All registers.
    pub fn registers(&self) -> Vec<RegisterInfo> {
        let info = |register: &crate::ir::Register| RegisterInfo {
            name: register.name.clone(),
            size: register.size,
            fields: register.lanes.clone(),
        };
        self.code.registers.iter().map(info).collect()
    }

    /// All counters, without those of single tables.
    pub fn counters(&self) -> Vec<CounterInfo> {
        let info = |counter: &crate::ir::Counter| CounterInfo {
            name: counter.name.clone(),
            size: counter.size,
            kind: counter.kind,
        };
        self.code.counters.iter().map(info).collect()
    }

    /// All hashes that compute CRCs.
    pub fn hashes(&self) -> Vec<HashInfo> {
        let crcs = self.code.hashes.iter().filter(|hash| matches!(hash.function, Function::Crc(_)));
        crcs.map(|hash| HashInfo { name: hash.name.clone() }).collect()
    }

    pub(crate) fn table_index(&self, name: &str) -> Result<usize, ControlError> {
        find("table", name, self.code.tables.iter().map(|table| &*table.name))
    }

    pub(crate) fn register_index(&self, name: &str) -> Result<usize, ControlError> {
        find("register", name, self.code.registers.iter().map(|register| &*register.name))
    }

    pub(crate) fn counter_index(&self, name: &str) -> Result<usize, ControlError> {
        find("counter", name, self.code.counters.iter().map(|counter| &*counter.name))
    }

    pub(crate) fn value_set_index(&self, name: &str) -> Result<usize, ControlError> {
        find("value set", name, self.code.value_sets.iter().map(|set| &*set.name))
    }
}

fn table_info(table: &crate::ir::Table) -> TableInfo {
    let keys = table.keys.iter();
    let actions = table.actions.iter();
    TableInfo {
        name: table.name.clone(),
        keys: keys
            .map(|key| KeyInfo { name: key.name.clone(), kind: key.kind, width: key.width })
            .collect(),
        actions: actions
            .map(|action| ActionInfo {
                name: action.name.clone(),
                params: action.params.iter().map(|p| (p.name.clone(), p.width)).collect(),
            })
            .collect(),
        size: table.size,
        const_entries: table.entries_const,
    }
}

/// The object whose full name is `wanted`, or the only one whose name ends with `.wanted`.
/// A leading `pipe.` is ignored, as BFRuntime writes it.
pub(crate) fn find<'a>(
    kind: &'static str,
    wanted: &str,
    names: impl Iterator<Item = &'a str>,
) -> Result<usize, ControlError> {
    let bare = wanted.strip_prefix("pipe.").unwrap_or(wanted);
    let all: Vec<&str> = names.collect();
    if let Some(index) = all.iter().position(|name| *name == bare) {
        return Ok(index);
    }
    let ends = |name: &&str| {
        name.strip_suffix(bare).is_some_and(|before| before.ends_with('.') && !bare.is_empty())
    };
    let found: Vec<usize> = (0..all.len()).filter(|&index| ends(&all[index])).collect();
    let problem = match found[..] {
        [index] => return Ok(index),
        [] => format!("not in the program; it has {}", all.join(", ")),
        _ => {
            let names: Vec<&str> = found.iter().map(|&index| all[index]).collect();
            format!("ambiguous: {}", names.join(", "))
        }
    };
    Err(ControlError::Name { kind, name: wanted.to_owned(), problem })
}
