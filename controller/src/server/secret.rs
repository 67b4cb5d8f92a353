//! The deployment's hash keys: given, kept from an earlier start, or drawn at random.
//!
//! `state_dir` has the key in a file `hash_key`. Beside it, `hash_key.epochs` has a line for each
//! key, the first epoch that it is for and the key: switches may hold epochs of the one before.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use calumma_analysis::HashKeys;

use crate::config::{Config, parse_hash_key};

/// Keys that are kept on disk.
const MOST_KEPT: usize = 16;

/// A key's 32 bytes, and the first epoch that it is for.
type KeyFrom = (u64, [u8; 32]);

/// The keys that `config` asks for.
pub(super) fn hash_keys(config: &Config) -> anyhow::Result<HashKeys> {
    let kept = match (&config.hash_key, &config.state_dir) {
        (Some(text), _) => {
            let key = text.parse().map_err(|problem| anyhow!("hash_key: {problem}"))?;
            vec![(0, key)]
        }
        (None, Some(folder)) => Folder(folder).read()?,
        (None, None) => vec![(0, rand::random())],
    };
    let mut kept = kept.into_iter();
    let (_, oldest) = kept.next().unwrap_or_else(|| (0, rand::random()));
    let keys = HashKeys::new(config.hash_key_of(oldest));
    kept.for_each(|(epoch, key)| keys.change(epoch, config.hash_key_of(key)));
    Ok(keys)
}

/// Keeps a key that is for the epochs from `epoch` on, where keys are kept; the disk has it then.
pub(super) fn keep(config: &Config, epoch: u64, key: &[u8; 32]) -> anyhow::Result<()> {
    let Some(folder) = &config.state_dir else { return Ok(()) };
    let folder = Folder(folder);
    let mut kept = folder.read()?;
    kept.retain(|&(from, _)| from < epoch);
    kept.drain(..kept.len().saturating_sub(MOST_KEPT - 1));
    kept.push((epoch, *key));
    folder.write(&kept)
}

/// Where keys are kept.
struct Folder<'a>(&'a Path);

