//! The numbers of the nodes, given by name, and that of the deployment: kept from one start to the
//! next.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Write};
use std::num::NonZeroU16;
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
        let lines: String = ids.iter().map(|(name, id)| format!("{id} {name}\n")).collect();
        write(folder, "node_ids", &lines).with_context(place)?;
    }
    Ok(ids)
}

/// Writes a file aside and renames it, so that a crash leaves no half of it.
pub(super) fn write(folder: &Path, name: &str, text: &str) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let aside = folder.join(format!("{name}.new"));
    let mut file = fs::File::create(&aside)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all())?;
    fs::rename(&aside, folder.join(name))
}

/// The deployment's number: drawn at random by the first controller, and kept where anything is.
///
/// # Errors
/// When it can't be read or kept.
pub(super) fn deployment(config: &Config) -> anyhow::Result<NonZeroU16> {
    let drawn = NonZeroU16::MIN.saturating_add(rand::random_range(0..u16::MAX));
    let Some(folder) = &config.state_dir else { return Ok(drawn) };
    let path = folder.join("deployment_id");
    let place = || format!("state_dir: {}", path.display());
    match fs::read_to_string(&path) {
        Ok(text) => {
            let number = text.trim().parse::<NonZeroU16>();
            number.with_context(|| format!("{}: not a number from 1 to 65535", place()))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            write(folder, "deployment_id", &format!("{drawn}\n")).with_context(place)?;
            Ok(drawn)
        }
        Err(error) => Err(error).with_context(place),
    }
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
    fn a_deployment_keeps_its_number() {
        let folder =
            std::env::temp_dir().join(format!("calumma-deployment-{}", std::process::id()));
        let state = format!("edges = ['e1', 'e2']\nstate_dir = {folder:?}\n");
        let config = Config::parse(&state, "c.toml").unwrap();
        let drawn = deployment(&config).unwrap();
        assert_eq!(deployment(&config).unwrap(), drawn);
        fs::write(folder.join("deployment_id"), "0\n").unwrap();
        let problem = format!("{:#}", deployment(&config).unwrap_err());
        assert!(problem.contains("deployment_id: not a number"), "{problem}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn without_a_state_directory_numbers_follow_the_configuration() {
        let given = ids("edges = ['e1', 'e2']\ntransits = ['s1']\nhosts = ['h1']");
        assert_eq!(given.iter().map(|(_, id)| *id).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }
}
