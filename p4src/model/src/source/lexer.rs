//! Cuts a file into tokens.
//!
//! The tokens serve the preprocessor too, so they remember whether they begin a line and whether
//! white space precedes them. `>` is never joined with a following `>`, because `bit<bit<8>>`
//! ends two lists; the expression parser joins them where a shift is meant.

use std::rc::Rc;

use super::{Res, Span, fault};

/// An integer as written: `16w0xFFFF`, `8s-1`, `42`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Number {
    pub(crate) value: u128,
    /// Width and whether it is signed, if the literal says so.
    pub(crate) width: Option<(u16, bool)>,
}

/// What a token is. Keywords are identifiers; the parser tells them apart.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Kind {
    Ident(Rc<str>),
    Number(Number),
    Text(Rc<str>),
    Punct(&'static str),
    End,
}

/// A token and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) span: Span,
    /// First token of its line.
    pub(crate) starts_line: bool,
    /// White space or a comment precedes it.
    pub(crate) spaced: bool,
}

impl Token {
    pub(crate) fn is(&self, punct: &str) -> bool {
        matches!(self.kind, Kind::Punct(p) if p == punct)
    }

    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Ident(name) if &**name == word)
    }

    /// The token as an error message shows it.
    pub(crate) fn describe(&self) -> String {
        match &self.kind {
            Kind::Ident(name) => format!("`{name}`"),
            Kind::Number(n) => format!("number {}", n.value),
            Kind::Text(text) => format!("\"{text}\""),
            Kind::Punct(p) => format!("`{p}`"),
            Kind::End => "the end of the file".into(),
        }
    }
}

/// Longest first, so that the first that fits is the right one.
const PUNCTUATION: &[&str] = &[
    "&&&", "|+|", "|-|", "...", "&&", "||", "++", "==", "!=", "<=", ">=", "<<", "..", "##", "{",
    "}", "(", ")", "[", "]", "<", ">", ";", ":", ",", ".", "=", "+", "-", "*", "/", "%", "&", "|",
    "^", "~", "!", "?", "@", "#",
];

