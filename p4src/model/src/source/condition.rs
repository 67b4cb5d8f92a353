//! The expression of an `#if`: integers, names (0 when not defined), C's operators.

use super::lexer::{Kind, Token};
use super::{Res, Span, fault};

/// Value of the expression; macros are expanded already.
pub(crate) fn evaluate(tokens: &[Token], span: Span) -> Res<i128> {
    let mut reader = Reader { tokens, at: 0, span };
    let value = reader.binary(0)?;
    match reader.peek() {
        None => Ok(value),
        Some(token) => fault(span, format!("{} is left over in this condition", token.describe())),
    }
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    span: Span,
}

/// Operators by how tightly they bind; those of a level bind alike.
const LEVELS: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", "<=", ">", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl Reader<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn operator(&self, level: usize) -> Option<&'static str> {
        let token = self.peek()?;
        if token.is(">") && self.tokens.get(self.at + 1).is_some_and(|t| t.is(">") && !t.spaced) {
            return LEVELS[level].contains(&">>").then_some(">>");
        }
        LEVELS[level].iter().copied().find(|op| token.is(op))
    }

    fn binary(&mut self, level: usize) -> Res<i128> {
        if level == LEVELS.len() {
            return self.unary();
        }
        let mut left = self.binary(level + 1)?;
        while let Some(op) = self.operator(level) {
            self.at += if op == ">>" { 2 } else { 1 };
            let right = self.binary(level + 1)?;
            left = match apply(op, left, right) {
                Some(value) => value,
                None => return fault(self.span, format!("`{op}` has no value here")),
            };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Res<i128> {
        let Some(token) = self.peek().cloned() else {
            return fault(self.span, "this condition ends too early");
        };
        self.at += 1;
        match &token.kind {
            Kind::Number(n) => Ok(i128::try_from(n.value).unwrap_or(i128::MAX)),
            Kind::Ident(name) => Ok(i128::from(&**name == "true")),
            Kind::Punct("!") => Ok(i128::from(self.unary()? == 0)),
            Kind::Punct("-") => Ok(self.unary()?.wrapping_neg()),
            Kind::Punct("~") => Ok(!self.unary()?),
            Kind::Punct("(") => {
                let value = self.binary(0)?;
                if self.peek().is_some_and(|t| t.is(")")) {
                    self.at += 1;
                    return Ok(value);
                }
                fault(self.span, "a `)` is missing in this condition")
            }
            _ => fault(self.span, format!("{} has no place in a condition", token.describe())),
        }
    }
}

fn apply(op: &str, a: i128, b: i128) -> Option<i128> {
    let truth = |b: bool| Some(i128::from(b));
    match op {
        "||" => truth(a != 0 || b != 0),
        "&&" => truth(a != 0 && b != 0),
        "|" => Some(a | b),
        "^" => Some(a ^ b),
        "&" => Some(a & b),
        "==" => truth(a == b),
        "!=" => truth(a != b),
        "<" => truth(a < b),
        "<=" => truth(a <= b),
        ">" => truth(a > b),
        ">=" => truth(a >= b),
        "<<" => a.checked_shl(u32::try_from(b).ok()?),
        ">>" => a.checked_shr(u32::try_from(b).ok()?),
        "+" => a.checked_add(b),
        "-" => a.checked_sub(b),
        "*" => a.checked_mul(b),
        "/" => a.checked_div(b),
        _ => a.checked_rem(b),
    }
}
