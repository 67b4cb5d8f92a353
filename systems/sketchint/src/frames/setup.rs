//! What all switches of a network have in common.
//!
//! ```text
//! setup: domain (2)  instructions (2)  hops (1)  share (4)  epochs of a window (2)
//!        orphan seconds (2)  layout  watch list
//!        from version 6 on, where there are any: rows with latencies by size (2)
//!        from version 8 on, where there is one: UDP port (2), behind a number of such rows
//! holding: length of the setup (4)  setup  epoch (8)  plan
//! ```

use std::num::NonZeroU16;
use std::ops::RangeInclusive;

use calumma_plane::int::{Instructions, MOST_HOPS};
use calumma_sketch::sketchint::Shape;
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_bytes, put_u8, put_u16, put_u32, put_u64};

use super::{ESTIMATES_SINCE, Layout, Plan, QUANTILES_SINCE, WatchList};

/// What all switches of a network have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The deployment's number in stacks.
    pub domain: NonZeroU16,
    /// What each hop says.
    pub instructions: Instructions,
    /// Hops that a stack may have: 1 to [`MOST_HOPS`].
    pub hops: u8,
    /// Which packets carry stacks: those whose [`word`](Self::carries) is below it; all where all
    /// bits are set.
    pub share: u32,
    /// Epochs of a window: 2 to 1000.
    pub window_epochs: u16,
    /// After so many seconds without a controller a source stops: 1 to 3600.
    pub orphan_seconds: u16,
    /// What sinks keep.
    pub layout: Layout,
    /// Which flows may carry stacks.
    pub watch: WatchList,
    /// The UDP port that packets go to whose protocol allows that, to say that they have a stack.
    pub udp_port: Option<NonZeroU16>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            domain: NonZeroU16::MIN,
            instructions: Instructions::DEFAULT,
            hops: 6,
            share: u32::MAX,
            window_epochs: 100,
            orphan_seconds: 60,
            layout: Layout::default(),
            watch: WatchList::default(),
            udp_port: None,
        }
    }
}

impl Setup {
    /// What [`hops`](Self::hops) may be.
    pub const HOPS: RangeInclusive<u8> = 1..=MOST_HOPS as u8;

    /// What [`window_epochs`](Self::window_epochs) may be.
    pub const WINDOW_EPOCHS: RangeInclusive<u16> = 2..=1000;

    /// What [`orphan_seconds`](Self::orphan_seconds) may be.
    pub const ORPHAN_SECONDS: RangeInclusive<u16> = 1..=3600;

    /// Words that a stack's Length may count behind the words of its header.
    pub const MOST_STACK_WORDS: usize = 252;

    /// Whether switches can measure by it.
    ///
    /// # Errors
    /// The field that they can't measure by, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        within("hops", self.hops.into(), &wide(&Self::HOPS))?;
        within("window_epochs", self.window_epochs, &Self::WINDOW_EPOCHS)?;
        within("orphan_seconds", self.orphan_seconds, &Self::ORPHAN_SECONDS)?;
        let words = usize::from(self.hops) * self.instructions.words();
        if words > Self::MOST_STACK_WORDS {
            let most = Self::MOST_STACK_WORDS;
            let why = format!("{} of {words} words together: {most} fit a stack", self.hops);
            return Err(("hops", why));
        }
        self.check_port()?;
        self.layout.check()
    }

    /// Whether packets may go to the UDP port, if there is one.
    fn check_port(&self) -> Result<(), (&'static str, String)> {
        let Some(port) = self.udp_port.map(NonZeroU16::get) else { return Ok(()) };
        let why = match port {
            ..=1023 => "is a service's that hosts, firewalls or switches may look for".to_owned(),
            4789 => "is VXLAN's: packets would be taken for a tunnel's".to_owned(),
            6081 => "is Geneve's: packets would be taken for a tunnel's".to_owned(),
            _ => return Ok(()),
        };
        Err(("udp_port", format!("{port}: {why}; take one from 1024 on that nobody uses")))
    }

    /// Whether a packet of this [word](calumma_sketch::sketchint::packet_word) is among the share
    /// that carries stacks.
    #[inline]
    pub fn carries(&self, word: u32) -> bool {
        word < self.share || self.share == u32::MAX
    }

    /// The share of packets that carry stacks, 0 to 1.
    pub fn carried_share(&self) -> f64 {
        f64::from(self.share) / f64::from(u32::MAX)
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u16(&mut out, self.domain.get());
        put_u16(&mut out, self.instructions.bits());
        put_u8(&mut out, self.hops);
        put_u32(&mut out, self.share);
        put_u16(&mut out, self.window_epochs);
        put_u16(&mut out, self.orphan_seconds);
        self.layout.put(&mut out);
        self.watch.put(&mut out);
        if self.layout.shape.quantiles > 0 || self.udp_port.is_some() {
            put_u16(&mut out, self.layout.shape.quantiles);
        }
        if let Some(port) = self.udp_port {
            put_u16(&mut out, port.get());
        }
        out
    }

    /// What a switch measures by that speaks this version.
    #[must_use]
    pub fn for_version(mut self, version: u8) -> Self {
        let Shape { quantiles, row_sets, .. } = &mut self.layout.shape;
        if version < QUANTILES_SINCE {
            *quantiles = 0;
        }
        if version < ESTIMATES_SINCE && *row_sets > 0 {
            *row_sets = 1 << row_sets.ilog2();
        }
        self
    }

    /// The setup that these bytes say.
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Body::new("a setup of sketchint", bytes, 0);
        let domain = NonZeroU16::new(body.u16("domain")?);
        let domain = domain.ok_or_else(|| body.wrong(0, "domain", "0 is nobody's"))?;
        let bits = body.u16("instructions")?;
        let instructions = Instructions::new(bits).ok_or_else(|| {
            let why = format_args!("{bits:#06x} lacks node id or latency, or has unknown bits");
            body.wrong(2, "instructions", why)
        })?;
        let mut setup = Self {
            domain,
            instructions,
            hops: body.u8("hops")?,
            share: body.u32("share")?,
            window_epochs: body.u16("window_epochs")?,
            orphan_seconds: body.u16("orphan_seconds")?,
            layout: Layout::read(&mut body)?,
            watch: WatchList::read(&mut body)?,
            udp_port: None,
        };
        let at_quantiles = body.offset();
        if body.left() > 0 {
            setup.layout.shape.quantiles = body.u16("quantiles")?;
            if setup.layout.shape.quantiles == 0 && body.left() == 0 {
                return Err(body.wrong(at_quantiles, "quantiles", "0 is not written"));
            }
        }
        let at_port = body.offset();
        if body.left() > 0 {
            let port = NonZeroU16::new(body.u16("udp_port")?);
            let port = port.ok_or_else(|| body.wrong(at_port, "udp_port", "0 is not written"))?;
            setup.udp_port = Some(port);
        }
        setup.check().map_err(|(field, why)| {
            let offset = match field {
                "hops" => 4,
                "window_epochs" => 9,
                "orphan_seconds" => 11,
                "quantiles" => at_quantiles,
                "udp_port" => at_port,
                _ => 13,
            };
            body.wrong(offset, field, why)
        })?;
        body.end()?;
        Ok(setup)
    }
}

