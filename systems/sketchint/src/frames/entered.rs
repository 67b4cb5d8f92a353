//! What a source did with packets from hosts in a window.
//!
//! ```text
//! packets with a stack (8)  idle (8)  placeless (8)
//! number of reasons (1)  packets without, by reason (8 each)
//! ```

use calumma_plane::counters::int::IntCounters;
use calumma_plane::int::push::NotCarried;
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u8, put_u64};

/// What a source did with packets from hosts in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entered {
    /// Packets that went on with a stack.
    pub inserted: u64,
    /// Packets that entered while nothing was put into any.
    pub idle: u64,
    /// Where not all packets carry stacks: those of flows whose protocol has no place for one. The
    /// reason is `protocol`, and no share of them is drawn.
    pub placeless: u64,
    /// Packets that went on without, by the number of the reason.
    pub not_carried: [u64; NotCarried::ALL.len()],
}

impl Entered {
    /// What these counters say.
    pub fn of(counters: &IntCounters) -> Self {
        let IntCounters { inserted, not_carried, .. } = *counters;
        Self { inserted, not_carried, ..Self::default() }
    }

    /// Packets that were drawn and went without all the same, for what they are themselves: of a
    /// flow, any number may be among them.
    pub fn unfit(&self) -> u64 {
        let by_choice = [NotCarried::Share, NotCarried::Watch];
        let others = NotCarried::ALL.into_iter().filter(|why| !by_choice.contains(why));
        let others = others.map(|why| self.not_carried[why as usize]);
        others.fold(0, u64::saturating_add).saturating_sub(self.placeless)
    }

    /// What its counters have added since `before`.
    #[must_use]
    pub fn since(mut self, before: &Self) -> Self {
        self.inserted = self.inserted.wrapping_sub(before.inserted);
        for (mine, theirs) in self.not_carried.iter_mut().zip(before.not_carried) {
            *mine = mine.wrapping_sub(theirs);
        }
        self
    }

    /// Adds what another did.
    pub fn add(&mut self, other: &Self) {
        let mine = [&mut self.inserted, &mut self.idle, &mut self.placeless];
        let theirs = [other.inserted, other.idle, other.placeless];
        mine.into_iter().zip(theirs).for_each(|(mine, more)| *mine = mine.saturating_add(more));
        for (mine, theirs) in self.not_carried.iter_mut().zip(other.not_carried) {
            *mine = mine.saturating_add(theirs);
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, self.inserted);
        put_u64(&mut out, self.idle);
        put_u64(&mut out, self.placeless);
        put_u8(&mut out, self.not_carried.len() as u8);
        self.not_carried.iter().for_each(|&packets| put_u64(&mut out, packets));
        out
    }

    /// What these bytes say.
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut body = Body::new("what a source did", bytes, 0);
        let mut entered = Self {
            inserted: body.u64("packets with a stack")?,
            idle: body.u64("idle")?,
            placeless: body.u64("placeless")?,
            ..Self::default()
        };
        let offset = body.offset();
        let (number, known) = (body.u8("number of reasons")?, entered.not_carried.len());
        if usize::from(number) != known {
            let why = format_args!("{number}, and there are {known}");
            return Err(body.wrong(offset, "number of reasons", why));
        }
        for packets in &mut entered.not_carried {
            *packets = body.u64("packets without a stack")?;
        }
        body.end()?;
        Ok(entered)
    }
}
