//! The nodes' numbers: given by name, and kept from one start to the next.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use calumma_analysis::Node;
use calumma_wire::Role;

use crate::config::Config;

/// The nodes that `config` expects: edges, then transits, then hosts.
///
/// # Errors
/// When the numbers can't be read or kept.
pub(super) fn nodes(config: &Config) -> anyhow::Result<Vec<Arc<Node>>> {
    let roles = [Role::Edge, Role::Transit, Role::Host].into_iter();
    let names: Vec<(&String, Role)> =
        roles.flat_map(|role| config.nodes_of(role).iter().map(move |name| (name, role))).collect();
    let ids = match &config.state_dir {
        Some(folder) => kept_in(folder, &names)?,
        None => give(BTreeMap::new(), &names)?,
    };
    let node =
        |(name, role): (&String, Role)| Arc::new(Node { name: name.clone(), role, id: ids[name] });
    Ok(names.into_iter().map(node).collect())
}

/// The numbers in `folder`, with those of new nodes written there. Of nodes that are gone they are
/// kept: reports of long ago may name them.
fn kept_in(folder: &Path, names: &[(&String, Role)]) -> anyhow::Result<BTreeMap<String, u16>> {
    let path = folder.join("node_ids");
    let place = || format!("state_dir: {}", path.display());
    let known = match fs::read_to_string(&path) {
        Ok(text) => read(&text).with_context(place)?,
        Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
        Err(error) => return Err(error).with_context(place),
    };
    let ids = give(known.clone(), names).with_context(place)?;
    if ids != known {
        fs::create_dir_all(folder).with_context(place)?;
        // Written aside and renamed, so that a crash leaves no half of it.
        let aside = folder.join("node_ids.new");
        let lines: String = ids.iter().map(|(name, id)| format!("{id} {name}\n")).collect();
        let mut file = fs::File::create(&aside).with_context(place)?;
        file.write_all(lines.as_bytes()).and_then(|()| file.sync_all()).with_context(place)?;
        fs::rename(&aside, &path).with_context(place)?;
    }
    Ok(ids)
}

/// A number, a space and a name on each line.
fn read(text: &str) -> anyhow::Result<BTreeMap<String, u16>> {
    let mut ids = BTreeMap::new();
    for (line, number) in text.lines().zip(1..) {
        let entry = line.split_once(' ').and_then(|(id, name)| {
            let id: u16 = id.parse().ok()?;
            (id != 0).then(|| (name.to_owned(), id))
        });
        let (name, id) = entry.ok_or_else(|| {
            anyhow!("line {number}: {line:?} is no number of a node and its name; repair the line")
        })?;
        if ids.values().any(|&other| other == id) || ids.insert(name, id).is_some() {
            bail!("line {number}: {line:?} repeats a name or number; repair the line");
        }
    }
    Ok(ids)
}

/// Gives every node a number that has none yet: the lowest ones that nobody has.
fn give(
    mut ids: BTreeMap<String, u16>,
    names: &[(&String, Role)],
) -> anyhow::Result<BTreeMap<String, u16>> {
    let given: BTreeSet<u16> = ids.values().copied().collect();
    let mut free = (1..=u16::MAX).filter(|id| !given.contains(id));
    for (name, _) in names {
        if !ids.contains_key(*name) {
            let id = free.next().context("more nodes than numbers")?;
            ids.insert((*name).clone(), id);
        }
    }
    Ok(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(config: &str) -> Vec<(String, u16)> {
        let config = Config::parse(config, "c.toml").unwrap();
        nodes(&config).unwrap().iter().map(|node| (node.name.clone(), node.id)).collect()
    }

    #[test]
    fn numbers_stay_with_names_whatever_comes_and_goes() {
        let folder = std::env::temp_dir().join(format!("calumma-node-ids-{}", std::process::id()));
        let state = format!("state_dir = {:?}\n", folder.join("deep"));
        let id = |name: &str, id| (name.to_owned(), id);
        let first = ids(&format!("edges = ['e2', 'e1']\ntransits = ['s 1']\n{state}"));
        assert_eq!(first, [id("e2", 1), id("e1", 2), id("s 1", 3)]);
        let fewer = ids(&format!("edges = ['e1']\n{state}"));
        assert_eq!(fewer, [id("e1", 2)]);
        let more = ids(&format!("edges = ['e1', 'e3']\ntransits = ['s 1', 'e2']\n{state}"));
        assert_eq!(more, [id("e1", 2), id("e3", 4), id("s 1", 3), id("e2", 1)]);

        let file = folder.join("deep/node_ids");
        for (wrong, why) in [("0 e1\n", "no number"), ("1 e1\n1 e2\n", "line 2"), ("e1", "line 1")]
        {
            fs::write(&file, wrong).unwrap();
            let config = Config::parse(&format!("edges = ['e1']\n{state}"), "c.toml").unwrap();
            let problem = format!("{:#}", nodes(&config).unwrap_err());
            assert!(problem.contains(why) && problem.contains("node_ids"), "{problem}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn without_a_state_directory_numbers_follow_the_configuration() {
        let given = ids("edges = ['e1', 'e2']\ntransits = ['s1']\nhosts = ['h1']");
        assert_eq!(given.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}