/// What a switch measures by, for a controller that has just come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Its setup, as it was sent.
    pub setup: Vec<u8>,
    /// The epoch from which on its plan holds.
    pub epoch: u64,
    /// The plan that it has accepted last.
    pub plan: Plan,
}

impl Holding {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, &self.setup);
        put_u64(&mut out, self.epoch);
        out.extend(self.plan.encode());
        out
    }

    /// What these bytes say.
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Body::new("a holding of sketchint", bytes, 0);
        let (setup, epoch) = (body.blob("setup")?, body.u64("epoch")?);
        Ok(Self { setup, epoch, plan: Plan::decode(body.rest())? })
    }
}

fn wide(range: &RangeInclusive<u8>) -> RangeInclusive<u16> {
    (*range.start()).into()..=(*range.end()).into()
}

fn within(
    field: &'static str,
    value: u16,
    range: &RangeInclusive<u16>,
) -> Result<(), (&'static str, String)> {
    if range.contains(&value) {
        return Ok(());
    }
    Err((field, format!("{value}: must be {} to {}", range.start(), range.end())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frames::{Step, WatchRule};

    fn setup() -> Setup {
        let domain = NonZeroU16::new(0xCA10).unwrap();
        Setup { domain, share: 0x4000_0000, window_epochs: 20, ..Setup::default() }
    }

    /// Made by hand: see the page's head.
    const GOLDEN: [u8; 13] = [0x10, 0xCA, 0x00, 0xA0, 6, 0x00, 0x00, 0x00, 0x40, 20, 0, 60, 0];

    #[test]
    fn frames_are_laid_out_as_documented() {
        let bytes = setup().encode();
        assert_eq!(bytes[..13], GOLDEN);
        let mut layout = Vec::new();
        setup().layout.put(&mut layout);
        assert_eq!(bytes[13..], [&layout[..], &[0]].concat());
        assert_eq!(Setup::decode(&bytes), Ok(setup()));
        let mut by_size = setup();
        by_size.layout.shape.quantiles = 0x0102;
        assert_eq!(by_size.encode(), [&bytes[..], &[2, 1]].concat());
        assert_eq!(Setup::decode(&by_size.encode()), Ok(by_size));
        by_size.layout.shape.row_sets = 1500;
        assert_eq!((by_size.for_version(5), by_size.for_version(6)), (setup(), by_size));
        let udp_port = NonZeroU16::new(0x8765);
        let by_port = Setup { udp_port, ..setup() };
        assert_eq!(by_port.encode(), [&bytes[..], &[0, 0, 0x65, 0x87]].concat());
        assert_eq!(Setup::decode(&by_port.encode()), Ok(by_port));
        // A switch of an older release is to decline it, and not to do without.
        assert_eq!(by_port.for_version(5).udp_port, udp_port);
        let both = Setup { udp_port, ..by_size };
        assert_eq!(Setup::decode(&both.encode()), Ok(both));
        let plan = Plan::of(Step::Transits);
        let holding = Holding { setup: vec![7, 8], epoch: 0x0102_0304_0506_0708, plan };
        let bytes = [2, 0, 0, 0, 7, 8, 8, 7, 6, 5, 4, 3, 2, 1, 2, 0, 0];
        assert_eq!(holding.encode(), bytes);
        assert_eq!(Holding::decode(&bytes), Ok(holding));
    }

    #[test]
    fn rules_of_a_watch_list_are_laid_out_as_documented() {
        let prefix = |text: &str| Some(text.parse().unwrap());
        let of = WatchRule { src: prefix("10.1.0.0/16"), dport: Some(443), ..WatchRule::default() };
        let to = WatchRule { dst: prefix("2001:db8::/32"), proto: Some(6), ..WatchRule::default() };
        let watch = WatchList::new(&[of, to]).unwrap();
        let watching = Setup { watch, ..setup() };
        let mut bytes = watching.encode();
        let from = setup().encode().len() - 1;
        let address = [0x20, 1, 0x0D, 0xB8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let of_first = [0b01001, 4, 10, 1, 0, 0, 16, 0xBB, 1];
        let expected = [&[2][..], &of_first, &[0b10010, 6], &address, &[32, 6]].concat();
        assert_eq!(bytes[from..], expected);
        assert_eq!(Setup::decode(&bytes), Ok(watching));
        bytes[from + 1] = 0;
        let refused = Setup::decode(&bytes).unwrap_err().to_string();
        let words = format!("byte {} of a setup of sketchint: watch: 0b0: no field", from + 1);
        assert!(refused.starts_with(&words), "{refused}");
        assert!(WatchList::new(&[of; 17]).unwrap_err().contains("17 rules: there may be 16"));
        assert!(WatchList::new(&[of, WatchRule::default()]).unwrap_err().contains("rule 1 is"));
    }

    #[test]
    fn what_switches_can_not_measure_by_is_named_with_its_byte() {
        let says = |setup: Setup, byte: usize, words: &str| {
            let refused = Setup::decode(&setup.encode()).unwrap_err().to_string();
            assert_eq!(refused, format!("byte {byte} of a setup of sketchint: {words}"));
        };
        says(Setup { hops: 0, ..setup() }, 4, "hops: 0: must be 1 to 16");
        says(Setup { hops: 17, ..setup() }, 4, "hops: 17: must be 1 to 16");
        let window = "window_epochs: 1: must be 2 to 1000";
        says(Setup { window_epochs: 1, ..setup() }, 9, window);
        let orphan = "orphan_seconds: 0: must be 1 to 3600";
        says(Setup { orphan_seconds: 0, ..setup() }, 11, orphan);
        let mut many = setup();
        many.layout.shape.quantiles = 4097;
        says(many, many.encode().len() - 2, "quantiles: 4097: must be 0 to 4096");
        let bytes = setup().encode();
        for (port, words) in
            [(53, "53: is a service's"), (4789, "4789: is VXLAN's"), (6081, "6081: is Geneve's")]
        {
            let setup = Setup { udp_port: NonZeroU16::new(port), ..setup() };
            let refused = Setup::decode(&setup.encode()).unwrap_err().to_string();
            let byte = format!("byte {} of a setup of sketchint: udp_port: ", bytes.len() + 2);
            assert!(refused.starts_with(&(byte + words)), "{refused}");
        }
        let zero = Setup::decode(&[&bytes[..], &[0; 4]].concat()).unwrap_err().to_string();
        assert!(zero.ends_with("udp_port: 0 is not written"), "{zero}");
        let none = [&setup().encode()[..], &[0, 0]].concat();
        let refused = Setup::decode(&none).unwrap_err().to_string();
        assert!(refused.ends_with("quantiles: 0 is not written"), "{refused}");
        let mut bytes = setup().encode();
        bytes[2..4].copy_from_slice(&[1, 0xA0]);
        let refused = Setup::decode(&bytes).unwrap_err().to_string();
        assert!(refused.contains("byte 2") && refused.contains("0xa001"), "{refused}");
    }

    #[test]
    fn a_share_is_of_words_and_all_is_all() {
        let of = |share| Setup { share, ..setup() };
        assert!(!of(0).carries(0) && of(u32::MAX).carries(u32::MAX));
        assert!(of(0x4000_0000).carries(0x3FFF_FFFF) && !of(0x4000_0000).carries(0x4000_0000));
        assert!((of(0x4000_0000).carried_share() - 0.25).abs() < 1e-9);
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_panic(bytes: Vec<u8>) {
            if let Ok(setup) = Setup::decode(&bytes) {
                prop_assert_eq!(setup.encode(), bytes.clone());
            }
            if let Ok(holding) = Holding::decode(&bytes) {
                prop_assert_eq!(holding.encode(), bytes);
            }
        }
    }
}
