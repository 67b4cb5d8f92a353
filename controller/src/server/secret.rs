//! The deployment's hash key: given, kept from an earlier start, or drawn at random.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, anyhow};
use calumma_sketch::HashKey;

use crate::config::{Config, parse_hash_key};

/// The key that `config` asks for.
pub(super) fn hash_key(config: &Config) -> anyhow::Result<HashKey> {
    let bytes = match (&config.hash_key, &config.state_dir) {
        (Some(text), _) => {
            parse_hash_key(text).map_err(|problem| anyhow!("hash_key: {problem}"))?
        }
        (None, Some(folder)) => kept_in(folder)?,
        (None, None) => rand::random(),
    };
    Ok(config.hash_key_of(bytes))
}

/// The key in `folder`, drawn and written there at the first start. Only the owner can read it.
fn kept_in(folder: &Path) -> anyhow::Result<[u8; 32]> {
    let path = folder.join("hash_key");
    let place = || format!("state_dir: {}", path.display());
    match fs::read_to_string(&path) {
        Ok(text) => parse_hash_key(&text)
            .map_err(|problem| anyhow!("{}: {problem}; remove it to draw a new one", place())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(folder).with_context(place)?;
            let key: [u8; 32] = rand::random();
            let text: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            // Written aside and renamed, so that a crash leaves no half of a key.
            let aside = folder.join("hash_key.new");
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&aside)
                .with_context(place)?;
            writeln!(file, "{text}").and_then(|()| file.sync_all()).with_context(place)?;
            fs::rename(&aside, &path).with_context(place)?;
            Ok(key)
        }
        Err(error) => Err(error).with_context(place),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_that_was_drawn_is_kept_and_readable_by_its_owner_only() {
        let folder = std::env::temp_dir().join(format!("calumma-secret-{}", std::process::id()));
        let text = format!("edges = ['e1']\nstate_dir = {:?}", folder.join("deep"));
        let config = Config::parse(&text, "c.toml").unwrap();
        let first = hash_key(&config).unwrap();
        assert_eq!(hash_key(&config).unwrap(), first);
        let file = folder.join("deep/hash_key");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

        fs::write(&file, "rubbish").unwrap();
        let error = hash_key(&config).unwrap_err().to_string();
        assert!(error.contains("hash_key") && error.contains("remove it"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn without_a_state_directory_every_start_has_its_own_key() {
        let config = Config::parse("edges = ['e1']", "c.toml").unwrap();
        assert_ne!(hash_key(&config).unwrap(), hash_key(&config).unwrap());
        let given = format!("edges = ['e1']\nhash_key = '{}'", "00".repeat(32));
        let config = Config::parse(&given, "c.toml").unwrap();
        assert_eq!(hash_key(&config).unwrap(), HashKey::from_bytes([0; 32]));
    }
}
