//! Places on a topology: the two points of each switch, and the segments between them.

use serde::{Deserialize, Serialize};

use super::Topology;

/// One side of a switch on a packet's way; switches by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    /// The packet was received, `s1:in`.
    In(usize),
    /// The switch has handed it to the next link or host, `s1:out`.
    Out(usize),
}

/// What lies between two neighbouring points of a way: the inside of a switch, or a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Segment {
    /// Where it begins.
    pub from: Point,
    /// Where it ends.
    pub to: Point,
}

/// A segment by names: `{"from": "e1:out", "to": "s1:in"}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// Where it begins.
    pub from: String,
    /// Where it ends.
    pub to: String,
}

impl Segment {
    /// The inside of a switch.
    pub fn inside(switch: usize) -> Self {
        Self { from: Point::In(switch), to: Point::Out(switch) }
    }

    /// From where one switch receives packets to where the next one does that reports, with all
    /// that lies between.
    pub fn between(from: usize, to: usize) -> Self {
        Self { from: Point::In(from), to: Point::In(to) }
    }

    /// The link from one switch to another.
    pub fn link(from: usize, to: usize) -> Self {
        Self { from: Point::Out(from), to: Point::In(to) }
    }
}

impl Topology {
    /// A segment by its points' names.
    pub fn place(&self, segment: Segment) -> Place {
        let name = |point| match point {
            Point::In(switch) => format!("{}:in", self.names()[switch]),
            Point::Out(switch) => format!("{}:out", self.names()[switch]),
        };
        Place { from: name(segment.from), to: name(segment.to) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkQuality;
    use std::path::Path;

    #[test]
    fn a_segment_is_named_by_its_points() {
        let topology = Topology::load("pair", Path::new("."), LinkQuality::default()).unwrap();
        let named = |segment| serde_json::to_string(&topology.place(segment)).unwrap();
        assert_eq!(named(Segment::link(0, 2)), r#"{"from":"e1:out","to":"core:in"}"#);
        assert_eq!(named(Segment::inside(2)), r#"{"from":"core:in","to":"core:out"}"#);
    }
}
