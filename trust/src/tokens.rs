//! Tokens by which people and programs ask over HTTP. The file has their hashes only.

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};
use ring::digest::{SHA256, digest};

use crate::{files, hex, random};

/// What a token is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// To see what is known.
    Read,
    /// To change things as well.
    Operate,
}

impl Role {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Read, Self::Operate].into_iter().find(|role| role.name() == text);
        known.ok_or_else(|| format!("{text:?} is no role: read or operate"))
    }
}

/// A token, without what is secret of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Who has it.
    pub name: String,
    /// What it is good for.
    pub role: Role,
    /// SHA-256 of it, in hexadecimal digits.
    hash: String,
}

/// Those that are known: a line each, `NAME ROLE HASH`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens(HashMap<String, Token>);

/// A token can't be guessed, so a hash without salt gives nothing away.
fn hash(token: &str) -> String {
    hex(digest(&SHA256, token.as_bytes()).as_ref())
}

fn parse(text: &str) -> Result<Vec<Token>> {
    let mut tokens: Vec<Token> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let place = || format!("line {}", at + 1);
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[name, role, hash] = &words[..] else { bail!("{}: no NAME ROLE HASH", place()) };
        let role = role.parse().map_err(anyhow::Error::msg).with_context(place)?;
        let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        ensure!(is_hash, "{}: the hash has 64 hexadecimal digits", place());
        ensure!(tokens.iter().all(|it| it.name != name), "{}: {name:?} is there twice", place());
        tokens.push(Token { name: name.to_owned(), role, hash: hash.to_ascii_lowercase() });
    }
    Ok(tokens)
}

fn read(path: &Path) -> Result<Vec<Token>> {
    let place = || path.display().to_string();
    let text = String::from_utf8(files::read(path)?).with_context(place)?;
    parse(&text).with_context(place)
}

fn write(path: &Path, tokens: &[Token]) -> Result<()> {
    let line = |token: &Token| format!("{} {} {}\n", token.name, token.role.name(), token.hash);
    let lines: String = tokens.iter().map(line).collect();
    files::put(path, &format!("# Tokens of calumma-controller: name, role, SHA-256\n{lines}"))
}

impl Tokens {
    /// Reads a file.
    ///
    /// # Errors
    /// The line that can't be read.
    pub fn read(path: &Path) -> Result<Self> {
        let tokens = read(path)?.into_iter();
        Ok(Self(tokens.map(|token| (token.hash.clone(), token)).collect()))
    }

    /// Whose token this is.
    pub fn find(&self, token: &str) -> Option<&Token> {
        self.0.get(&hash(token))
    }

    /// Those in a file, as they were added.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn list(path: &Path) -> Result<Vec<Token>> {
        read(path)
    }

    /// Adds one to a file, which is made where there is none, and gives it: it is written nowhere.
    ///
    /// # Errors
    /// Where somebody of that name has one already.
    pub fn add(path: &Path, name: &str, role: Role) -> Result<String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
        ensure!(
            (1..=64).contains(&name.len()) && name.bytes().all(is_plain),
            "{name:?}: names have 1 to 64 letters, digits, '-', '_', '.' and '@'"
        );
        let _lock = files::lock(path)?;
        let mut tokens = if path.exists() { read(path)? } else { Vec::new() };
        ensure!(
            tokens.iter().all(|token| token.name != name),
            "{name:?} has a token already; `revoke` it first"
        );
        let token = format!("calumma-{}", hex(&random::<32>()?));
        tokens.push(Token { name: name.to_owned(), role, hash: hash(&token) });
        write(path, &tokens)?;
        Ok(token)
    }

    /// Takes somebody's out of a file.
    ///
    /// # Errors
    /// Where there is none.
    pub fn revoke(path: &Path, name: &str) -> Result<()> {
        let _lock = files::lock(path)?;
        let mut tokens = read(path)?;
        let before = tokens.len();
        tokens.retain(|token| token.name != name);
        ensure!(tokens.len() < before, "{name:?} has no token");
        write(path, &tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_known_by_their_hashes_until_they_are_revoked() {
        let path = std::env::temp_dir().join(format!("calumma-tokens-{}", std::process::id()));
        let [read, operate] = [("grafana", Role::Read), ("ada", Role::Operate)]
            .map(|(name, role)| Tokens::add(&path, name, role).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(&read) && !text.contains(&read[8..]), "{text}");
        let tokens = Tokens::read(&path).unwrap();
        let of = |token: &str| tokens.find(token).map(|it| (it.name.clone(), it.role));
        assert_eq!(of(&read), Some(("grafana".to_owned(), Role::Read)));
        assert_eq!(of(&operate), Some(("ada".to_owned(), Role::Operate)));
        assert_eq!((of(""), of(&format!("{read} "))), (None, None));
        assert!(Role::Read < Role::Operate);

        assert!(Tokens::add(&path, "ada", Role::Read).is_err(), "twice");
        assert!(Tokens::add(&path, "a b", Role::Read).is_err());
        Tokens::revoke(&path, "ada").unwrap();
        assert!(Tokens::revoke(&path, "ada").is_err());
        let tokens = Tokens::read(&path).unwrap();
        assert!(tokens.find(&operate).is_none() && tokens.find(&read).is_some());
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(path.with_added_extension("lock")).unwrap();
    }

    #[test]
    fn a_line_that_can_t_be_read_is_named() {
        for text in ["ada operate", "ada rule 00", "ada read 00", "# \nada read zz"] {
            let problem = format!("{:#}", parse(text).unwrap_err());
            assert!(problem.contains("line"), "{problem}");
        }
        let twice = format!("a read {0}\na read {0}", "0".repeat(64));
        assert!(parse(&twice).is_err());
    }
}
