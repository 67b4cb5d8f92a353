//! By which rule flows are graded.

use calumma_plane::carrier::Way;
use calumma_sketch::grade;
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u8};

/// By which rule a switch grades flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graded {
    /// [`grade::fold`].
    Fold,
    /// [`grade::greedy`].
    Greedy,
    /// [`grade::random`], by the switch's [`salt`](super::salt).
    Random,
    /// [`grade::even`] where marks say how many hops a packet passes in all, else [`grade::fold`].
    /// From version 11 on.
    Even,
}

impl Graded {
    /// All of them, by their numbers in frames.
    pub(super) const ALL: [Self; 4] = [Self::Fold, Self::Greedy, Self::Random, Self::Even];

    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fold => "fold",
            Self::Greedy => "greedy",
            Self::Random => "random",
            Self::Even => "even",
        }
    }
}

/// The grade by even shares of the flows, as far as it is known of how many hops this is one; one
/// that is beyond the last is of a longer way.
#[inline(always)]
pub(crate) fn even(word: u32, Way { hop, length }: Way) -> u32 {
    if hop < length { grade::even(word, hop, length) } else { grade::fold(word, hop) }
}

pub(super) fn put(out: &mut Vec<u8>, graded: Graded) {
    let number = Graded::ALL.iter().position(|&rule| rule == graded).unwrap_or_default();
    put_u8(out, number as u8);
}

pub(super) fn read(body: &mut Body<'_>) -> Result<Graded, DecodeError> {
    let offset = body.offset();
    let number = body.u8("grade")?;
    let known = Graded::ALL.get(usize::from(number)).copied();
    known.ok_or_else(|| body.wrong(offset, "grade", format_args!("there is no rule {number}")))
}
