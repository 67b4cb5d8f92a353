//! Makes the code of a loaded program shorter without changing what it does: bodies stand where
//! they run, scopes that nothing leaves early disappear, and frequent comparisons become one node.
//!
//! A packet through an edge switch takes some hundred nodes, and their number is what time it
//! takes.

use crate::ir::{Block, Code, Data, Expr, Next, Op, Stmt};

/// Rewrites all code of the program.
pub(crate) fn run(code: &mut Code) {
    let bodies = std::mem::take(&mut code.bodies);
    let exits = {
        let mut blocks = bodies.iter().chain([&code.ingress.control, &code.egress.control]);
        let mut actions = code.tables.iter().flat_map(|table| &table.actions);
        blocks.any(exits) || actions.any(|action| exits(&action.body))
    };
    let rewriter = Rewriter { bodies, exits };
    for gress in [&mut code.ingress, &mut code.egress] {
        gress.control = rewriter.block(&gress.control);
        gress.deparser = rewriter.block(&gress.deparser);
    }
    for table in &mut code.tables {
        for key in &mut table.keys {
            key.value = rewriter.expr(&key.value);
        }
        for action in &mut table.actions {
            action.body = rewriter.block(&action.body);
        }
    }
    for action in &mut code.register_actions {
        action.body = rewriter.block(&action.body);
    }
    for state in code.parsers.iter_mut().flat_map(|parser| &mut parser.states) {
        state.body = rewriter.block(&state.body);
        if let Next::Select { values, .. } = &mut state.next {
            values.iter_mut().for_each(|value| *value = rewriter.expr(value));
        }
    }
}

struct Rewriter {
    bodies: Vec<Block>,
    /// The program has an `exit` somewhere.
    exits: bool,
}

impl Rewriter {
    fn block(&self, block: &Block) -> Block {
        let mut out = Block::new();
        for stmt in block {
            self.statement(stmt, &mut out);
        }
        out
    }

    fn statement(&self, stmt: &Stmt, out: &mut Block) {
        let stmt = match stmt {
            Stmt::Call(body) => {
                out.extend(self.block(&self.bodies[*body as usize]));
                return;
            }
            Stmt::Scope { body, after } => {
                let (body, after) = (self.block(body), self.block(after));
                // What comes after must come even if an action exits.
                if !returns(&body) && (after.is_empty() || !self.exits) {
                    out.extend(body);
                    out.extend(after);
                    return;
                }
                Stmt::Scope { body, after }
            }
            Stmt::If { condition: Expr::Do(inner), then, otherwise } => {
                out.extend(self.block(&inner.0));
                let (condition, then, otherwise) =
                    (inner.1.clone(), then.clone(), otherwise.clone());
                self.statement(&Stmt::If { condition, then, otherwise }, out);
                return;
            }
            Stmt::If { condition, then, otherwise } => {
                let (then, otherwise) = (self.block(then), self.block(otherwise));
                let condition = self.expr(condition);
                if then.is_empty() && otherwise.is_empty() {
                    Stmt::Do(condition)
                } else {
                    Stmt::If { condition, then, otherwise }
                }
            }
            Stmt::Switch { table, cases, blocks } => {
                let blocks = blocks.iter().map(|block| self.block(block)).collect();
                Stmt::Switch { table: *table, cases: cases.clone(), blocks }
            }
            Stmt::Do(Expr::Do(inner)) => {
                out.extend(self.block(&inner.0));
                self.statement(&Stmt::Do(inner.1.clone()), out);
                return;
            }
            Stmt::Do(Expr::Const(_) | Expr::Slot(_)) => return,
            Stmt::Do(value) => Stmt::Do(self.expr(value)),
            Stmt::Set { slot, value: Expr::Do(inner) } => {
                out.extend(self.block(&inner.0));
                Stmt::Set { slot: *slot, value: self.expr(&inner.1) }
            }
            Stmt::Set { slot, value } => Stmt::Set { slot: *slot, value: self.expr(value) },
            Stmt::SetBits { slot, low, width, value } => {
                let value = self.expr(value);
                Stmt::SetBits { slot: *slot, low: *low, width: *width, value }
            }
            Stmt::Register { action, index, span } => {
                Stmt::Register { action: *action, index: self.expr(index), span: *span }
            }
            Stmt::Count { counter, index } => {
                Stmt::Count { counter: *counter, index: self.expr(index) }
            }
            Stmt::Advance(by) => Stmt::Advance(self.expr(by)),
            Stmt::ChecksumAdd { unit, data, subtract } => {
                Stmt::ChecksumAdd { unit: *unit, data: self.data(data), subtract: *subtract }
            }
            Stmt::Mirror { session, data } => {
                Stmt::Mirror { session: self.expr(session), data: self.data(data) }
            }
            Stmt::Resubmit { data } => Stmt::Resubmit { data: self.data(data) },
            Stmt::Digest { digest, data } => {
                Stmt::Digest { digest: *digest, data: self.data(data) }
            }
            other => other.clone(),
        };
        out.push(stmt);
    }

