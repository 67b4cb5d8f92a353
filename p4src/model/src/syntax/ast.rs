//! The program as it is written: names unresolved, types unchecked.

use std::rc::Rc;

use crate::source::Span;
use crate::source::lexer::Number;

/// A name and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Name {
    pub(crate) text: Rc<str>,
    pub(crate) span: Span,
}

/// `@name("x")`, `@pragma stage 3`, ...
#[derive(Debug, Clone)]
pub(crate) struct Annotation {
    pub(crate) name: Name,
    /// The first string in its body.
    pub(crate) text: Option<Rc<str>>,
}

#[derive(Debug, Clone)]
pub(crate) struct TypeExpr {
    pub(crate) kind: TypeKind,
    pub(crate) span: Span,
}

#[derive(Debug, Clone)]
pub(crate) enum TypeKind {
    Bool,
    Bit(Box<Expr>),
    Int(Box<Expr>),
    /// `int` without a width: constants only.
    AnyInt,
    Error,
    String,
    Void,
    Tuple(Vec<TypeExpr>),
    Named(Name, Vec<TypeExpr>),
    Stack(Box<TypeExpr>, Box<Expr>),
    /// `_` in a list of type arguments.
    DontCare,
}

#[derive(Debug, Clone)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) span: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnaryOp {
    Not,
    Complement,
    Minus,
    Plus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    SatAdd,
    SatSub,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Concat,
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    LogicAnd,
    LogicOr,
}

#[derive(Debug, Clone)]
pub(crate) struct Arg {
    pub(crate) name: Option<Name>,
    pub(crate) value: Expr,
}

#[derive(Debug, Clone)]
pub(crate) enum ExprKind {
    Number(Number),
    Bool(bool),
    Text,
    Path(Name),
    Member(Box<Expr>, Name),
    Index(Box<Expr>, Box<Expr>),
    /// `base[hi:lo]`
    Slice(Box<Expr>, Box<Expr>, Box<Expr>),
    Unary(UnaryOp, Box<Expr>),
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    Ternary(Box<Expr>, Box<Expr>, Box<Expr>),
    Cast(TypeExpr, Box<Expr>),
    Call(Box<Expr>, Vec<TypeExpr>, Vec<Arg>),
    List(Vec<Expr>),
    Record(Vec<(Name, Expr)>),
    /// `value &&& mask` in a key set.
    Mask(Box<Expr>, Box<Expr>),
    /// `low .. high` in a key set.
    Range(Box<Expr>, Box<Expr>),
    Default,
    DontCare,
    /// `error`, as in `error.NoMatch`.
    ErrorType,
}

#[derive(Debug, Clone)]
pub(crate) struct Stmt {
    pub(crate) kind: StmtKind,
    pub(crate) span: Span,
}

#[derive(Debug, Clone)]
pub(crate) enum StmtKind {
    Assign(Expr, Expr),
    Call(Expr),
    If(Expr, Box<Stmt>, Option<Box<Stmt>>),
    Switch(Expr, Vec<SwitchCase>),
    Block(Vec<Stmt>),
    Declare(Decl),
    Return(Option<Expr>),
    Exit,
    Empty,
}

#[derive(Debug, Clone)]
pub(crate) struct SwitchCase {
    pub(crate) label: SwitchLabel,
    /// `None` falls through to the next case.
    pub(crate) body: Option<Vec<Stmt>>,
}

#[derive(Debug, Clone)]
pub(crate) enum SwitchLabel {
    Default(Span),
    Value(Expr),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    None,
    In,
    Out,
    InOut,
}

#[derive(Debug, Clone)]
pub(crate) struct Param {
    pub(crate) direction: Direction,
    pub(crate) ty: TypeExpr,
    pub(crate) name: Name,
    pub(crate) default: Option<Expr>,
}

#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) ty: TypeExpr,
    pub(crate) name: Name,
}

