//! Tables and their properties.

use std::rc::Rc;

use super::Parser;
use super::ast::{ActionRef, Annotation, Decl, EntryDecl, ExprKind, KeyDecl, Name, TableDecl};
use crate::source::{Res, fault};

/// Properties that only guide a compiler.
const HINTS: &[&str] = &["requires_versioning", "psa_empty_group_action"];

impl Parser<'_> {
    pub(super) fn table(&mut self, annotations: Vec<Annotation>) -> Res<Decl> {
        self.expect_word("table")?;
        let name = self.name()?;
        self.expect("{")?;
        let mut table = TableDecl {
            annotations,
            name,
            keys: Vec::new(),
            actions: Vec::new(),
            default_action: None,
            entries: None,
            size: None,
            counters: None,
        };
        while !self.eat("}") {
            self.annotations()?;
            let constant = self.eat_word("const");
            let property = self.any_name()?;
            self.expect("=")?;
            self.property(&mut table, &property, constant)?;
        }
        Ok(Decl::Table(Rc::new(table)))
    }

    fn property(&mut self, table: &mut TableDecl, property: &Name, constant: bool) -> Res<()> {
        match &*property.text {
            "key" => {
                self.expect("{")?;
                while !self.eat("}") {
                    let value = self.expr()?;
                    self.expect(":")?;
                    let kind = self.name()?;
                    let annotations = self.annotations()?;
                    self.expect(";")?;
                    table.keys.push(KeyDecl { annotations, value, kind });
                }
                self.eat(";");
                return Ok(());
            }
            "actions" => {
                self.expect("{")?;
                while !self.eat("}") {
                    table.actions.push(self.action_ref()?);
                    self.expect(";")?;
                }
                self.eat(";");
                return Ok(());
            }
            "entries" => {
                table.entries = Some((self.entries()?, constant));
                self.eat(";");
                return Ok(());
            }
            "default_action" => table.default_action = Some((self.action_ref()?, constant)),
            "size" => table.size = Some(self.expr()?),
            "counters" => {
                let counter = self.expr()?;
                let ExprKind::Path(name) = counter.kind else {
                    return fault(counter.span, "`counters` names a DirectCounter");
                };
                table.counters = Some(name);
            }
            hint if HINTS.contains(&hint) => {
                self.expr()?;
            }
            other => {
                let message = format!("the table property `{other}` is not supported by the model");
                return fault(property.span, message);
            }
        }
        self.expect(";")?;
        Ok(())
    }

    /// `action`, `action()` or `action(args)`
    fn action_ref(&mut self) -> Res<ActionRef> {
        let annotations = self.annotations()?;
        self.eat(".");
        let name = self.name()?;
        let args = if self.is("(") { self.args()? } else { Vec::new() };
        Ok(ActionRef { annotations, name, args })
    }

    fn entries(&mut self) -> Res<Vec<EntryDecl>> {
        self.expect("{")?;
        let mut out = Vec::new();
        while !self.eat("}") {
            self.annotations()?;
            let span = self.span();
            if self.is_word("priority") && self.ahead(1).is("=") || self.is_word("const") {
                return fault(
                    span,
                    "entries take their priority from their order; leave `const`/`priority` out",
                );
            }
            let keys = if self.eat("(") {
                self.list(")", Self::key_expr)?
            } else {
                vec![self.key_expr()?]
            };
            self.expect(":")?;
            let action = self.action_ref()?;
            self.expect(";")?;
            out.push(EntryDecl { span, keys, action });
        }
        Ok(out)
    }
}
