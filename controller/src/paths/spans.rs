//! In which epochs something was wrong with a path.

/// For how many epochs it is remembered that a path could not be trusted.
pub(super) const REMEMBERED: u64 = 64;

/// Spans of epochs in which something was wrong, the latest last; those of long ago are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spans(Vec<Span>);

/// Epochs, while it lasts without an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) since: u64,
    until: Option<u64>,
    /// The latest in which it was seen.
    seen: u64,
}

impl Spans {
    /// Notes that something was wrong in the epoch `seen`, and maybe since `since` already.
    pub(super) fn begin(&mut self, since: u64, seen: u64) {
        match self.0.last_mut() {
            // It lasts, or it ended so shortly before that it has not been over.
            Some(last) if last.until.is_none_or(|until| until + 1 >= since) => {
                let (since, seen) = (last.since.min(since), last.seen.max(seen));
                *last = Span { since, until: None, seen };
            }
            _ => {
                self.0.retain(|span| span.is_recent(since));
                self.0.push(Span { since, until: None, seen });
            }
        }
    }

    pub(super) fn end(&mut self, epoch: u64) {
        if let Some(last) = self.0.last_mut().filter(|last| last.until.is_none()) {
            // A probe that was sent before may come after; it takes nothing back.
            last.until = Some(epoch.max(last.seen));
        }
    }

    pub(super) fn lasts(&self) -> bool {
        self.0.last().is_some_and(|last| last.until.is_none())
    }

    pub(super) fn of(&self, epoch: u64) -> Option<&Span> {
        self.0.iter().find(|span| span.has(epoch))
    }
}

impl Span {
    fn has(&self, epoch: u64) -> bool {
        self.since <= epoch && self.until.is_none_or(|until| epoch <= until)
    }

    fn is_recent(&self, epoch: u64) -> bool {
        self.until.is_none_or(|until| until + REMEMBERED >= epoch)
    }
}
