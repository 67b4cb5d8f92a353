//! The C preprocessor, as far as P4 programs use it: `#include`, `#define` with and without
//! parameters, `#undef`, `#if` and its family, `#error`, `#line` and `#pragma` ignored.
//!
//! It works on tokens, so every token keeps the line it came from; those of a macro get the line
//! where the macro is used. Pasting (`##`) and `#`-strings are refused.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::lexer::{self, Kind, Token};
use super::{Fault, Res, SourceMap, Span, condition, fault};
use crate::arch;
use crate::error::LoadError;

/// Macros given from outside, as `-D name=value` does.
pub(crate) type Defines = [(String, String)];

struct Macro {
    /// `None` for a macro without parentheses.
    params: Option<Vec<Rc<str>>>,
    body: Vec<Token>,
}

/// A conditional that is open.
struct Branch {
    span: Span,
    /// The lines here are read.
    active: bool,
    /// One of its branches was read already.
    taken: bool,
    /// The surrounding lines are read.
    outer: bool,
}

/// Deepest nesting of includes, far above what any program needs.
const MAX_DEPTH: usize = 64;

pub(crate) struct Preprocessor<'a> {
    map: &'a mut SourceMap,
    macros: HashMap<Rc<str>, Macro>,
    out: Vec<Token>,
    depth: usize,
}

/// Either a fault in the text or a file that can't be read.
pub(crate) enum Stop {
    Fault(Fault),
    Load(LoadError),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Stop {
        Stop::Fault(fault)
    }
}

/// The tokens of the program at `path`, everything included.
pub(crate) fn file(
    path: &Path,
    defines: &Defines,
    map: &mut SourceMap,
) -> Result<Vec<Token>, Stop> {
    let text = read(path).map_err(Stop::Load)?;
    program(&path.display().to_string(), &text, path.parent(), defines, map)
}

/// The tokens of a program given as text; its includes are looked for in `folder`.
pub(crate) fn program(
    name: &str,
    text: &str,
    folder: Option<&Path>,
    defines: &Defines,
    map: &mut SourceMap,
) -> Result<Vec<Token>, Stop> {
    let mut this = Preprocessor { map, macros: HashMap::new(), out: Vec::new(), depth: 0 };
    this.define_text("__TARGET_TOFINO__", "1")?;
    for (name, value) in defines {
        this.define_text(name, value)?;
    }
    let end = this.include(name, text, folder)?;
    this.out.push(end);
    Ok(this.out)
}

fn read(path: &Path) -> Result<String, LoadError> {
    std::fs::read_to_string(path)
        .map_err(|source| LoadError::Read { path: path.display().to_string(), source })
}

