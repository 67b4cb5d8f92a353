//! Declarations, except tables.

use std::rc::Rc;

use super::Parser;
use super::ast::{
    ActionDecl, Annotation, ControlDecl, Decl, Direction, Field, FunctionDecl, InstanceDecl, Name,
    Param, ParserDecl, SelectCase, StateDecl, Transition, TypeExpr,
};
use crate::source::lexer::Kind;
use crate::source::{Res, fault};

impl Parser<'_> {
    pub(super) fn declaration(&mut self) -> Res<Decl> {
        let annotations = self.annotations()?;
        let token = self.peek();
        let Kind::Ident(word) = &token.kind else {
            let message = format!("expected a declaration, found {}", token.describe());
            return fault(token.span, message);
        };
        match &**word {
            "const" => self.constant(),
            "typedef" | "type" if !self.ahead(1).is("=") => {
                self.at += 1;
                let ty = self.type_expr()?;
                let name = self.name()?;
                self.expect(";")?;
                Ok(Decl::Typedef { ty, name })
            }
            "header" => {
                self.at += 1;
                let name = self.name()?;
                Ok(Decl::Header { name, fields: self.fields()? })
            }
            "struct" => {
                self.at += 1;
                let name = self.name()?;
                Ok(Decl::Struct { name, fields: self.fields()? })
            }
            "header_union" => fault(token.span, "header unions are not supported by the model"),
            "enum" => self.enumeration(),
            "error" if self.ahead(1).is("{") => {
                self.at += 2;
                Ok(Decl::Errors(self.list("}", Self::name)?))
            }
            "match_kind" => {
                self.at += 1;
                self.expect("{")?;
                self.list("}", Self::any_name)?;
                Ok(Decl::Nothing)
            }
            "extern" => fault(
                token.span,
                "extern objects are built into the model; they can't be declared here",
            ),
            "package" => fault(
                token.span,
                "packages (Pipeline, Switch) are built into the model; they can't be declared here",
            ),
            "parser" => self.parser(),
            "control" => self.control(),
            "action" => self.action(annotations),
            "table" => self.table(annotations),
            "value_set" => self.value_set(),
            _ => self.variable_function_or_instance(annotations),
        }
    }

    fn constant(&mut self) -> Res<Decl> {
        self.expect_word("const")?;
        let ty = self.type_expr()?;
        let name = self.name()?;
        self.expect("=")?;
        let value = self.expr()?;
        self.expect(";")?;
        Ok(Decl::Const { ty, name, value })
    }

    fn fields(&mut self) -> Res<Vec<Field>> {
        self.expect("{")?;
        let mut out = Vec::new();
        while !self.eat("}") {
            self.annotations()?;
            let ty = self.type_expr()?;
            let name = self.name()?;
            self.expect(";")?;
            out.push(Field { ty, name });
        }
        Ok(out)
    }

    fn enumeration(&mut self) -> Res<Decl> {
        self.expect_word("enum")?;
        let base = if self.is_word("bit") || self.is_word("int") {
            Some(self.type_expr()?)
        } else if self.ahead(1).is("{") {
            None
        } else {
            Some(self.type_expr()?)
        };
        let name = self.name()?;
        self.expect("{")?;
        let members = self.list("}", |this| {
            let member = this.name()?;
            let value = if this.eat("=") { Some(this.expr()?) } else { None };
            Ok((member, value))
        })?;
        Ok(Decl::Enum { name, base, members })
    }

    fn params(&mut self) -> Res<Vec<Param>> {
        self.expect("(")?;
        self.list(")", |this| {
            this.annotations()?;
            let direction = if this.eat_word("in") {
                Direction::In
            } else if this.eat_word("out") {
                Direction::Out
            } else if this.eat_word("inout") {
                Direction::InOut
            } else {
                Direction::None
            };
            let ty = this.type_expr()?;
            let name = this.name()?;
            let default = if this.eat("=") { Some(this.expr()?) } else { None };
            Ok(Param { direction, ty, name, default })
        })
    }

    /// `name<T>(params)`; generic parsers and controls are refused.
    fn signature(&mut self) -> Res<(Name, Vec<Param>, Vec<Param>)> {
        let name = self.name()?;
        if self.is("<") {
            return fault(self.span(), "type parameters here are not supported by the model");
        }
        let params = self.params()?;
        let constructor = if self.is("(") { self.params()? } else { Vec::new() };
        Ok((name, params, constructor))
    }

    fn control(&mut self) -> Res<Decl> {
        self.expect_word("control")?;
        let (name, params, constructor) = self.signature()?;
        if self.eat(";") {
            return Ok(Decl::Nothing);
        }
        self.expect("{")?;
        let mut locals = Vec::new();
        loop {
            let start = self.at;
            self.annotations()?;
            if self.eat_word("apply") {
                break;
            }
            self.at = start;
            locals.push(self.declaration()?);
        }
        let body = self.block()?;
        self.expect("}")?;
        Ok(Decl::Control(Rc::new(ControlDecl { name, params, constructor, locals, body })))
    }

    fn parser(&mut self) -> Res<Decl> {
        self.expect_word("parser")?;
        let (name, params, constructor) = self.signature()?;
        if self.eat(";") {
            return Ok(Decl::Nothing);
        }
        self.expect("{")?;
        let mut locals = Vec::new();
        let mut states = Vec::new();
        while !self.eat("}") {
            let start = self.at;
            self.annotations()?;
            if self.is_word("state") {
                states.push(self.state()?);
            } else {
                self.at = start;
                locals.push(self.declaration()?);
            }
        }
        Ok(Decl::Parser(Rc::new(ParserDecl { name, params, constructor, locals, states })))
    }

    fn state(&mut self) -> Res<StateDecl> {
        self.expect_word("state")?;
        let name = self.any_name()?;
        self.expect("{")?;
        let mut body = Vec::new();
        let mut transition = Transition::Reject;
        while !self.eat("}") {
            if self.eat_word("transition") {
                transition = self.transition()?;
                self.expect("}")?;
                break;
            }
            body.push(self.statement()?);
        }
        Ok(StateDecl { name, body, transition })
    }

    fn transition(&mut self) -> Res<Transition> {
        let span = self.span();
        if !self.eat_word("select") {
            let target = self.any_name()?;
            self.expect(";")?;
            return Ok(Transition::To(target));
        }
        self.expect("(")?;
        let subjects = self.list(")", Self::expr)?;
        self.expect("{")?;
        let mut cases = Vec::new();
        while !self.eat("}") {
            let keys = if subjects.len() > 1 && self.eat("(") {
                self.list(")", Self::key_expr)?
            } else {
                vec![self.key_expr()?]
            };
            self.expect(":")?;
            let target = self.any_name()?;
            self.expect(";")?;
            cases.push(SelectCase { keys, target });
        }
        self.eat(";");
        Ok(Transition::Select(span, subjects, cases))
    }

    fn action(&mut self, annotations: Vec<Annotation>) -> Res<Decl> {
        self.expect_word("action")?;
        let name = self.name()?;
        let params = self.params()?;
        let body = self.block()?;
        Ok(Decl::Action(Rc::new(ActionDecl { annotations, name, params, body })))
    }

    fn value_set(&mut self) -> Res<Decl> {
        self.expect_word("value_set")?;
        let mut types = self.type_args()?;
        let (Some(ty), true) = (types.pop(), types.is_empty()) else {
            return fault(self.span(), "a value set has one type");
        };
        self.expect("(")?;
        let size = self.expr()?;
        self.expect(")")?;
        let name = self.name()?;
        self.expect(";")?;
        Ok(Decl::ValueSet { ty, size, name })
    }

    fn variable_function_or_instance(&mut self, annotations: Vec<Annotation>) -> Res<Decl> {
        let ty = self.type_expr()?;
        if self.is("(") {
            return self.instance(annotations, ty);
        }
        let name = self.name()?;
        if self.is("<") {
            return fault(self.span(), "generic functions are not supported by the model");
        }
        if self.is("(") {
            return Ok(Decl::Function(Rc::new(self.function(ty, name)?)));
        }
        let value = if self.eat("=") { Some(self.expr()?) } else { None };
        self.expect(";")?;
        Ok(Decl::Variable { ty, name, value })
    }

    fn function(&mut self, result: TypeExpr, name: Name) -> Res<FunctionDecl> {
        let params = self.params()?;
        let body = self.block()?;
        Ok(FunctionDecl { result, name, params, body })
    }

    fn instance(&mut self, annotations: Vec<Annotation>, ty: TypeExpr) -> Res<Decl> {
        let args = self.args()?;
        let name = self.name()?;
        let mut methods = Vec::new();
        if self.eat("=") {
            self.expect("{")?;
            while !self.eat("}") {
                self.annotations()?;
                let result = self.type_expr()?;
                let method = self.any_name()?;
                methods.push(Rc::new(self.function(result, method)?));
            }
        }
        self.expect(";")?;
        Ok(Decl::Instance(Rc::new(InstanceDecl { annotations, ty, args, name, methods })))
    }
}