/// All tokens of one file, with a closing [`Kind::End`].
pub(crate) fn tokens(file: u16, text: &str) -> Res<Vec<Token>> {
    let mut lexer = Lexer { text, at: 0, file, line: 1, line_start: 0 };
    let mut out = Vec::new();
    loop {
        let before = lexer.at;
        let newline = lexer.skip_blank()? || before == 0;
        let spaced = lexer.at != before;
        let span = lexer.span();
        let kind = lexer.token()?;
        let end = kind == Kind::End;
        out.push(Token { kind, span, starts_line: newline || end, spaced });
        if end {
            return Ok(out);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    file: u16,
    line: u32,
    line_start: usize,
}

impl Lexer<'_> {
    fn span(&self) -> Span {
        let column = u16::try_from(self.at - self.line_start + 1).unwrap_or(u16::MAX);
        Span { file: self.file, column, line: self.line }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn new_line(&mut self) {
        self.line += 1;
        self.line_start = self.at;
    }

    /// Skips white space and comments; true if a line ended.
    fn skip_blank(&mut self) -> Res<bool> {
        let mut newline = false;
        loop {
            let rest = self.rest();
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                let span = self.span();
                let Some(length) = rest.find("*/") else {
                    return fault(span, "this comment is never closed with */");
                };
                let end = self.at + length + 2;
                while let Some(next) = self.text[self.at..end].find('\n') {
                    self.at += next + 1;
                    self.new_line();
                    newline = true;
                }
                self.at = end;
            } else if rest.starts_with("\\\n") {
                self.at += 2;
                self.new_line();
            } else if rest.starts_with("\\\r\n") {
                self.at += 3;
                self.new_line();
            } else if rest.starts_with('\n') {
                self.at += 1;
                self.new_line();
                newline = true;
            } else if let Some(c) = rest.chars().next().filter(|c| c.is_whitespace()) {
                self.at += c.len_utf8();
            } else {
                return Ok(newline);
            }
        }
    }

    fn token(&mut self) -> Res<Kind> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Kind::End) };
        if first.is_ascii_alphabetic() || first == '_' {
            let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
            return Ok(Kind::Ident(word.into()));
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        if first == '"' {
            return self.string();
        }
        for punct in PUNCTUATION {
            if rest.starts_with(punct) {
                self.at += punct.len();
                return Ok(Kind::Punct(punct));
            }
        }
        fault(self.span(), format!("`{first}` is no part of P4"))
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &str {
        let start = self.at;
        let length = self.rest().find(|c| !keep(c)).unwrap_or(self.rest().len());
        self.at += length;
        &self.text[start..self.at]
    }

    fn string(&mut self) -> Res<Kind> {
        let span = self.span();
        let mut value = String::new();
        let mut escaped = false;
        for (offset, c) in self.text[self.at + 1..].char_indices() {
            match c {
                '\n' => break,
                _ if escaped => {
                    value.push(if c == 'n' { '\n' } else { c });
                    escaped = false;
                }
                '\\' => escaped = true,
                '"' => {
                    self.at += offset + 2;
                    return Ok(Kind::Text(value.into()));
                }
                _ => value.push(c),
            }
        }
        fault(span, "this string is not closed on its line")
    }

    fn number(&mut self) -> Res<Kind> {
        let span = self.span();
        let word = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_').to_owned();
        // A width prefix is decimal digits and then w or s; hexadecimal digits hold neither.
        let (width, digits) = match word.find(['w', 's']) {
            Some(at) => {
                let Ok(width) = word[..at].parse::<u16>() else {
                    return fault(span, format!("`{word}` is no number"));
                };
                (Some((width, word[at..].starts_with('s'))), &word[at + 1..])
            }
            None => (None, &*word),
        };
        let (radix, digits) = match digits.get(..2) {
            Some("0x" | "0X") => (16, &digits[2..]),
            Some("0b" | "0B") => (2, &digits[2..]),
            Some("0o" | "0O") => (8, &digits[2..]),
            Some("0d" | "0D") => (10, &digits[2..]),
            _ => (10, digits),
        };
        let digits: String = digits.chars().filter(|&c| c != '_').collect();
        match u128::from_str_radix(&digits, radix) {
            Ok(value) => Ok(Kind::Number(Number { value, width })),
            Err(_) => fault(span, format!("`{word}` is no number of at most 128 bits")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Vec<Kind> {
        tokens(0, text).unwrap().into_iter().map(|t| t.kind).collect()
    }

    fn number(value: u128, width: Option<(u16, bool)>) -> Kind {
        Kind::Number(Number { value, width })
    }

    #[test]
    fn numbers_keep_their_width_and_radix() {
        assert_eq!(
            kinds("16w0xFFFF 8s12 0b1010_1010 1_000 4w5 0xdeadbeef"),
            [
                number(0xffff, Some((16, false))),
                number(12, Some((8, true))),
                number(0b1010_1010, None),
                number(1000, None),
                number(5, Some((4, false))),
                number(0xdead_beef, None),
                Kind::End
            ]
        );
    }

    #[test]
    fn the_longest_operator_wins_but_closing_angles_stay_apart() {
        let found = kinds("a |+| b &&& c >> d");
        assert_eq!(found[1], Kind::Punct("|+|"));
        assert_eq!(found[3], Kind::Punct("&&&"));
        assert_eq!((&found[5], &found[6]), (&Kind::Punct(">"), &Kind::Punct(">")));
    }

    #[test]
    fn lines_are_counted_through_comments_and_continuations() {
        let all = tokens(0, "a /* x\n y */ b \\\n c\n// d\ne").unwrap();
        let lines: Vec<_> = all.iter().map(|t| (t.span.line, t.starts_line)).collect();
        assert_eq!(lines, [(1, true), (2, true), (3, false), (5, true), (5, true)]);
    }

    #[test]
    fn what_is_not_closed_is_named_by_its_line() {
        assert_eq!(tokens(0, "a\n/* b").unwrap_err().span.line, 2);
        assert_eq!(tokens(0, "a\n\n\"b\nc\"").unwrap_err().span.line, 3);
        assert_eq!(tokens(0, "a\n12z4").unwrap_err().span.line, 2);
    }
}
