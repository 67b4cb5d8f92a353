//! One thing that is watched: when its alert starts and ends, and what is said of it meanwhile.

use calumma_analysis::EpochHead;
use calumma_analysis::alert::{Details, Fact, Reading};
use chrono::{DateTime, SecondsFormat};
use serde::Serialize;

use super::hysteresis::{Hysteresis, Lasting, Patience, Transition};

/// What a webhook is sent: the body of its request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// The alert: the same text in all events from its start to its end, and in no others.
    pub id: String,
    /// `start`, `update` or `end`.
    pub event: &'static str,
    /// `loss`, `ill`, `decode`, `rewritten`, `incomplete`, `edge_missing` or `node_missing`; of a
    /// further system, a name of its own.
    pub alert: &'static str,
    /// The node it is about, where it is about one.
    pub node: Option<String>,
    /// The epoch that brought it.
    pub epoch: u64,
    /// When that epoch began.
    pub time: String,
    /// When the epoch began that started the alert.
    pub since: String,
    /// The last epoch that was bad, in an update that another one brought: words and details are
    /// of that epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen_epoch: Option<u64>,
    /// In words.
    pub text: String,
    /// Share and flows of alert `loss`; share and causes of alert `incomplete`.
    #[serde(flatten)]
    pub details: Details,
}

/// What was to be said in an epoch that was bad.
#[derive(Clone, Debug)]
struct Seen {
    epoch: u64,
    text: String,
    details: Details,
}

/// A thing that is watched.
#[derive(Clone, Debug, Default)]
pub(super) struct Watched {
    state: Hysteresis,
    /// As it was seen last, where its alert lasts.
    seen: Option<Seen>,
}

impl Watched {
    /// Whether its alert lasts.
    pub(super) fn lasts(&self) -> bool {
        self.state.lasting().is_some()
    }

    /// Takes what an epoch shows, and gives what is to be said. `say` has the words for it; it is
    /// asked `true` for those at the end of the alert, and else where the epoch is bad alone:
    /// another has nothing to say of what lasts.
    pub(super) fn step(
        &mut self,
        fact: Fact,
        head: EpochHead,
        patience: &Patience,
        say: impl FnOnce(&Fact, bool) -> (String, Details),
    ) -> Option<Event> {
        let stepped = self.state.step(fact.reading, head.epoch, head.start_unix_ns, patience);
        if let Some((Transition::End, lasting)) = stepped {
            self.seen = None;
            let (text, details) = say(&fact, true);
            return Some(event(fact, Transition::End, &lasting, head, text, details));
        }
        let is_bad = matches!(fact.reading, Reading::Bad | Reading::Proven);
        if is_bad && self.lasts() {
            let (text, details) = say(&fact, false);
            self.seen = Some(Seen { epoch: head.epoch, text, details });
        }
        let (transition, lasting) = stepped?;
        // What is bad starts it, so that there is something.
        let Seen { epoch, text, details } = self.seen.clone()?;
        if is_bad {
            return Some(event(fact, transition, &lasting, head, text, details));
        }
        let text = format!("{text}, last seen in epoch {epoch}");
        let event = event(fact, transition, &lasting, head, text, details);
        Some(Event { last_seen_epoch: Some(epoch), ..event })
    }

    /// Ends its alert, where it lasts, as nobody looks any more; what has been seen is forgotten.
    pub(super) fn end(
        &mut self,
        (alert, node): (&'static str, Option<String>),
        head: EpochHead,
        text: impl FnOnce() -> String,
    ) -> Option<Event> {
        let lasting = std::mem::take(self).state.lasting()?;
        let fact = Fact { alert, node, reading: Reading::Unknown };
        Some(event(fact, Transition::End, &lasting, head, text(), Details::default()))
    }
}

fn event(
    fact: Fact,
    transition: Transition,
    lasting: &Lasting,
    head: EpochHead,
    text: String,
    details: Details,
) -> Event {
    let Fact { alert, node, .. } = fact;
    let id = match &node {
        None => format!("{alert}-{}", lasting.since_epoch),
        Some(node) => format!("{alert}-{node}-{}", lasting.since_epoch),
    };
    Event {
        id,
        event: match transition {
            Transition::Start => "start",
            Transition::Update => "update",
            Transition::End => "end",
        },
        alert,
        node,
        epoch: head.epoch,
        time: rfc3339(head.start_unix_ns),
        since: rfc3339(lasting.since_ns),
        last_seen_epoch: None,
        text,
        details,
    }
}

fn rfc3339(unix_ns: u64) -> String {
    let time = DateTime::from_timestamp_nanos(i64::try_from(unix_ns).unwrap_or(i64::MAX));
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}
