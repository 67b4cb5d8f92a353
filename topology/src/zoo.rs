//! Topologies from files of the Internet Topology Zoo, which are in GML.
//!
//! Of such a file the nodes count, by `id` and `label`, and the edges, by `source` and `target`;
//! what else it says is read over. Every node becomes an edge with one host, and packets pass
//! through edges: the maps are of routers, behind each of which there is a network.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::{LinkQuality, Topology};

/// How deep lists lie within lists; the deepest of the Zoo have four levels.
const DEEPEST: usize = 32;

/// Reads a topology; links have `quality`.
pub(super) fn read(path: &Path, quality: LinkQuality) -> Result<Topology> {
    let named = || path.display().to_string();
    let bytes = std::fs::read(path).with_context(named)?;
    parse(&bytes, quality).with_context(named)
}

/// The topology that a file of these bytes describes.
pub(super) fn parse(bytes: &[u8], quality: LinkQuality) -> Result<Topology> {
    let (nodes, edges) = listed(bytes)?;
    ensure!(!nodes.is_empty(), "no node: there is no `graph [ node [ id .. ] ]`");
    let mut topology = Topology { through_edges: true, ..Topology::default() };
    let mut names = HashSet::new();
    let mut positions = HashMap::new();
    for Node { line, id, label } in nodes {
        let id = id.with_context(|| format!("line {line}: a node without `id`"))?;
        let at = topology.add_edge(name(&label, id, &mut names), 1);
        let before = positions.insert(id, at);
        ensure!(before.is_none(), "line {line}: two nodes have the id {id}");
    }
    for Edge { line, ends } in edges {
        let position = |(field, end): (&str, Option<i64>)| {
            let id = end.with_context(|| format!("line {line}: an edge without `{field}`"))?;
            let at = positions.get(&id);
            at.copied().with_context(|| format!("line {line}: {field} {id}: no node has that id"))
        };
        let [source, target] = ends;
        let [a, b] = [position(("source", source))?, position(("target", target))?];
        // A circuit that ends where it begins is on no packet's way.
        if a != b {
            topology.connect(a, b, quality);
        }
    }
    Ok(topology)
}

/// A name for a switch: the label with a dash for each character that names don't have, and the id
/// behind it where that is no name or another's. Labels are not always given, nor different.
fn name(label: &str, id: i64, names: &mut HashSet<String>) -> String {
    let is_odd = |c: char| c == ':' || c.is_whitespace() || c.is_control();
    let plain: String = label.trim().chars().map(|c| if is_odd(c) { '-' } else { c }).collect();
    let mut name = if plain.is_empty() { format!("n{id}") } else { plain };
    while names.contains(&name) {
        name = format!("{name}-{id}");
    }
    names.insert(name.clone());
    name
}

struct Node {
    line: usize,
    id: Option<i64>,
    label: String,
}

struct Edge {
    line: usize,
    ends: [Option<i64>; 2],
}

/// What a list is, by its key and where it stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum List {
    Graph,
    Node,
    Edge,
    Other,
}

/// Nodes and edges of the graph.
fn listed(bytes: &[u8]) -> Result<(Vec<Node>, Vec<Edge>)> {
    let mut tokens = Tokens { rest: bytes, line: 1 };
    let (mut nodes, mut edges) = (Vec::<Node>::new(), Vec::<Edge>::new());
    let mut within: Vec<List> = Vec::new();
    loop {
        let key = match tokens.next()? {
            Some((_, Token::Key(key))) => key,
            Some((line, Token::Close)) => {
                ensure!(within.pop().is_some(), "line {line}: ']' without '[' before it");
                continue;
            }
            Some((line, other)) => bail!("line {line}: {other}: a key is expected, such as `node`"),
            None => break,
        };
        let (line, value) = tokens.next()?.with_context(|| format!("{key:?} without a value"))?;
        match (within.last(), key, value) {
            (place, key, Token::Open) => {
                ensure!(within.len() < DEEPEST, "line {line}: more than {DEEPEST} lists in lists");
                within.push(match (place, key) {
                    (None, "graph") => List::Graph,
                    (Some(List::Graph), "node") => {
                        nodes.push(Node { line, id: None, label: String::new() });
                        List::Node
                    }
                    (Some(List::Graph), "edge") => {
                        edges.push(Edge { line, ends: [None; 2] });
                        List::Edge
                    }
                    _ => List::Other,
                });
            }
            (Some(List::Node), "id", value) => {
                set(nodes.last_mut().map(|node| &mut node.id), line, key, value)?;
            }
            (Some(List::Node), "label", value) => {
                if let (Some(node), Token::Text(text) | Token::Number(text)) =
                    (nodes.last_mut(), value)
                {
                    node.label = String::from_utf8_lossy(text).into_owned();
                }
            }
            (Some(List::Edge), "source", value) => {
                set(edges.last_mut().map(|edge| &mut edge.ends[0]), line, key, value)?;
            }
            (Some(List::Edge), "target", value) => {
                set(edges.last_mut().map(|edge| &mut edge.ends[1]), line, key, value)?;
            }
            (_, _, Token::Text(_) | Token::Number(_)) => {}
            (_, key, other) => bail!("line {line}: {other}: a value of `{key}` is expected"),
        }
    }
    ensure!(within.is_empty(), "line {}: the file ends where ']' is expected", tokens.line);
    Ok((nodes, edges))
}

