//! Errors show lines of the file; not the secrets in them.

use std::iter::repeat_n;

use crate::alert::host;

/// Hexadecimal digits in a row that may be a key, and are not shown.
const SECRET_DIGITS: usize = 32;

/// A text with stars, as many, for what may be a key, and for all of an address behind its scheme
/// but the host.
pub(super) fn without_secrets(text: &str) -> String {
    without_addresses(&without_keys(text))
}

fn without_keys(text: &str) -> String {
    let mut hidden = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        let others = rest[digits..].bytes().take_while(|byte| !byte.is_ascii_hexdigit()).count();
        match digits {
            SECRET_DIGITS.. => hidden.extend(repeat_n('*', digits)),
            _ => hidden += &rest[..digits],
        }
        hidden += &rest[digits..digits + others];
        rest = &rest[digits + others..];
    }
    hidden
}

fn without_addresses(text: &str) -> String {
    const MARK: &str = "://";
    let mut hidden = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(MARK) {
        let is_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let quote = before.trim_end_matches(is_scheme).chars().next_back();
        let (address, others) = after.split_at(end(after, quote));
        let host = host(address);
        hidden += before;
        hidden += MARK;
        hidden.extend(repeat_n('*', address[..host.start].chars().count()));
        hidden += &address[host.clone()];
        hidden.extend(repeat_n('*', address[host.end..].chars().count()));
        rest = others;
    }
    hidden + rest
}

/// Where an address ends that this character stands before: at the same quote, or if it is none, at
/// white space; with the line at the latest.
fn end(address: &str, quote: Option<char>) -> usize {
    let mut escaped = false;
    let is_end = |c: char| {
        let ends = match quote {
            Some('"') => c == '"' && !escaped,
            Some('\'') => c == '\'',
            _ => c.is_whitespace(),
        };
        escaped = c == '\\' && !escaped;
        ends || c == '\n'
    };
    address.find(is_end).unwrap_or(address.len())
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn of_keys_nothing_is_left_and_of_addresses_the_host() {
        for (text, wanted) in [
            ("key = 'ab' # 10", "key = 'ab' # 10"),
            ("7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a, 7a", "********************************, 7a"),
            ("['https://a.net/x', 7]", "['https://a.net**', 7]"),
            ("['https://u:p@a.net:80?x' 'http://b']", "['https://****a.net:80**' 'http://b']"),
            (r#"["https://a.net/\"x\\", 7]"#, r#"["https://a.net******", 7]"#),
            ("'https://a.net/\"x y'", "'https://a.net*****'"),
            ("[https://a.net/x, ftp://b/y] # z", "[https://a.net*** ftp://b*** # z"),
            ("'https://a.net/é\nedges = 7", "'https://a.net**\nedges = 7"),
            ("http://a.net/?to=http://b", "http://a.net*************"),
        ] {
            assert_eq!(without_secrets(text), wanted);
        }
    }

    #[test]
    fn an_error_about_a_line_shows_none_of_its_secrets() {
        let url = "https://ada:5ecret@hooks.example.net/services/5ecret?token=5ecret";
        for mistaken in [
            format!("['{url}' 7]"),
            format!("['{url}"),
            format!("[{url}]"),
            format!("\"{url}\""),
            format!("['http://10.0.0.1', \"{url}\", 7]"),
        ] {
            let text = format!("edges = ['e1']\n[alerts]\nwebhooks = {mistaken}");
            let shown = Config::parse(&text, "controller.toml").unwrap_err().to_string();
            assert!(shown.contains("line 3") && shown.contains("hooks.example.net"), "{shown}");
            assert!(!shown.contains("5ecret"), "{shown}");
        }
    }
}
