//! The registers of ChameleMon's program, as collection packets name them.

use calumma_chamelemon::Layout;
use calumma_sketch::Arithmetic;

use crate::collection::{self, Groups, Record};

/// A counter or bucket array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A counter array of the flow classifier: 0 or 1.
    Classifier(u8),
    /// A bucket array of the upstream flow encoder: 0 to 2.
    Upstream(u8),
    /// A bucket array of the downstream flow encoder: 0 to 2.
    Downstream(u8),
}

impl Source {
    /// Every source.
    pub const ALL: [Source; 8] = [
        Source::Classifier(0),
        Source::Classifier(1),
        Source::Upstream(0),
        Source::Upstream(1),
        Source::Upstream(2),
        Source::Downstream(0),
        Source::Downstream(1),
        Source::Downstream(2),
    ];

    /// Those of the ingress side, in the order of a group.
    pub const INGRESS: [Source; 5] = [
        Source::Classifier(0),
        Source::Classifier(1),
        Source::Upstream(0),
        Source::Upstream(1),
        Source::Upstream(2),
    ];

    /// Those of the egress side.
    pub const EGRESS: [Source; 3] =
        [Source::Downstream(0), Source::Downstream(1), Source::Downstream(2)];

    /// What it is in a program of that layout.
    pub fn of(self, layout: &Layout) -> collection::Source {
        let number = match self {
            Source::Classifier(array) => array,
            Source::Upstream(array) => 2 + array,
            Source::Downstream(array) => 5 + array,
        };
        let elements = match self {
            Source::Classifier(array) => layout.classifier[usize::from(array)].counters,
            Source::Upstream(_) => layout.upstream_buckets,
            Source::Downstream(_) => layout.downstream_buckets,
        };
        let registers = self.registers(layout.arithmetic);
        let record = match (self, layout.arithmetic) {
            (Source::Classifier(_), _) => Record::Counter,
            (_, Arithmetic::Prime) => Record::Words(registers.len()),
            (_, Arithmetic::Wrapping) => Record::Pairs(registers.len()),
        };
        collection::Source { number, registers, elements, groups: Groups::ByElement, record }
    }

    /// Its registers, in the order of an element's words.
    fn registers(self, arithmetic: Arithmetic) -> Vec<String> {
        let (encoder, array) = match self {
            Source::Classifier(level) => {
                return vec![format!("Ingress.classifier.level{level}.counters")];
            }
            Source::Upstream(array) => ("Ingress.upstream", array),
            Source::Downstream(array) => ("Egress.downstream", array),
        };
        let names: &[&str] = match arithmetic {
            Arithmetic::Prime => {
                &["fragment0.sums", "fragment1.sums", "fragment2.sums", "fragment3.sums", "counts"]
            }
            Arithmetic::Wrapping => &[
                "fragments01.sums",
                "fragments23.sums",
                "fragments45.sums",
                "fragment6_count.sums",
            ],
        };
        names.iter().map(|name| format!("{encoder}.array{array}.{name}")).collect()
    }
}