/// Sets a field that is a whole number.
fn set(field: Option<&mut Option<i64>>, line: usize, key: &str, value: Token<'_>) -> Result<()> {
    let Token::Number(digits) = value else {
        bail!("line {line}: {value}: `{key}` is a whole number");
    };
    let number = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    let number = number.with_context(|| format!("line {line}: {value}: `{key}` is whole"))?;
    if let Some(field) = field {
        ensure!(field.replace(number).is_none(), "line {line}: `{key}` is there twice");
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Token<'a> {
    Key(&'a str),
    /// What stands between quotation marks.
    Text(&'a [u8]),
    Number(&'a [u8]),
    Open,
    Close,
}

impl std::fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(key) => write!(f, "{key:?}"),
            Self::Text(text) | Self::Number(text) => {
                let shown = &text[..text.len().min(40)];
                write!(f, "{:?}", String::from_utf8_lossy(shown))
            }
            Self::Open => f.write_str("'['"),
            Self::Close => f.write_str("']'"),
        }
    }
}

struct Tokens<'a> {
    rest: &'a [u8],
    /// The line on which `rest` begins, from 1.
    line: usize,
}

impl<'a> Tokens<'a> {
    /// The next token and its line; `None` at the end.
    fn next(&mut self) -> Result<Option<(usize, Token<'a>)>> {
        self.skip_blanks();
        let line = self.line;
        let Some(&first) = self.rest.first() else { return Ok(None) };
        let token =
            match first {
                b'[' => {
                    self.take(1);
                    Token::Open
                }
                b']' => {
                    self.take(1);
                    Token::Close
                }
                b'"' => {
                    self.take(1);
                    let text = self.take_while(|byte| byte != b'"');
                    ensure!(self.rest.first() == Some(&b'"'), "line {line}: '\"' without another");
                    self.take(1);
                    Token::Text(text)
                }
                b'+' | b'-' | b'.' | b'0'..=b'9' => Token::Number(self.take_while(|byte| {
                    matches!(byte, b'+' | b'-' | b'.' | b'0'..=b'9' | b'e' | b'E')
                })),
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                    let key = self.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                    Token::Key(str::from_utf8(key).context("keys are ASCII")?)
                }
                other => bail!("line {line}: {:?} begins no key and no value", char::from(other)),
            };
        Ok(Some((line, token)))
    }

    /// Blanks, and comments up to the end of their lines.
    fn skip_blanks(&mut self) {
        loop {
            self.take_while(|byte| byte.is_ascii_whitespace());
            if self.rest.first() != Some(&b'#') {
                return;
            }
            self.take_while(|byte| byte != b'\n');
        }
    }

    fn take_while(&mut self, fits: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|&byte| !fits(byte)).unwrap_or(self.rest.len());
        self.take(end)
    }

    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.line += taken.iter().filter(|&&byte| byte == b'\n').count();
        self.rest = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Routes;

    const RING: &str = r#"Creator "somebody [ not me ]"
