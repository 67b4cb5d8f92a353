//! The class that a packet's flow had when the packet entered the network.

/// The class of a packet's flow at the moment it enters the network; two bits of the
/// [mark](crate::Mark). ChameleMon paper, section 3.2; 0 in packets of a network that does not run
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Hierarchy {
    /// A light-loss candidate left out by sampling; encoded nowhere.
    #[default]
    NonSampledLl = 0,
    /// A light-loss candidate in the sample; encoded in the LL encoders.
    SampledLl = 1,
    /// A heavy-loss candidate; encoded in the HL encoders.
    HlCandidate = 2,
    /// A heavy-hitter candidate; encoded in the HH encoder upstream, in the HL encoder downstream.
    HhCandidate = 3,
}

impl Hierarchy {
    /// The hierarchy from the two bits a packet carries; further bits are ignored.
    #[inline]
    pub fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NonSampledLl,
            1 => Self::SampledLl,
            2 => Self::HlCandidate,
            _ => Self::HhCandidate,
        }
    }

    /// The two bits a packet carries.
    #[inline]
    pub fn bits(self) -> u8 {
        self as u8
    }
}
