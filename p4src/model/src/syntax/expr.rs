//! Types and expressions.

use super::Parser;
use super::ast::{Arg, BinaryOp, Expr, ExprKind, TypeExpr, TypeKind, UnaryOp};
use crate::source::lexer::{Kind, Number};
use crate::source::{Res, Span, fault};

/// Binary operators, loosest first; those of a level bind alike and to the left.
const LEVELS: &[&[(&str, BinaryOp)]] = &[
    &[("||", BinaryOp::LogicOr)],
    &[("&&", BinaryOp::LogicAnd)],
    &[("==", BinaryOp::Eq), ("!=", BinaryOp::Ne)],
    &[("<", BinaryOp::Lt), ("<=", BinaryOp::Le), (">", BinaryOp::Gt), (">=", BinaryOp::Ge)],
    &[("|", BinaryOp::Or)],
    &[("^", BinaryOp::Xor)],
    &[("&", BinaryOp::And)],
    &[("<<", BinaryOp::Shl), (">>", BinaryOp::Shr)],
    &[
        ("+", BinaryOp::Add),
        ("-", BinaryOp::Sub),
        ("|+|", BinaryOp::SatAdd),
        ("|-|", BinaryOp::SatSub),
        ("++", BinaryOp::Concat),
    ],
    &[("*", BinaryOp::Mul), ("/", BinaryOp::Div), ("%", BinaryOp::Mod)],
];

/// The levels that bind tighter than shifts: in the brackets of a type `>` and `>>` close.
const ABOVE_SHIFT: usize = 8;

fn make(kind: ExprKind, span: Span) -> Expr {
    Expr { kind, span }
}

