//! From tokens to the tree: a recursive-descent parser of P4_16.
//!
//! One file for each of types and expressions, statements, and declarations. The parser does not
//! know which names are types; where the grammar needs it (`a < b` or a list of type arguments, a
//! declaration or a statement) it tries the one and falls back to the other.

pub(crate) mod ast;
mod decl;
mod expr;
mod stmt;
mod table;

use crate::source::lexer::{Kind, Token};
use crate::source::{Res, Span, fault};
use ast::{Annotation, Decl, Name};

/// All declarations of a program.
pub(crate) fn program(tokens: &[Token]) -> Res<Vec<Decl>> {
    let mut parser = Parser { tokens, at: 0, depth: 0 };
    let mut out = Vec::new();
    while parser.peek().kind != Kind::End {
        if parser.eat(";") {
            continue;
        }
        out.push(parser.declaration()?);
    }
    Ok(out)
}

/// Reads tokens one after the other. The last token is always [`Kind::End`].
struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    /// Expressions, types and statements that are open.
    depth: usize,
}

/// Deepest nesting, far above what people write and far below what the stack holds.
const MAX_DEPTH: usize = 128;

/// Words that can't name anything.
const RESERVED: &[&str] = &[
    "abstract",
    "action",
    "apply",
    "bit",
    "bool",
    "const",
    "control",
    "default",
    "else",
    "enum",
    "error",
    "exit",
    "extern",
    "false",
    "header",
    "header_union",
    "if",
    "in",
    "inout",
    "int",
    "match_kind",
    "out",
    "package",
    "parser",
    "return",
    "select",
    "state",
    "string",
    "struct",
    "switch",
    "table",
    "transition",
    "true",
    "tuple",
    "typedef",
    "value_set",
    "varbit",
    "void",
];

impl<'a> Parser<'a> {
    fn peek(&self) -> &'a Token {
        self.ahead(0)
    }

    fn ahead(&self, count: usize) -> &'a Token {
        &self.tokens[(self.at + count).min(self.tokens.len() - 1)]
    }

    fn next(&mut self) -> &'a Token {
        let token = self.peek();
        if token.kind != Kind::End {
            self.at += 1;
        }
        token
    }

    fn span(&self) -> Span {
        self.peek().span
    }

    fn is(&self, punct: &str) -> bool {
        self.peek().is(punct)
    }

    fn is_word(&self, word: &str) -> bool {
        self.peek().is_word(word)
    }

    fn eat(&mut self, punct: &str) -> bool {
        let found = self.is(punct);
        self.at += usize::from(found);
        found
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, punct: &str) -> Res<Span> {
        let span = self.span();
        if self.eat(punct) {
            return Ok(span);
        }
        fault(span, format!("expected `{punct}`, found {}", self.peek().describe()))
    }

    fn expect_word(&mut self, word: &str) -> Res<Span> {
        let span = self.span();
        if self.eat_word(word) {
            return Ok(span);
        }
        fault(span, format!("expected `{word}`, found {}", self.peek().describe()))
    }

    /// Any identifier that is no reserved word.
    fn name(&mut self) -> Res<Name> {
        let token = self.peek();
        match &token.kind {
            Kind::Ident(text) if !RESERVED.contains(&&**text) => {
                self.at += 1;
                Ok(Name { text: text.clone(), span: token.span })
            }
            _ => fault(token.span, format!("expected a name, found {}", token.describe())),
        }
    }

    /// A name where reserved words do no harm: after a dot, and of a state or property.
    fn any_name(&mut self) -> Res<Name> {
        let token = self.next();
        match &token.kind {
            Kind::Ident(text) => Ok(Name { text: text.clone(), span: token.span }),
            _ => fault(token.span, format!("expected a name, found {}", token.describe())),
        }
    }

    fn is_name(&self, token: &Token) -> bool {
        matches!(&token.kind, Kind::Ident(text) if !RESERVED.contains(&&**text))
    }

    /// `item , item , ...` up to `end`, which is read too. A comma may close the list.
    fn list<T>(&mut self, end: &str, mut item: impl FnMut(&mut Self) -> Res<T>) -> Res<Vec<T>> {
        let mut out = Vec::new();
        while !self.eat(end) {
            out.push(item(self)?);
            if !self.eat(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok(out)
    }

    /// Runs `part` one level deeper.
    fn nested<T>(&mut self, part: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        if self.depth == MAX_DEPTH {
            return fault(self.span(), "this is nested too deeply");
        }
        self.depth += 1;
        let result = part(self);
        self.depth -= 1;
        result
    }

    /// Runs `attempt`; if it gives nothing, the position is as before.
    fn attempt<T>(&mut self, attempt: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let start = self.at;
        let found = attempt(self);
        if found.is_none() {
            self.at = start;
        }
        found
    }

    fn annotations(&mut self) -> Res<Vec<Annotation>> {
        let mut out = Vec::new();
        while self.eat("@") {
            let name = self.any_name()?;
            let mut text = None;
            if &*name.text == "pragma" {
                while !self.peek().starts_line {
                    self.at += 1;
                }
            } else if self.is("(") || self.is("[") {
                let open = self.span();
                let mut depth = 0;
                loop {
                    let token = self.next();
                    match &token.kind {
                        Kind::Punct("(" | "[" | "{") => depth += 1,
                        Kind::Punct(")" | "]" | "}") => depth -= 1,
                        Kind::Text(value) if text.is_none() => text = Some(value.clone()),
                        Kind::End => return fault(open, "this annotation is never closed"),
                        _ => {}
                    }
                    if depth == 0 {
                        break;
                    }
                }
            }
            out.push(Annotation { name, text });
        }
        Ok(out)
    }
}
