//! How a switch knows at which hop it is.
//!
//! ```text
//! 0  or  1  base (1), 0: none  offset (1)  step (1)
//!    or, from version 9 on, 2  ports (1)  each port's hop (1)
//!    or, from version 11 on, 3  hops in all (1), 0: not known
//! ```

use calumma_plane::carrier::Way;
use calumma_sketch::grade::HopRule;
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u8};

/// How a switch knows how many others a packet has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hop {
    /// By the time to live, or hop limit, with which it received the packet.
    Ttl(HopRule),
    /// By the port that received it.
    Port(PortHops),
    /// By the packet's mark, which each of them raises.
    Mark {
        /// The hops that packets pass in all, as those that enter are said to; 0 where that is not
        /// known.
        length: u8,
    },
    /// It does not.
    None,
}

/// The number of the hop at which a switch is for the packets that each of its ports receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortHops {
    numbers: [u8; Self::MOST],
    ports: u8,
}

impl PortHops {
    /// Ports of a switch, at most.
    pub const MOST: usize = 64;

    /// A switch without ports.
    pub const NONE: Self = Self { numbers: [0; Self::MOST], ports: 0 };

    /// Those of ports in their order; `None` where they are more than [`MOST`](Self::MOST).
    pub fn new(of_ports: &[u8]) -> Option<Self> {
        let mut numbers = [0; Self::MOST];
        numbers.get_mut(..of_ports.len())?.copy_from_slice(of_ports);
        Some(Self { numbers, ports: of_ports.len() as u8 })
    }

    /// The number of each port.
    pub fn numbers(&self) -> &[u8] {
        &self.numbers[..self.ports.into()]
    }

    /// That of a port, 0 where it has none.
    #[inline(always)]
    fn of(&self, port: u16) -> u8 {
        self.numbers.get(usize::from(port)).copied().unwrap_or(0)
    }
}

impl Hop {
    /// The number of the hop at which a packet is that this port receives with this time to live,
    /// and the hops it passes in all; 0 where there are none. Its mark says `marked`.
    #[inline(always)]
    pub(super) fn at(&self, ttl: u8, port: u16, marked: Way) -> Way {
        let hop = match self {
            Self::Ttl(rule) => rule.number(ttl),
            Self::Port(hops) => hops.of(port),
            Self::Mark { .. } => return marked,
            Self::None => 0,
        };
        Way { hop, length: 0 }
    }

    /// What ports and marks can say, by rising hops of one length; nothing where hops follow from
    /// times to live, or have no number.
    pub(super) fn ways(&self) -> impl Iterator<Item = Way> {
        let (ports, lengths) = match self {
            Self::Port(hops) => (hops.numbers(), None),
            // Edges without the system in a session don't know the length.
            Self::Mark { length } => (&[][..], Some([0, *length])),
            Self::Ttl(_) | Self::None => (&[][..], None),
        };
        let of_ports = ports.iter().map(|&hop| Way { hop, length: 0 });
        let hops = |length| (0..=Way::MOST).map(move |hop| Way { hop, length });
        of_ports.chain(lengths.into_iter().flatten().flat_map(hops))
    }

    /// Whether a packet's time to live says nothing of its hop, though hops have numbers.
    pub fn is_said(&self) -> bool {
        matches!(self, Self::Port(_) | Self::Mark { .. })
    }
}

pub(super) fn put(out: &mut Vec<u8>, hop: &Hop) {
    match hop {
        Hop::None => put_u8(out, 0),
        Hop::Ttl(rule) => {
            out.extend_from_slice(&[1, rule.base.unwrap_or(0), rule.offset, rule.step]);
        }
        Hop::Port(hops) => {
            out.extend_from_slice(&[2, hops.ports]);
            out.extend_from_slice(hops.numbers());
        }
        Hop::Mark { length } => out.extend_from_slice(&[3, *length]),
    }
}

pub(super) fn read(body: &mut Body<'_>) -> Result<Hop, DecodeError> {
    let offset = body.offset();
    match body.u8("hop")? {
        0 => Ok(Hop::None),
        1 => {
            let base = body.u8("ttl_base")?;
            let (offset, step) = (body.u8("hop_offset")?, body.u8("hop_step")?);
            Ok(Hop::Ttl(HopRule { base: (base > 0).then_some(base), offset, step }))
        }
        2 => {
            let offset = body.offset();
            let ports = body.u8("ports")?;
            if usize::from(ports) > PortHops::MOST {
                let why = format_args!("{ports}: must be 0 to {}", PortHops::MOST);
                return Err(body.wrong(offset, "ports", why));
            }
            let numbers = body.bytes("hops of ports", ports.into())?;
            Ok(Hop::Port(PortHops::new(numbers).unwrap_or(PortHops::NONE)))
        }
        3 => Ok(Hop::Mark { length: body.u8("path_length")? }),
        other => Err(body.wrong(offset, "hop", format_args!("{other}: must be 0 to 3"))),
    }
}
