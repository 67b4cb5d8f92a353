//! In which epochs something was wrong with a path or a clock.

use std::ops::Range;

/// For how many epochs it is remembered that something was wrong: as many as the longest windows of
/// systems have, and those that pass until these are reported.
pub(crate) const REMEMBERED: u64 = 1000 + 64;

/// Epochs before a window and after it whose packets are counted in it, if something is wrong:
/// those with its timestamp bits that come before its first ones or after its last.
const AROUND: u64 = 2;

/// Spans of epochs in which something was wrong, the latest last; those of long ago are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spans(Vec<Span>);

/// Epochs, while it lasts without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) since: u64,
    until: Option<u64>,
    /// The latest in which it was seen.
    seen: u64,
    /// The latest in which packets came with which something was wrong.
    came: u64,
}

impl Spans {
    /// Notes that something was wrong in the epoch `seen`, and maybe since `since` already, with
    /// packets that came in `came`.
    pub(crate) fn begin(&mut self, since: u64, seen: u64, came: u64) {
        match self.0.last_mut() {
            // It lasts, or it ended so shortly before that it has not been over.
            Some(last) if last.until.is_none_or(|until| until + 1 >= since) => {
                let (since, seen) = (last.since.min(since), last.seen.max(seen));
                *last = Span { since, until: None, seen, came: last.came.max(came) };
            }
            _ => {
                self.0.retain(|span| span.is_recent(since));
                self.0.push(Span { since, until: None, seen, came });
            }
        }
    }

    pub(crate) fn end(&mut self, epoch: u64) {
        if let Some(last) = self.0.last_mut().filter(|last| last.until.is_none()) {
            // A probe that was sent before may come after; it takes nothing back.
            last.until = Some(epoch.max(last.seen));
        }
    }

    pub(crate) fn lasts(&self) -> bool {
        self.0.last().is_some_and(|last| last.until.is_none())
    }

    pub(crate) fn of(&self, epoch: u64) -> Option<&Span> {
        self.0.iter().find(|span| span.has(epoch))
    }

    /// Whether something was wrong with packets that may have been counted in a window of these
    /// epochs.
    pub(crate) fn is_around(&self, window: &Range<u64>) -> bool {
        self.0.iter().any(|span| span.is_around(window))
    }
}

impl Span {
    fn has(&self, epoch: u64) -> bool {
        self.since <= epoch && self.until.is_none_or(|until| epoch <= until)
    }

    fn is_around(&self, window: &Range<u64>) -> bool {
        let ends_before = |until: u64| until.max(self.came) + AROUND < window.start;
        self.since < window.end + AROUND && !self.until.is_some_and(ends_before)
    }

    fn is_recent(&self, epoch: u64) -> bool {
        self.until.is_none_or(|until| until.max(self.came) + REMEMBERED >= epoch)
    }
}