# four routers
graph [
  directed 0
  meta [ node [ id 9 ] ]
  node [ id 0 label "New York" Longitude -74.0 graphics [ x 1 y 2.5e1 ] ]
  node [ id 1 label "None" ]
  node [ id 7 label "None" ]
  node [ id 3 ]
  edge [ source 0 target 1 LinkSpeedRaw 10000000000.0 ]
  edge [
    source 1
    target 7
  ]
  edge [ source 7 target 7 ]
  edge [ source 7 target 3 ] edge [ source 3 target 0 ]
]
"#;

    fn parsed(text: &str) -> Result<Topology> {
        parse(text.as_bytes(), LinkQuality::default())
    }

    #[test]
    fn nodes_become_edges_with_a_host_and_packets_pass_through_them() {
        let topology = parsed(RING).unwrap();
        assert_eq!(topology.names(), ["New-York", "None", "None-7", "n3"]);
        assert_eq!(topology.hosts(), [1; 4]);
        let ends: Vec<[usize; 2]> = topology.links().iter().map(|link| link.ends).collect();
        assert_eq!(ends, [[0, 1], [1, 2], [2, 3], [3, 0]]);
        let routes = Routes::new(&topology);
        let mut between: Vec<usize> =
            (0..64).map(|flow| routes.way(0, 2, flow).unwrap().switch(1)).collect();
        between.sort_unstable();
        between.dedup();
        assert_eq!(between, [1, 3], "both ways around the ring");
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let problem = |from: &str, to: &str| {
            assert!(RING.contains(from), "{from}");
            format!("{:#}", parsed(&RING.replace(from, to)).unwrap_err())
        };
        for (from, to, expected) in [
            ("target 7\n", "target 8\n", "line 11: target 8: no node has that id"),
            ("id 7", "id 1", "line 8: two nodes have the id 1"),
            ("id 3", "it 3", "line 9: a node without `id`"),
            ("id 3", "id 3.5", "line 9: \"3.5\": `id` is whole"),
            ("id 3", "id \"3\"", "line 9: \"3\": `id` is a whole number"),
            ("id 3", "id 3 id 4", "line 9: `id` is there twice"),
            ("    target 7\n", "", "line 11: an edge without `target`"),
            ("label \"New York\"", "label \"New York", "line 8: '\"' without another"),
            ("target 0 ]\n]", "target 0 ]", "the file ends where ']' is expected"),
            ("target 0 ]\n]", "target 0 ]\n]]", "line 17: ']' without '['"),
            ("directed 0", "directed ]", "line 4: ']': a value of `directed` is expected"),
            ("directed 0", "directed {", "line 4: '{' begins no key and no value"),
            ("directed 0", "0 directed", "line 4: \"0\": a key is expected"),
        ] {
            let problem = problem(from, to);
            assert!(problem.contains(expected), "{problem:?}, not {expected:?}");
        }
        assert!(parsed("graph [ ]").unwrap_err().to_string().contains("no node"));
        let deep = format!("graph {}", "[ a ".repeat(100));
        assert!(parsed(&deep).unwrap_err().to_string().contains("more than 32 lists"));
        assert!(
            format!("{:#}", parsed("graph").unwrap_err()).contains("\"graph\" without a value")
        );
    }

    proptest! {
        /// Bytes that are cut, changed or made up are a topology or a mistake, and nothing else.
        #[test]
        fn any_bytes_end_in_a_topology_or_a_mistake(
            end in 0..RING.len(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
            tokens in prop::collection::vec(
                prop::sample::select(vec![
                    "graph", "[", "]", "node", "edge", "id", "source", "target", "label", "0", "1",
                    "-1", "1e9", "\"", "\"a\"", "#", "\n", "99999999999999999999", "\u{e9}",
                ]),
                0..60,
            ),
        ) {
            let mut bytes = RING.as_bytes()[..end].to_vec();
            for (at, byte) in changes {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            for bytes in [bytes, tokens.join(" ").into_bytes()] {
                if let Ok(topology) = parse(&bytes, LinkQuality::default()) {
                    let switches = topology.switches();
                    prop_assert!(topology.links().iter().all(|link| link.ends.iter().all(|&end| end < switches)));
                    prop_assert_eq!(topology.hosts(), vec![1; switches]);
                }
            }
        }
    }
}