#[derive(Debug, Clone)]
pub(crate) enum Decl {
    Const {
        ty: TypeExpr,
        name: Name,
        value: Expr,
    },
    Typedef {
        ty: TypeExpr,
        name: Name,
    },
    Header {
        name: Name,
        fields: Vec<Field>,
    },
    Struct {
        name: Name,
        fields: Vec<Field>,
    },
    Enum {
        name: Name,
        base: Option<TypeExpr>,
        members: Vec<(Name, Option<Expr>)>,
    },
    Errors(Vec<Name>),
    Variable {
        ty: TypeExpr,
        name: Name,
        value: Option<Expr>,
    },
    Instance(Rc<InstanceDecl>),
    ValueSet {
        ty: TypeExpr,
        size: Expr,
        name: Name,
    },
    Action(Rc<ActionDecl>),
    Function(Rc<FunctionDecl>),
    Table(Rc<TableDecl>),
    Parser(Rc<ParserDecl>),
    Control(Rc<ControlDecl>),
    /// A declaration that only names something built in (extern, package, `match_kind`, a type of
    /// parser or control).
    Nothing,
}

#[derive(Debug)]
pub(crate) struct InstanceDecl {
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) ty: TypeExpr,
    pub(crate) args: Vec<Arg>,
    pub(crate) name: Name,
    /// The methods between braces, as `RegisterAction` has.
    pub(crate) methods: Vec<Rc<FunctionDecl>>,
}

#[derive(Debug)]
pub(crate) struct ActionDecl {
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) name: Name,
    pub(crate) params: Vec<Param>,
    pub(crate) body: Vec<Stmt>,
}

#[derive(Debug)]
pub(crate) struct FunctionDecl {
    pub(crate) result: TypeExpr,
    pub(crate) name: Name,
    pub(crate) params: Vec<Param>,
    pub(crate) body: Vec<Stmt>,
}

#[derive(Debug)]
pub(crate) struct ControlDecl {
    pub(crate) name: Name,
    pub(crate) params: Vec<Param>,
    pub(crate) constructor: Vec<Param>,
    pub(crate) locals: Vec<Decl>,
    pub(crate) body: Vec<Stmt>,
}

#[derive(Debug)]
pub(crate) struct ParserDecl {
    pub(crate) name: Name,
    pub(crate) params: Vec<Param>,
    pub(crate) constructor: Vec<Param>,
    pub(crate) locals: Vec<Decl>,
    pub(crate) states: Vec<StateDecl>,
}

#[derive(Debug)]
pub(crate) struct StateDecl {
    pub(crate) name: Name,
    pub(crate) body: Vec<Stmt>,
    pub(crate) transition: Transition,
}

#[derive(Debug)]
pub(crate) enum Transition {
    /// No transition: the packet is rejected.
    Reject,
    To(Name),
    Select(Span, Vec<Expr>, Vec<SelectCase>),
}

#[derive(Debug)]
pub(crate) struct SelectCase {
    /// One for each selected expression, or a single `default` or `_`.
    pub(crate) keys: Vec<Expr>,
    pub(crate) target: Name,
}

#[derive(Debug)]
pub(crate) struct TableDecl {
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) name: Name,
    pub(crate) keys: Vec<KeyDecl>,
    pub(crate) actions: Vec<ActionRef>,
    /// The action and whether it is const.
    pub(crate) default_action: Option<(ActionRef, bool)>,
    /// The entries and whether they are const.
    pub(crate) entries: Option<(Vec<EntryDecl>, bool)>,
    pub(crate) size: Option<Expr>,
    /// `counters = x`: the direct counter of the table.
    pub(crate) counters: Option<Name>,
}

#[derive(Debug)]
pub(crate) struct KeyDecl {
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) value: Expr,
    pub(crate) kind: Name,
}

#[derive(Debug)]
pub(crate) struct ActionRef {
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) name: Name,
    pub(crate) args: Vec<Arg>,
}

#[derive(Debug)]
pub(crate) struct EntryDecl {
    pub(crate) span: Span,
    pub(crate) keys: Vec<Expr>,
    pub(crate) action: ActionRef,
}