impl Folder<'_> {
    fn key(&self) -> PathBuf {
        self.0.join("hash_key")
    }

    fn epochs(&self) -> PathBuf {
        self.0.join("hash_key.epochs")
    }

    /// The keys, the one that holds last; at the first start one is drawn. Only the owner can read
    /// them.
    fn read(&self) -> anyhow::Result<Vec<KeyFrom>> {
        let path = self.key();
        match fs::read_to_string(&path) {
            Ok(text) => {
                let key = parse_hash_key(&text).map_err(|problem| {
                    anyhow!("{}: {problem}; remove it to draw a new one", place(&path))
                })?;
                self.before(key)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::create_dir_all(self.0).with_context(|| place(&path))?;
                let drawn = vec![(0, rand::random())];
                self.write(&drawn)?;
                Ok(drawn)
            }
            Err(error) => Err(error).with_context(|| place(&path)),
        }
    }

    /// The keys up to the one in the file `hash_key`, which is alone where somebody put it there.
    fn before(&self, key: [u8; 32]) -> anyhow::Result<Vec<KeyFrom>> {
        let path = self.epochs();
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            read => read.with_context(|| place(&path))?,
        };
        let line = |line: &str| {
            let (epoch, key) = line.split_once(' ')?;
            Some((epoch.parse().ok()?, parse_hash_key(key).ok()?))
        };
        // A line that can't be read costs epochs that switches hold, and nothing else.
        let mut kept: Vec<KeyFrom> = text.lines().filter_map(line).collect();
        match kept.iter().rposition(|(_, kept)| *kept == key) {
            Some(last) => kept.truncate(last + 1),
            None => kept = vec![(0, key)],
        }
        Ok(kept)
    }

    /// Writes keys. The one in the file `hash_key` is the one that holds, so it comes last.
    fn write(&self, keys: &[KeyFrom]) -> anyhow::Result<()> {
        let hex = |key: &[u8; 32]| {
            key.iter().fold(String::new(), |mut text, byte| {
                // Writing to a String can't fail.
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        let lines: String =
            keys.iter().map(|(epoch, key)| format!("{epoch} {}\n", hex(key))).collect();
        put(&self.epochs(), &lines)?;
        let Some((_, newest)) = keys.last() else { return Ok(()) };
        put(&self.key(), &format!("{}\n", hex(newest)))?;
        // So that a host that loses power has the new names.
        let folder = File::open(self.0).and_then(|folder| folder.sync_all());
        folder.with_context(|| place(self.0))
    }
}

fn place(path: &Path) -> String {
    format!("state_dir: {}", path.display())
}

/// Writes a file aside and renames it, so that a crash leaves no half of a key.
fn put(path: &Path, text: &str) -> anyhow::Result<()> {
    let aside = path.with_added_extension("new");
    // One that is there already would keep the permissions that it has.
    match fs::remove_file(&aside) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| place(path))
        }
        _ => Ok(()),
    }?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&aside)
        .with_context(|| place(path))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).with_context(|| place(path))?;
    fs::rename(&aside, path).with_context(|| place(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use calumma_sketch::HashKey;
    use std::os::unix::fs::PermissionsExt;

    fn folder(name: &str) -> (PathBuf, Config) {
        let folder = std::env::temp_dir().join(format!("calumma-{name}-{}", std::process::id()));
        let text = format!("edges = ['e1']\nstate_dir = {:?}", folder.join("deep"));
        (folder, Config::parse(&text, "c.toml").unwrap())
    }

    fn newest(config: &Config) -> HashKey {
        hash_keys(config).unwrap().newest().key
    }

    #[test]
    fn a_key_that_was_drawn_is_kept_and_readable_by_its_owner_only() {
        let (folder, config) = folder("secret");
        let first = newest(&config);
        assert_eq!(newest(&config), first);
        for name in ["deep/hash_key", "deep/hash_key.epochs"] {
            let mode = fs::metadata(folder.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }

        // Whatever somebody else has left there.
        fs::write(folder.join("deep/hash_key.new"), "").unwrap();
        keep(&config, 9, &[7; 32]).unwrap();
        let mode = fs::metadata(folder.join("deep/hash_key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        fs::write(folder.join("deep/hash_key"), "rubbish").unwrap();
        let error = hash_keys(&config).unwrap_err().to_string();
        assert!(error.contains("hash_key") && error.contains("remove it"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn keys_before_the_last_one_are_known_by_their_epochs() {
        let (folder, config) = folder("keys");
        let first = newest(&config);
        let [second, third] = [[2; 32], [3; 32]];
        keep(&config, 100, &second).unwrap();
        keep(&config, 200, &third).unwrap();
        let keys = hash_keys(&config).unwrap();
        let of = |epoch| keys.at(epoch).key;
        let [second, third] = [second, third].map(HashKey::from_bytes);
        assert_eq!([99, 100, 199, 200].map(of), [first, second, second, third]);

        // A crash between the two files: the change had not happened, no switch knows of it.
        let hex = "02".repeat(32);
        fs::write(folder.join("deep/hash_key"), &hex).unwrap();
        assert_eq!(newest(&config), second);
        // A key that somebody put there is for all epochs.
        fs::write(folder.join("deep/hash_key"), "04".repeat(32)).unwrap();
        let keys = hash_keys(&config).unwrap();
        assert_eq!([0, 300].map(|epoch| keys.at(epoch).key), [HashKey::from_bytes([4; 32]); 2]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn without_a_state_directory_every_start_has_its_own_key() {
        let config = Config::parse("edges = ['e1']", "c.toml").unwrap();
        assert_ne!(newest(&config), newest(&config));
        keep(&config, 7, &[1; 32]).unwrap();
        let given = format!("edges = ['e1']\nhash_key = '{}'", "00".repeat(32));
        let config = Config::parse(&given, "c.toml").unwrap();
        assert_eq!(newest(&config), HashKey::from_bytes([0; 32]));
    }
}
