//! What sinks keep, and from when on they take note of something: the same at all of them.

use std::sync::Arc;

use calumma_sketch::sketchint::{Claims, Quarters, Shape, WAYS};
use calumma_sketch::tower::Rule;
use calumma_wire::body::{Body, put_u8, put_u16, put_u32};
use calumma_wire::{DecodeError, MAX_MESSAGE_BYTES};

/// Most lcores of a switch whose tables a frame may have together.
const MOST_LCORES: usize = 128;

/// Most entries of a list of a frame, whatever the layout.
const MOST_ENTRIES: usize = 1 << 18;

/// Sizes and thresholds of a sink.
///
/// ```text
/// tower words (4)  rule (1): 0 cm, 1 cu, 2 acu  pair buckets (4)  unit (4)  sets of rows (4)
/// hops (1)  paths (2)  nodes (2)  keys (2)  inflated (2)
/// heavy packets (4)  heavy change packets (4)  inflation percent (4)
/// ```
///
/// For how many rows latencies are counted by size is not in it: that stands behind the rest of a
/// [`Setup`](super::Setup).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How large everything is.
    pub shape: Shape,
    /// Delta_h: a flow of more packets in a window is a heavy hitter.
    pub heavy_packets: u32,
    /// Delta_c: a flow with more packets more or less than in the window before is a heavy change.
    pub heavy_change_packets: u32,
    /// Delta_l, in hundredths: a latency of more than so much of the mean before it is inflated.
    pub inflation_percent: u32,
}

impl Default for Layout {
    /// The paper's thresholds.
    fn default() -> Self {
        Self {
            shape: Shape::default(),
            heavy_packets: 500,
            heavy_change_packets: 250,
            inflation_percent: 500,
        }
    }
}