impl Preprocessor<'_> {
    fn define_text(&mut self, name: &str, value: &str) -> Result<(), Stop> {
        let file = self.map.add("<command line>");
        let mut body = lexer::tokens(file, value)?;
        body.pop();
        self.macros.insert(name.into(), Macro { params: None, body });
        Ok(())
    }

    /// Reads one file to its end; gives its end token.
    fn include(&mut self, name: &str, text: &str, folder: Option<&Path>) -> Result<Token, Stop> {
        let file = self.map.add(name);
        let tokens = lexer::tokens(file, text)?;
        let mut branches: Vec<Branch> = Vec::new();
        let mut at = 0;
        loop {
            let token = &tokens[at];
            if token.kind == Kind::End {
                return match branches.last() {
                    Some(open) => {
                        Err(Fault { span: open.span, message: "this #if has no #endif".into() }
                            .into())
                    }
                    None => Ok(token.clone()),
                };
            }
            if token.is("#") && token.starts_line {
                let end = at + 1 + line_length(&tokens[at + 1..]);
                self.directive(&tokens[at + 1..end], token.span, &mut branches, folder)?;
                at = end;
            } else if branches.last().is_none_or(|b| b.active) {
                // A macro call may span lines but not directives.
                let end = tokens[at..]
                    .iter()
                    .position(|t| t.kind == Kind::End || (t.is("#") && t.starts_line))
                    .map_or(tokens.len(), |length| at + length);
                let expanded = self.expand(&tokens[at..end], None, &mut Vec::new())?;
                self.out.extend(expanded);
                at = end;
            } else {
                at += 1;
            }
        }
    }

    fn directive(
        &mut self,
        line: &[Token],
        span: Span,
        branches: &mut Vec<Branch>,
        folder: Option<&Path>,
    ) -> Result<(), Stop> {
        let Some((first, rest)) = line.split_first() else { return Ok(()) };
        let Kind::Ident(word) = &first.kind else {
            return Ok(fault(span, format!("#{} is no directive", first.describe()))?);
        };
        let active = branches.last().is_none_or(|b| b.active);
        match &**word {
            "if" | "ifdef" | "ifndef" => {
                let holds = active && self.holds(word, rest, span)?;
                branches.push(Branch { span, active: holds, taken: holds, outer: active });
                return Ok(());
            }
            "elif" | "else" => {
                let Some(open) = branches.last() else {
                    return Ok(fault(span, format!("#{word} without #if"))?);
                };
                let may = open.outer && !open.taken;
                let holds = may && (&**word == "else" || self.holds("if", rest, span)?);
                if let Some(open) = branches.last_mut() {
                    open.active = holds;
                    open.taken |= holds;
                }
                return Ok(());
            }
            "endif" => {
                if branches.pop().is_none() {
                    return Ok(fault(span, "#endif without #if")?);
                }
                return Ok(());
            }
            _ if !active => return Ok(()),
            _ => {}
        }
        match &**word {
            "include" => self.include_directive(rest, span, folder),
            "define" => Ok(self.define(rest, span)?),
            "undef" => {
                if let Some(Kind::Ident(name)) = rest.first().map(|t| &t.kind) {
                    self.macros.remove(name);
                }
                Ok(())
            }
            "error" => Ok(fault(span, format!("#error {}", spell(rest, true)))?),
            "line" | "pragma" | "warning" => Ok(()),
            _ => Ok(fault(span, format!("#{word} is no directive that the model knows"))?),
        }
    }

    fn holds(&mut self, word: &str, rest: &[Token], span: Span) -> Res<bool> {
        if word == "if" {
            let plain = self.replace_defined(rest, span)?;
            let expanded = self.expand(&plain, None, &mut Vec::new())?;
            return Ok(condition::evaluate(&expanded, span)? != 0);
        }
        match rest.first().map(|t| &t.kind) {
            Some(Kind::Ident(name)) => Ok(self.macros.contains_key(name) == (word == "ifdef")),
            _ => fault(span, format!("#{word} needs a name")),
        }
    }

    /// `defined(X)` and `defined X` become 1 or 0.
    fn replace_defined(&self, tokens: &[Token], span: Span) -> Res<Vec<Token>> {
        let mut out = Vec::new();
        let mut rest = tokens.iter();
        while let Some(token) = rest.next() {
            if !token.is_word("defined") {
                out.push(token.clone());
                continue;
            }
            let mut next = rest.next();
            let bracket = next.is_some_and(|t| t.is("("));
            if bracket {
                next = rest.next();
            }
            let Some(Kind::Ident(name)) = next.map(|t| &t.kind) else {
                return fault(span, "`defined` needs a name");
            };
            if bracket {
                rest.next();
            }
            let value = u128::from(self.macros.contains_key(name));
            let kind = Kind::Number(lexer::Number { value, width: None });
            out.push(Token { kind, ..token.clone() });
        }
        Ok(out)
    }

    fn include_directive(
        &mut self,
        rest: &[Token],
        span: Span,
        folder: Option<&Path>,
    ) -> Result<(), Stop> {
        let (name, system) = match rest.first().map(|t| &t.kind) {
            Some(Kind::Text(name)) => (name.to_string(), false),
            Some(Kind::Punct("<")) => {
                let end = rest.iter().position(|t| t.is(">")).unwrap_or(rest.len());
                (spell(&rest[1..end], false), true)
            }
            _ => return Ok(fault(span, "#include needs \"a file\" or <a file>")?),
        };
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Ok(fault(span, format!("includes nest deeper than {MAX_DEPTH}: a circle?"))?);
        }
        if let Some(text) = arch::builtin(&name) {
            self.include(&format!("<{name}>"), text, None)?;
        } else {
            let path = folder.map_or_else(|| PathBuf::from(&name), |f| f.join(&name));
            if system && !path.exists() {
                let message = format!(
                    "<{name}> is not built in (built in are {}) and not beside this file",
                    arch::BUILTIN_NAMES.join(", ")
                );
                return Ok(fault(span, message)?);
            }
            let text = match std::fs::read_to_string(&path) {
                Ok(text) => text,
                Err(why) => return Ok(fault(span, format!("{}: {why}", path.display()))?),
            };
            self.include(&path.display().to_string(), &text, path.parent())?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn define(&mut self, rest: &[Token], span: Span) -> Res<()> {
        let Some(Kind::Ident(name)) = rest.first().map(|t| &t.kind) else {
            return fault(span, "#define needs a name");
        };
        if let Some(paste) = rest.iter().find(|t| t.is("##") || t.is("#")) {
            return fault(paste.span, "`#` and `##` in macros are not supported by the model");
        }
        let has_params = rest.get(1).is_some_and(|t| t.is("(") && !t.spaced);
        let (params, body) = if has_params {
            let Some(end) = rest.iter().position(|t| t.is(")")) else {
                return fault(span, "the parameters of this macro are not closed with `)`");
            };
            let mut params = Vec::new();
            for token in rest[2..end].iter().filter(|t| !t.is(",")) {
                match &token.kind {
                    Kind::Ident(param) => params.push(param.clone()),
                    _ => return fault(token.span, "a macro's parameters are plain names"),
                }
            }
            (Some(params), &rest[end + 1..])
        } else {
            (None, &rest[1..])
        };
        self.macros.insert(name.clone(), Macro { params, body: body.to_vec() });
        Ok(())
    }

    /// Replaces macros in `tokens`. Those in `active` are being expanded and stay as they are;
    /// inside a macro every token takes the place `site` of its use.
    fn expand(
        &self,
        tokens: &[Token],
        site: Option<Span>,
        active: &mut Vec<Rc<str>>,
    ) -> Res<Vec<Token>> {
        let mut out = Vec::with_capacity(tokens.len());
        let mut at = 0;
        while at < tokens.len() {
            let token = &tokens[at];
            at += 1;
            let span = site.unwrap_or(token.span);
            let found = match &token.kind {
                Kind::Ident(name) if !active.contains(name) => {
                    self.macros.get(name).map(|m| (name, m))
                }
                _ => None,
            };
            let Some((name, found)) = found else {
                out.push(Token { span, ..token.clone() });
                continue;
            };
            let body = match &found.params {
                None => found.body.clone(),
                Some(_) if !tokens.get(at).is_some_and(|t| t.is("(")) => {
                    out.push(Token { span, ..token.clone() });
                    continue;
                }
                Some(params) => {
                    let (arguments, length) = split_arguments(&tokens[at..], span)?;
                    at += length;
                    let none = params.is_empty() && arguments.iter().all(Vec::is_empty);
                    if arguments.len() != params.len() && !none {
                        let message = format!(
                            "macro `{name}` takes {} arguments, here it gets {}",
                            params.len(),
                            arguments.len()
                        );
                        return fault(span, message);
                    }
                    let mut body = Vec::new();
                    for part in &found.body {
                        let argument = match &part.kind {
                            Kind::Ident(word) => params.iter().position(|p| p == word),
                            _ => None,
                        };
                        match argument {
                            Some(index) => {
                                body.extend(self.expand(&arguments[index], site, active)?);
                            }
                            None => body.push(part.clone()),
                        }
                    }
                    body
                }
            };
            active.push(name.clone());
            let expanded = self.expand(&body, Some(span), active)?;
            active.pop();
            out.extend(expanded.into_iter().map(|t| Token { starts_line: false, ..t }));
        }
        Ok(out)
    }
}