    fn data(&self, data: &Data) -> Data {
        let mut data = data.clone();
        data.fields.iter_mut().for_each(|field| field.value = self.expr(&field.value));
        data
    }

    fn expr(&self, expr: &Expr) -> Expr {
        let boxed = |expr: &Expr| Box::new(self.expr(expr));
        match expr {
            Expr::Op { op, width, a, b } => match (op, &**a, &**b) {
                (Op::Eq, Expr::Slot(slot), Expr::Const(value)) => {
                    Expr::Is { slot: *slot, value: *value }
                }
                _ => Expr::Op { op: *op, width: *width, a: boxed(a), b: boxed(b) },
            },
            Expr::Slice { value, low, width } => {
                Expr::Slice { value: boxed(value), low: *low, width: *width }
            }
            Expr::Concat { high, low, low_width } => {
                Expr::Concat { high: boxed(high), low: boxed(low), low_width: *low_width }
            }
            Expr::LogicAnd(a, b) => Expr::LogicAnd(boxed(a), boxed(b)),
            Expr::LogicOr(a, b) => Expr::LogicOr(boxed(a), boxed(b)),
            Expr::LogicNot(a) => Expr::LogicNot(boxed(a)),
            Expr::Complement { value, width } => {
                Expr::Complement { value: boxed(value), width: *width }
            }
            Expr::Negate { value, width } => Expr::Negate { value: boxed(value), width: *width },
            Expr::SignExtend { value, from, to } => {
                Expr::SignExtend { value: boxed(value), from: *from, to: *to }
            }
            Expr::Choose(parts) => {
                Expr::Choose(Box::new([0, 1, 2].map(|part| self.expr(&parts[part]))))
            }
            Expr::Hash { hash, data } => Expr::Hash { hash: *hash, data: self.data(data) },
            Expr::Element { stack, index, count, size, field } => Expr::Element {
                stack: *stack,
                index: boxed(index),
                count: *count,
                size: *size,
                field: *field,
            },
            Expr::ChecksumUpdate { data, zeros_as_ones } => {
                Expr::ChecksumUpdate { data: self.data(data), zeros_as_ones: boxed(zeros_as_ones) }
            }
            Expr::Do(inner) => Expr::Do(Box::new((self.block(&inner.0), self.expr(&inner.1)))),
            other => other.clone(),
        }
    }
}

/// A `return` leaves the block; those of a scope within stay within.
fn returns(block: &Block) -> bool {
    block.iter().any(|stmt| match stmt {
        Stmt::Return => true,
        Stmt::If { then, otherwise, .. } => returns(then) || returns(otherwise),
        Stmt::Switch { blocks, .. } => blocks.iter().any(returns),
        _ => false,
    })
}

/// There is an `exit` in the block or below.
fn exits(block: &Block) -> bool {
    block.iter().any(|stmt| match stmt {
        Stmt::Exit => true,
        Stmt::If { then, otherwise, .. } => exits(then) || exits(otherwise),
        Stmt::Switch { blocks, .. } => blocks.iter().any(exits),
        Stmt::Scope { body, after } => exits(body) || exits(after),
        _ => false,
    })
}