impl Layout {
    /// Checks that sinks can be built so.
    ///
    /// # Errors
    /// The first field that can't be so, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        self.shape.check().map_err(|wrong| (wrong.field, wrong.why))?;
        let zero = |field, value: u32| match value {
            0 => Err((field, "0: must be at least 1".to_owned())),
            _ => Ok(()),
        };
        zero("heavy_packets", self.heavy_packets)?;
        zero("heavy_change_packets", self.heavy_change_packets)?;
        if self.inflation_percent < 100 {
            let why = format!("{}: must be at least 100", self.inflation_percent);
            return Err(("inflation_percent", why));
        }
        self.check_length(1)
    }

    /// Checks that the window of a switch with so many lcores can be sent.
    ///
    /// # Errors
    /// The field that makes it too long, and why.
    pub fn check_length(&self, lcores: usize) -> Result<(), (&'static str, String)> {
        let bytes = self.most_bytes(lcores);
        if bytes <= MAX_MESSAGE_BYTES {
            return Ok(());
        }
        let why = format!(
            "{}: a window of {lcores} lcores may take {bytes} bytes, and a message has \
             {MAX_MESSAGE_BYTES}",
            self.shape.row_sets
        );
        Err(("row_sets", why))
    }

    /// About the most bytes of a window, of a switch with so many lcores: they share rows, and each
    /// has its own lists.
    fn most_bytes(&self, lcores: usize) -> usize {
        let Shape { row_sets, hops, paths, nodes, keys, inflated, quantiles, .. } = self.shape;
        let row = 37 + 16 + 16 * (usize::from(hops) + 1);
        let tower: usize = self.shape.tower().iter().map(|level| level.bytes()).sum();
        let pairs: usize = self.shape.pairs().iter().map(|level| 8 * level.buckets as usize).sum();
        let lists = usize::from(paths) * 80
            + usize::from(nodes) * 4096
            + usize::from(self.shape.links()) * 48
            + usize::from(keys) * 37
            + usize::from(inflated) * 60;
        row_sets as usize * WAYS * row
            + tower
            + pairs
            + lists * lcores.max(1)
            + usize::from(quantiles) * (usize::from(hops) + 1) * size_of::<Quarters>()
    }

    /// Packets that a flow must exceed to be large by either threshold.
    pub fn large_packets(&self) -> u32 {
        self.heavy_packets.min(self.heavy_change_packets)
    }

    /// Room for claims to rows, for all of so many lcores.
    pub fn claims(&self, lcores: usize) -> Arc<Claims> {
        Arc::new(Claims::new(self.of_lcore(lcores).row_sets as usize, lcores))
    }

    /// Packets above which an lcore of so many keeps the key of a flow: a flow of more than either
    /// threshold has more than so many on one of them at least.
    pub fn key_packets(&self, lcores: usize) -> u32 {
        self.large_packets() / u32::try_from(lcores.max(1)).unwrap_or(u32::MAX)
    }

    /// The shape of one lcore of so many: they share the rows, and room for latencies by size.
    pub fn of_lcore(&self, lcores: usize) -> Shape {
        let row_sets = match self.shape.row_sets {
            0 => 0,
            all => (all / u32::try_from(lcores.max(1)).unwrap_or(u32::MAX)).max(1),
        };
        let quantiles = match self.shape.quantiles {
            0 => 0,
            all => (all / u16::try_from(lcores.max(1)).unwrap_or(u16::MAX)).max(1),
        };
        Shape { row_sets, quantiles, ..self.shape }
    }

    /// Most rows of a frame that have latencies by size: those that were counted so, and the first
    /// ones of their flows, which have what was met at the sink itself.
    pub(super) fn most_quantiles(&self) -> usize {
        match self.shape.quantiles {
            0 => 0,
            all => 2 * usize::from(all).max(MOST_LCORES),
        }
    }

    /// Most rows of a frame.
    pub(super) fn most_rows(&self) -> usize {
        match self.shape.row_sets {
            0 => 0,
            sets => WAYS * (sets as usize).max(MOST_LCORES),
        }
    }

    /// Most entries of a table of so many on one lcore.
    pub(super) fn most_of(each: u16) -> usize {
        (usize::from(each) * MOST_LCORES).min(MOST_ENTRIES)
    }

    /// Appends its bytes.
    pub fn put(&self, out: &mut Vec<u8>) {
        let Shape { tower_words, rule, pair_buckets, unit_ns, row_sets, hops, .. } = self.shape;
        put_u32(out, tower_words);
        put_u8(out, rule as u8);
        [pair_buckets, unit_ns, row_sets].into_iter().for_each(|field| put_u32(out, field));
        put_u8(out, hops);
        let Shape { paths, nodes, keys, inflated, .. } = self.shape;
        [paths, nodes, keys, inflated].into_iter().for_each(|field| put_u16(out, field));
        let Self { heavy_packets, heavy_change_packets, inflation_percent, .. } = *self;
        let thresholds = [heavy_packets, heavy_change_packets, inflation_percent];
        thresholds.into_iter().for_each(|field| put_u32(out, field));
    }

    /// Reads what [`put`](Self::put) appends.
    ///
    /// # Errors
    /// The byte that can't be read, or the layout that can't be.
    pub fn read(body: &mut Body<'_>) -> Result<Self, DecodeError> {
        let offset = body.offset();
        let tower_words = body.u32("tower_words")?;
        let at_rule = body.offset();
        let rule = match body.u8("rule")? {
            0 => Rule::Cm,
            1 => Rule::Cu,
            2 => Rule::Acu,
            other => {
                let why = format_args!("there is no rule {other}");
                return Err(body.wrong(at_rule, "rule", why));
            }
        };
        let layout = Self {
            shape: Shape {
                tower_words,
                rule,
                pair_buckets: body.u32("pair_buckets")?,
                unit_ns: body.u32("unit_ns")?,
                row_sets: body.u32("row_sets")?,
                hops: body.u8("hops")?,
                paths: body.u16("paths")?,
                nodes: body.u16("nodes")?,
                keys: body.u16("keys")?,
                inflated: body.u16("inflated")?,
                quantiles: 0,
            },
            heavy_packets: body.u32("heavy_packets")?,
            heavy_change_packets: body.u32("heavy_change_packets")?,
            inflation_percent: body.u32("inflation_percent")?,
        };
        layout.check().map_err(|(field, why)| body.wrong(offset, field, why))?;
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_come_back_and_those_that_can_not_be_are_named() {
        let layout = Layout {
            shape: Shape { rule: Rule::Acu, row_sets: 0, ..Shape::default() },
            heavy_packets: 7,
            ..Layout::default()
        };
        let mut bytes = Vec::new();
        layout.put(&mut bytes);
        let mut body = Body::new("a layout", &bytes, 0);
        assert_eq!(Layout::read(&mut body), Ok(layout));
        body.end().unwrap();
        bytes[4] = 3;
        let refused = Layout::read(&mut Body::new("a layout", &bytes, 0)).unwrap_err();
        assert_eq!(refused.to_string(), "byte 4 of a layout: rule: there is no rule 3");

        let says = |layout: Layout, field: &str, words: &str| {
            let (of, why) = layout.check().unwrap_err();
            assert_eq!((of, &*why), (field, words));
        };
        let layout = Layout::default();
        assert_eq!(layout.check(), Ok(()));
        let none = "0: must be at least 1";
        says(Layout { heavy_packets: 0, ..layout }, "heavy_packets", none);
        says(Layout { heavy_change_packets: 0, ..layout }, "heavy_change_packets", none);
        let low = Layout { inflation_percent: 99, ..layout };
        says(low, "inflation_percent", "99: must be at least 100");
        // Longer than a frame, and then longer than a message.
        let of = |row_sets| Layout { shape: Shape { row_sets, ..layout.shape }, ..layout };
        assert!(of(1 << 17).most_bytes(1) > calumma_wire::MAX_FRAME_BYTES);
        assert_eq!(of(1 << 17).check(), Ok(()));
        let (field, why) = of(1 << 18).check().unwrap_err();
        assert!(field == "row_sets" && why.ends_with("a message has 268435456"), "{why}");
        let shape = Shape { nodes: 4096, keys: u16::MAX, paths: u16::MAX, ..layout.shape };
        let many = Layout { shape, ..layout };
        assert_eq!(many.check_length(8), Ok(()));
        assert!(many.check_length(12).unwrap_err().1.contains("a window of 12 lcores"));
    }

    #[test]
    fn lcores_share_rows_and_thresholds() {
        let layout = Layout::default();
        let sets = |lcores| layout.of_lcore(lcores).row_sets;
        assert_eq!([1, 2, 3, 4, 5000].map(sets), [1024, 512, 341, 256, 1]);
        assert_eq!([0, 1, 2, 3].map(|lcores| layout.key_packets(lcores)), [250, 250, 125, 83]);
        let of = |quantiles| Layout { shape: Shape { quantiles, ..layout.shape }, ..layout };
        let shared = |all: u16, lcores| of(all).of_lcore(lcores).quantiles;
        assert_eq!([shared(0, 2), shared(9, 1), shared(9, 2), shared(9, 5000)], [0, 9, 4, 1]);
        let (field, why) = of(4097).check().unwrap_err();
        assert!(field == "quantiles" && why == "4097: must be 0 to 4096", "{field} {why}");
    }
}