/// How many tokens belong to the line.
fn line_length(tokens: &[Token]) -> usize {
    tokens.iter().position(|t| t.starts_line).unwrap_or(tokens.len())
}

/// The arguments of a macro call that begins with `(`, and how many tokens they take.
fn split_arguments(tokens: &[Token], span: Span) -> Res<(Vec<Vec<Token>>, usize)> {
    let mut arguments = vec![Vec::new()];
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Punct("(" | "[" | "{") => depth += 1,
            Kind::Punct(")" | "]" | "}") => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Ok((arguments, index + 1));
        }
        if depth == 1 && token.is(",") {
            arguments.push(Vec::new());
        } else if index > 0
            && let Some(last) = arguments.last_mut()
        {
            last.push(token.clone());
        }
    }
    fault(span, "the arguments of this macro are not closed with `)`")
}

/// The tokens as text.
fn spell(tokens: &[Token], spaces: bool) -> String {
    let mut out = String::new();
    for token in tokens {
        if spaces && !out.is_empty() && token.kind != Kind::End {
            out.push(' ');
        }
        match &token.kind {
            Kind::Ident(name) | Kind::Text(name) => out.push_str(name),
            Kind::Number(n) => out.push_str(&n.value.to_string()),
            Kind::Punct(p) => out.push_str(p),
            Kind::End => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Result<String, Fault> {
        let mut map = SourceMap::default();
        match program("test.p4", text, None, &[], &mut map) {
            Ok(tokens) => Ok(spell(&tokens, true)),
            Err(Stop::Fault(fault)) => Err(fault),
            Err(Stop::Load(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn macros_with_and_without_parameters_are_replaced() {
        let text = "#define N 4\n#define ADD(a, b) (a + b + N)\nx = ADD(f(1, 2), N);";
        assert_eq!(run(text).unwrap(), "x = ( f ( 1 , 2 ) + 4 + 4 ) ;");
    }

    #[test]
    fn a_macro_that_names_itself_stays() {
        assert_eq!(run("#define a a + b\n#define b a\na").unwrap(), "a + a");
    }

    #[test]
    fn only_one_branch_of_a_condition_is_read() {
        let text = "#define A 2\n#if A == 1\none\n#elif defined(A) && A >= 2\ntwo\n\
                    #ifdef B\nB\n#else\nno B\n#endif\n#else\nthree\n#endif\nend";
        assert_eq!(run(text).unwrap(), "two no B end");
    }

    #[test]
    fn tokens_of_a_macro_stand_where_it_is_used() {
        let mut map = SourceMap::default();
        let text = "#define X a\n\n\nX";
        let Ok(tokens) = program("t", text, None, &[], &mut map) else { panic!() };
        assert_eq!(tokens[0].span.line, 4);
    }

    #[test]
    fn faults_name_the_line() {
        assert_eq!(run("\n#if 1\nx").unwrap_err().span.line, 2);
        assert_eq!(run("\n\n#endif").unwrap_err().span.line, 3);
        assert_eq!(run("\n#error no").unwrap_err().message, "#error no");
        assert_eq!(run("\n\n#include <nothing.p4>").unwrap_err().span.line, 3);
        assert_eq!(run("#define F(x) x\n\nF(1, 2)").unwrap_err().span.line, 3);
    }
}