impl Parser<'_> {
    pub(super) fn type_expr(&mut self) -> Res<TypeExpr> {
        self.nested(Self::any_type)
    }

    fn any_type(&mut self) -> Res<TypeExpr> {
        let span = self.span();
        let token = self.peek();
        let Kind::Ident(word) = &token.kind else {
            return fault(span, format!("expected a type, found {}", token.describe()));
        };
        let simple = match &**word {
            "bool" => Some(TypeKind::Bool),
            "error" => Some(TypeKind::Error),
            "string" => Some(TypeKind::String),
            "void" => Some(TypeKind::Void),
            "_" => Some(TypeKind::DontCare),
            "varbit" | "header_union" => {
                return fault(span, format!("`{word}` is not supported by the model"));
            }
            _ => None,
        };
        let kind = if let Some(kind) = simple {
            self.at += 1;
            kind
        } else if self.eat_word("bit") {
            if self.is("<") {
                TypeKind::Bit(Box::new(self.width()?))
            } else {
                let one = Number { value: 1, width: None };
                TypeKind::Bit(Box::new(make(ExprKind::Number(one), span)))
            }
        } else if self.eat_word("int") {
            if self.is("<") { TypeKind::Int(Box::new(self.width()?)) } else { TypeKind::AnyInt }
        } else if self.eat_word("tuple") {
            TypeKind::Tuple(self.type_args()?)
        } else {
            let name = self.name()?;
            let args = if self.is("<") { self.type_args()? } else { Vec::new() };
            TypeKind::Named(name, args)
        };
        let mut ty = TypeExpr { kind, span };
        while self.is("[") {
            self.at += 1;
            let size = self.expr()?;
            self.expect("]")?;
            ty = TypeExpr { kind: TypeKind::Stack(Box::new(ty), Box::new(size)), span };
        }
        Ok(ty)
    }

    /// `<width>`: a number, a name or any expression in parentheses.
    fn width(&mut self) -> Res<Expr> {
        self.expect("<")?;
        let width = self.binary(ABOVE_SHIFT)?;
        self.expect(">")?;
        Ok(width)
    }

    /// `<type, type, ...>`
    pub(super) fn type_args(&mut self) -> Res<Vec<TypeExpr>> {
        self.expect("<")?;
        self.list(">", Self::type_expr)
    }

    /// Type arguments, if that is what follows, and then a `(`.
    fn call_type_args(&mut self) -> Option<Vec<TypeExpr>> {
        self.attempt(|this| {
            let args = this.type_args().ok()?;
            this.is("(").then_some(args)
        })
    }

    /// `(arg, arg, name = arg)`
    pub(super) fn args(&mut self) -> Res<Vec<Arg>> {
        self.expect("(")?;
        self.list(")", |this| {
            let named = this.is_name(this.peek()) && this.ahead(1).is("=");
            let name = if named { Some(this.name()?) } else { None };
            if named {
                this.expect("=")?;
            }
            Ok(Arg { name, value: this.expr()? })
        })
    }

    pub(super) fn expr(&mut self) -> Res<Expr> {
        let condition = self.binary(0)?;
        if !self.eat("?") {
            return Ok(condition);
        }
        let span = condition.span;
        let then = self.expr()?;
        self.expect(":")?;
        let otherwise = self.expr()?;
        Ok(make(ExprKind::Ternary(Box::new(condition), Box::new(then), Box::new(otherwise)), span))
    }

    /// An element of a key set: an expression, `value &&& mask`, `low .. high`, `_`, `default`.
    pub(super) fn key_expr(&mut self) -> Res<Expr> {
        let span = self.span();
        if self.eat_word("default") {
            return Ok(make(ExprKind::Default, span));
        }
        let value = self.expr()?;
        if self.eat("&&&") {
            let mask = self.expr()?;
            return Ok(make(ExprKind::Mask(Box::new(value), Box::new(mask)), span));
        }
        if self.eat("..") {
            let high = self.expr()?;
            return Ok(make(ExprKind::Range(Box::new(value), Box::new(high)), span));
        }
        Ok(value)
    }

    fn operator(&self, level: usize) -> Option<(BinaryOp, usize)> {
        let token = self.peek();
        if token.is(">") && self.ahead(1).is(">") && !self.ahead(1).spaced {
            let shift = LEVELS[level].iter().any(|(_, op)| *op == BinaryOp::Shr);
            return shift.then_some((BinaryOp::Shr, 2));
        }
        LEVELS[level].iter().find(|(text, _)| token.is(text)).map(|(_, op)| (*op, 1))
    }

    fn binary(&mut self, level: usize) -> Res<Expr> {
        if level == LEVELS.len() {
            return self.unary();
        }
        let mut left = self.binary(level + 1)?;
        while let Some((op, length)) = self.operator(level) {
            let span = self.span();
            self.at += length;
            let right = self.binary(level + 1)?;
            left = make(ExprKind::Binary(op, Box::new(left), Box::new(right)), span);
        }
        Ok(left)
    }

    fn unary(&mut self) -> Res<Expr> {
        self.nested(Self::operand)
    }

    fn operand(&mut self) -> Res<Expr> {
        let span = self.span();
        for (text, op) in [
            ("!", UnaryOp::Not),
            ("~", UnaryOp::Complement),
            ("-", UnaryOp::Minus),
            ("+", UnaryOp::Plus),
        ] {
            if self.eat(text) {
                let operand = self.unary()?;
                return Ok(make(ExprKind::Unary(op, Box::new(operand)), span));
            }
        }
        if self.is("(")
            && let Some(ty) = self.attempt(Self::cast)
        {
            let operand = self.unary()?;
            return Ok(make(ExprKind::Cast(ty, Box::new(operand)), span));
        }
        let primary = self.primary()?;
        self.postfix(primary)
    }

    /// `(type)` in front of an operand. A name in parentheses is a cast only if an operand follows
    /// that could not continue an expression.
    fn cast(&mut self) -> Option<TypeExpr> {
        self.expect("(").ok()?;
        let ty = self.type_expr().ok()?;
        self.expect(")").ok()?;
        if matches!(ty.kind, TypeKind::Named(..)) {
            let follows = match &self.peek().kind {
                Kind::Ident(_) | Kind::Number(_) => true,
                Kind::Punct(p) => ["(", "~", "!", "{"].contains(p),
                _ => false,
            };
            if !follows {
                return None;
            }
        }
        Some(ty)
    }

    fn primary(&mut self) -> Res<Expr> {
        let token = self.peek();
        let span = token.span;
        match &token.kind {
            Kind::Number(number) => {
                self.at += 1;
                Ok(make(ExprKind::Number(*number), span))
            }
            Kind::Text(_) => {
                self.at += 1;
                Ok(make(ExprKind::Text, span))
            }
            Kind::Punct("(") => {
                self.at += 1;
                let inner = self.key_expr()?;
                if self.eat(",") {
                    let mut items = vec![inner];
                    items.extend(self.list(")", Self::key_expr)?);
                    return Ok(make(ExprKind::List(items), span));
                }
                self.expect(")")?;
                Ok(inner)
            }
            Kind::Punct("{") => self.braces(),
            Kind::Punct(".") => {
                // `.name` is the global name; the model's scopes make it the plain one.
                self.at += 1;
                let name = self.name()?;
                Ok(make(ExprKind::Path(name), span))
            }
            Kind::Ident(word) => {
                let kind = match &**word {
                    "true" => ExprKind::Bool(true),
                    "false" => ExprKind::Bool(false),
                    "_" => ExprKind::DontCare,
                    "error" => ExprKind::ErrorType,
                    "this" => return fault(span, "`this` is not supported by the model"),
                    _ => return Ok(make(ExprKind::Path(self.name()?), span)),
                };
                self.at += 1;
                Ok(make(kind, span))
            }
            _ => fault(span, format!("expected an expression, found {}", token.describe())),
        }
    }

    /// `{ a, b }` or `{ x = a, y = b }`
    fn braces(&mut self) -> Res<Expr> {
        let span = self.expect("{")?;
        if self.is_name(self.peek()) && self.ahead(1).is("=") {
            let fields = self.list("}", |this| {
                let name = this.name()?;
                this.expect("=")?;
                Ok((name, this.expr()?))
            })?;
            return Ok(make(ExprKind::Record(fields), span));
        }
        let items = self.list("}", Self::expr)?;
        Ok(make(ExprKind::List(items), span))
    }

    /// What follows an operand: members, indexes, slices and calls.
    pub(super) fn postfix(&mut self, mut base: Expr) -> Res<Expr> {
        loop {
            let span = base.span;
            if self.eat(".") {
                let name = self.any_name()?;
                base = make(ExprKind::Member(Box::new(base), name), span);
            } else if self.eat("[") {
                let first = self.expr()?;
                let kind = if self.eat(":") {
                    let low = self.expr()?;
                    ExprKind::Slice(Box::new(base), Box::new(first), Box::new(low))
                } else {
                    ExprKind::Index(Box::new(base), Box::new(first))
                };
                self.expect("]")?;
                base = make(kind, span);
            } else if self.is("(") {
                let args = self.args()?;
                base = make(ExprKind::Call(Box::new(base), Vec::new(), args), span);
            } else if self.is("<")
                && matches!(base.kind, ExprKind::Path(_) | ExprKind::Member(..))
                && let Some(types) = self.call_type_args()
            {
                let args = self.args()?;
                base = make(ExprKind::Call(Box::new(base), types, args), span);
            } else {
                return Ok(base);
            }
        }
    }
}
