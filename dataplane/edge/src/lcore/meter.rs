//! Times an lcore's bursts into its [`Profile`]: one reading of the time stamp counter a burst, and
//! two more in those of which the stages are timed.

use crate::measure::Moment;
use crate::profile::Profile;
use crate::sync::{tsc, tsc_hz};

/// The profile of an lcore, and the burst under way.
#[derive(Debug)]
pub struct Meter {
    /// Where the time went since the last report.
    pub profile: Box<Profile>,
    /// The counter as of the end of the last burst, or of the last idle round.
    now: u64,
    /// What was special at the start of the next burst.
    moment: Moment,
    /// Whether the stages of the burst under way are timed.
    sampled: bool,
    received: u64,
    worked: u64,
}

impl Meter {
    /// An empty profile, as of now.
    pub fn start() -> Self {
        let profile = Box::new(Profile::new(tsc_hz()));
        let now = tsc();
        Self { profile, now, moment: Moment::Ordinary, sampled: false, received: 0, worked: 0 }
    }

    /// The counter as it was read last.
    #[inline]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Begins a round of polling; its first burst counts as one at `moment`.
    #[inline]
    pub fn begin_round(&mut self, moment: Moment) {
        self.moment = moment;
    }

    /// A burst has been received.
    #[inline]
    pub fn received(&mut self) {
        self.sampled = self.profile.samples();
        self.received = if self.sampled { tsc() } else { 0 };
    }

    /// The burst is ready to be sent.
    #[inline]
    pub fn worked(&mut self) {
        self.worked = if self.sampled { tsc() } else { 0 };
    }

    /// The burst has been sent.
    #[inline]
    pub fn sent(&mut self) {
        let (began, sent) = (self.now, tsc());
        self.profile.burst(sent - began, self.moment);
        if self.sampled {
            let (received, worked) = (self.received, self.worked);
            self.profile.stages(received - began, worked - received, sent - worked);
        }
        (self.now, self.moment) = (sent, Moment::Ordinary);
    }

    /// Ends a round of polling.
    #[inline]
    pub fn end_round(&mut self, idle: bool) {
        if idle {
            let woken = tsc();
            self.profile.idle(woken - self.now);
            self.now = woken;
        }
    }
}
