//! A compiler's description of a program's tables beside that of the model's driver: a
//! control plane that is tested with the one must find the same in the other.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;

/// What a control plane can touch.
const KINDS: [&str; 3] = ["MatchAction_Direct", "Register", "Counter"];

#[derive(Deserialize)]
struct Description {
    tables: Vec<Table>,
}

/// A table without its own number, and that of its actions: those a control plane looks up by name.
#[derive(Debug, PartialEq, Deserialize)]
struct Table {
    name: String,
    table_type: String,
    size: u64,
    #[serde(default)]
    key: Vec<Field>,
    #[serde(default)]
    action_specs: Vec<Action>,
    #[serde(default)]
    data: Vec<Datum>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Action {
    name: String,
    #[serde(default)]
    data: Vec<Field>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Datum {
    singleton: Option<Field>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Field {
    id: u32,
    name: String,
    match_type: Option<String>,
    r#type: Option<Type>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Type {
    r#type: String,
    width: Option<u32>,
}

/// What differs between two descriptions of a program, a line each. How wide fields are, only the
/// `same_chip` that the model is of tells: the number of a mirror session is narrower on Tofino 2.
pub(super) fn differences(compiler: &str, model: &str, same_chip: bool) -> Result<Vec<String>> {
    let (compiler, model) = (tables(compiler, same_chip)?, tables(model, same_chip)?);
    let mut all = Vec::new();
    for name in compiler.keys().filter(|name| !model.contains_key(*name)) {
        all.push(format!("{name}: only the compiler has it"));
    }
    for (name, there) in model {
        match compiler.get(&name) {
            None => all.push(format!("{name}: only the model has it")),
            Some(table) if *table != there => {
                all.push(format!("{name}: compiler {table:?}, model {there:?}"));
            }
            Some(_) => {}
        }
    }
    Ok(all)
}

/// The tables of a description by name, actions in one order, with or without widths.
fn tables(text: &str, widths: bool) -> Result<BTreeMap<String, Table>> {
    let description: Description =
        serde_json::from_str(text).context("a description of the program's tables")?;
    let of_use = |table: &Table| KINDS.contains(&&*table.table_type);
    let sorted = |mut table: Table| {
        table.action_specs.sort_by(|a, b| a.name.cmp(&b.name));
        let of_actions = table.action_specs.iter_mut().flat_map(|action| &mut action.data);
        let of_table = table.data.iter_mut().filter_map(|datum| datum.singleton.as_mut());
        let fields = table.key.iter_mut().chain(of_actions).chain(of_table);
        for kind in fields.filter_map(|field| field.r#type.as_mut()) {
            kind.width = kind.width.filter(|_| widths);
        }
        (table.name.clone(), table)
    };
    Ok(description.tables.into_iter().filter(of_use).map(sorted).collect())
}

#[cfg(test)]
mod tests {
    use super::differences;

    const COMPILER: &str = r#"{"schema_version": "1.0.0", "tables": [
        {"name": "pipe.Ingress.ports", "id": 35483500, "table_type": "MatchAction_Direct", "size": 512,
         "key": [{"id": 1, "name": "port", "match_type": "Exact", "type": {"type": "bytes", "width": 9}}],
         "action_specs": [{"id": 24638672, "name": "Ingress.host", "data": []},
                          {"id": 21257015, "name": "NoAction", "data": []}]},
        {"name": "pipe.Ingress.hash.configure", "id": 7, "table_type": "DynHashConfigure", "size": 1,
         "data": [{"singleton": {"id": 1, "name": "src", "container": []}}]}]}"#;

    /// The numbers of tables and actions, and their order, are each one's own.
    const MODEL: &str = r#"{"tables": [
        {"name": "pipe.Ingress.ports", "id": 1, "table_type": "MatchAction_Direct", "size": 512,
         "key": [{"id": 1, "name": "port", "match_type": "Exact", "type": {"type": "bytes", "width": 9}}],
         "action_specs": [{"id": 2, "name": "NoAction", "data": []},
                          {"id": 1, "name": "Ingress.host", "data": []}]}]}"#;

    #[test]
    fn what_a_control_plane_would_miss_is_named() {
        let of_tofino = |compiler: &str, model: &str| differences(compiler, model, true);
        assert_eq!(of_tofino(COMPILER, MODEL).unwrap(), [""; 0]);
        let wider = COMPILER.replace("\"width\": 9", "\"width\": 16");
        assert_eq!(differences(&wider, MODEL, false).unwrap(), [""; 0]);
        let wider = of_tofino(&wider, MODEL).unwrap();
        assert!(
            wider.len() == 1 && wider[0].starts_with("pipe.Ingress.ports: compiler"),
            "{wider:?}"
        );
        let renamed = MODEL.replace("Ingress.ports", "Ingress.gates");
        let both = [
            "pipe.Ingress.ports: only the compiler has it",
            "pipe.Ingress.gates: only the model has it",
        ];
        assert_eq!(of_tofino(COMPILER, &renamed).unwrap(), both);
        assert!(of_tofino("{}", MODEL).is_err());
    }
}
