//! All that is wrong with a configuration, each with its line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};

use toml::Spanned;
use toml::de::DeValue;

/// Something wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mistake {
    /// The line, counted from one.
    pub line: usize,
    /// The place: keys joined by dots, and numbers (from zero) for the elements of lists, as in
    /// `port[1].peer`. Empty for the file as a whole.
    pub place: String,
    /// What is wrong there, and the remedy.
    pub problem: String,
}

impl Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, place, problem } = self;
        match place.as_str() {
            "" => write!(f, "line {line}: {problem}"),
            _ => write!(f, "line {line}: {place}: {problem}"),
        }
    }
}

/// The mistakes found so far in a file, and where its lines are.
///
/// Each section's own check adds what it finds by [`add`](Self::add), and leaves out what follows
/// from a place that is not [`sound`](Self::is_sound).
#[derive(Debug, Default)]
pub struct Mistakes {
    found: BTreeSet<Mistake>,
    /// The line on which each place begins.
    lines: BTreeMap<String, usize>,
    /// Places that hold a stand-in for what could not be read.
    doubtful: BTreeSet<String>,
}

impl Mistakes {
    /// None yet, in the file with this text whose content is `root`.
    pub(super) fn of(text: &str, root: &Spanned<DeValue<'_>>) -> Self {
        let mut mistakes = Self::default();
        mistakes.note_lines(text, root, String::new());
        mistakes
    }

    fn note_lines(&mut self, text: &str, node: &Spanned<DeValue<'_>>, path: String) {
        match node.get_ref() {
            DeValue::Table(table) => {
                for (key, value) in table {
                    let path = child(&path, key.get_ref());
                    self.note_lines(text, value, path.clone());
                    // A key lies before its value, save that of a list of tables, which lies in
                    // each.
                    let line = line_of(text, key.span().start);
                    self.lines.entry(path).and_modify(|at| *at = line.min(*at)).or_insert(line);
                }
            }
            DeValue::Array(array) => {
                for (at, value) in array.iter().enumerate() {
                    self.note_lines(text, value, element(&path, at));
                }
            }
            _ => {}
        }
        self.lines.insert(path, line_of(text, node.span().start));
    }

    /// Adds what is wrong at a place, and its remedy. A place that the file does not name stands
    /// for the section that it would be in.
    pub fn add(&mut self, place: &str, problem: impl Into<String>) {
        let mut known = place;
        let line = loop {
            match (self.lines.get(known), known.rfind(['.', '['])) {
                (Some(line), _) => break *line,
                (None, Some(end)) => known = &known[..end],
                (None, None) if known.is_empty() => break 1,
                (None, None) => known = "",
            }
        };
        self.add_at(line, place, problem);
    }

    /// Adds what is wrong on a line.
    pub(super) fn add_at(&mut self, line: usize, place: &str, problem: impl Into<String>) {
        let (place, problem) = (place.to_owned(), problem.into());
        self.found.insert(Mistake { line, place, problem });
    }

    /// Lets the place count as not [sound](Self::is_sound).
    pub(super) fn doubt(&mut self, place: &str) {
        self.doubtful.insert(place.to_owned());
    }

    /// Whether what was read at this place, and below it, is what the file says.
    pub fn is_sound(&self, place: &str) -> bool {
        let below = |doubtful: &String| {
            let rest = doubtful.strip_prefix(place);
            rest.is_some_and(|rest| {
                place.is_empty() || rest.is_empty() || rest.starts_with(['.', '['])
            })
        };
        !self.doubtful.iter().any(below)
    }

    /// All of them, in the order of their lines.
    pub fn into_found(self) -> Vec<Mistake> {
        self.found.into_iter().collect()
    }
}

/// The place of a key in a table.
pub(super) fn child(path: &str, key: &str) -> String {
    let bare = !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    let key = if bare { key.to_owned() } else { format!("{key:?}") };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

/// The place of an element in a list.
pub(super) fn element(path: &str, at: usize) -> String {
    format!("{path}[{at}]")
}

/// The line, counted from one, that the byte `at` of a text is on.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}
