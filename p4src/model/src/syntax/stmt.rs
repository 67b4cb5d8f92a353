//! Statements.

use super::Parser;
use super::ast::{ExprKind, Stmt, StmtKind, SwitchCase, SwitchLabel};
use crate::source::lexer::Kind;
use crate::source::{Res, fault};

impl Parser<'_> {
    /// `{ statement ... }`
    pub(super) fn block(&mut self) -> Res<Vec<Stmt>> {
        self.annotations()?;
        let open = self.expect("{")?;
        let mut out = Vec::new();
        while !self.eat("}") {
            if self.peek().kind == Kind::End {
                return fault(open, "this block is never closed with `}`");
            }
            out.push(self.statement()?);
        }
        Ok(out)
    }

    pub(super) fn statement(&mut self) -> Res<Stmt> {
        self.nested(Self::any_statement)
    }

    fn any_statement(&mut self) -> Res<Stmt> {
        let before = self.at;
        self.annotations()?;
        let span = self.span();
        let kind = if self.eat(";") {
            StmtKind::Empty
        } else if self.is("{") {
            StmtKind::Block(self.block()?)
        } else if self.eat_word("if") {
            self.expect("(")?;
            let condition = self.expr()?;
            self.expect(")")?;
            let then = Box::new(self.statement()?);
            let otherwise =
                if self.eat_word("else") { Some(Box::new(self.statement()?)) } else { None };
            StmtKind::If(condition, then, otherwise)
        } else if self.eat_word("switch") {
            self.switch()?
        } else if self.eat_word("return") {
            let value = if self.is(";") { None } else { Some(self.expr()?) };
            self.expect(";")?;
            StmtKind::Return(value)
        } else if self.eat_word("exit") {
            self.expect(";")?;
            StmtKind::Exit
        } else if self.starts_declaration() {
            self.at = before;
            StmtKind::Declare(self.declaration()?)
        } else {
            self.assignment_or_call()?
        };
        Ok(Stmt { kind, span })
    }

    /// A declaration begins with a reserved word, or is `Type name` or `Type<...>(...) name`.
    fn starts_declaration(&mut self) -> bool {
        let Kind::Ident(word) = &self.peek().kind else { return false };
        if ["const", "bit", "int", "bool", "error", "tuple", "varbit", "string"].contains(&&**word)
        {
            return true;
        }
        let start = self.at;
        let found = self.type_expr().is_ok() && {
            if self.is("(") && self.args().is_err() { false } else { self.is_name(self.peek()) }
        };
        self.at = start;
        found
    }

    fn assignment_or_call(&mut self) -> Res<StmtKind> {
        let target = self.expr()?;
        if self.eat("=") {
            let value = self.expr()?;
            self.expect(";")?;
            return Ok(StmtKind::Assign(target, value));
        }
        if !matches!(target.kind, ExprKind::Call(..)) {
            let message = format!("expected `=` or a call, found {}", self.peek().describe());
            return fault(self.span(), message);
        }
        self.expect(";")?;
        Ok(StmtKind::Call(target))
    }

    fn switch(&mut self) -> Res<StmtKind> {
        self.expect("(")?;
        let subject = self.expr()?;
        self.expect(")")?;
        self.expect("{")?;
        let mut cases = Vec::new();
        while !self.eat("}") {
            let span = self.span();
            let label = if self.eat_word("default") {
                SwitchLabel::Default(span)
            } else {
                SwitchLabel::Value(self.expr()?)
            };
            self.expect(":")?;
            let body = if self.is("{") { Some(self.block()?) } else { None };
            cases.push(SwitchCase { label, body });
        }
        Ok(StmtKind::Switch(subject, cases))
    }
}
