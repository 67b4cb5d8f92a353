//! Epochs as they come, as Server-Sent Events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use serde::Deserialize;
use tokio::sync::{broadcast, watch};
use utoipa::IntoParams;

use super::epochs::{Epoch, View};
use crate::report::EpochReport;
use crate::server::Hub;
use crate::server::http::Server;
use crate::server::http::access::Permit;

/// Reports fetched from memory at once, so that a reader who is far behind holds few.
const BATCH: usize = 32;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct From {
    /// How many past epochs to begin with
    #[serde(default)]
    #[param(default = 0)]
    last: usize,
    /// How much of each
    #[serde(default = "summary")]
    #[param(inline, default = "summary", required = false)]
    view: View,
}

fn summary() -> View {
    View::Summary
}

/// Epochs as they are reported, one event each
///
/// Server-Sent Events of the type `epoch`: `id` is the epoch's number, `data` its JSON. Before it
/// come events of the type `amendment`, one for each loss of an earlier epoch that it makes
/// uncertain; their `data` is as in `amendments` of the report. What another system reports before
/// its epoch is over comes at once as an event of the type `notice`, with the system's name in the
/// `data`: flows that go round, of `cfs`. Whoever reconnects with
/// `Last-Event-ID`, as browsers do, misses nothing that is still remembered. Where numbers have
/// fallen, since epochs are longer now or the controller's clock was set back, they go on from the
/// newest, and the stream ends when the token that was shown is revoked. To one who reads too
/// slowly, epochs that are no longer remembered are not sent: numbers then jump.
#[utoipa::path(get, path = "/api/v1/events",
    params(From, ("Last-Event-ID" = Option<u64>, Header, description = "The last epoch known")),
    responses((status = OK, content_type = "text/event-stream", body = Epoch)))]
pub(super) async fn events(
    State(server): State<Server>,
    Query(from): Query<From>,
    headers: HeaderMap,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let permit = Permit::of(&server, &headers);
    let known = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse::<u64>().ok());
    let recent = &server.hub.chamelemon.recent;
    // Watched before looking, so that no report falls in between.
    let reported = recent.watch();
    let notices = server.hub.notices();
    let next = match known {
        Some(known) => known.saturating_add(1),
        None => match recent.reports(from.last.max(1)).first() {
            Some(first) if from.last > 0 => first.epoch,
            Some(newest) => newest.epoch + 1,
            None => 0,
        },
    };
    let feed = Feed {
        hub: server.hub,
        view: from.view,
        next,
        fetched: VecDeque::new(),
        ready: VecDeque::new(),
        reported,
        notices,
        permit,
        stopped: server.stopped,
    };
    let stream = futures_util::stream::unfold(feed, async |mut feed| {
        if feed.ready.is_empty() {
            feed.ready = match feed.next().await? {
                Next::Report(report) => events_of(&report, feed.view)?,
                Next::Notice(json) => [Event::default().event("notice").data(json)].into(),
            };
        }
        let event = feed.ready.pop_front()?;
        Some((Ok(event), feed))
    });
    Sse::new(stream).keep_alive(KeepAlive::default())
}

/// The events of a report; `None` where it can't be written, for which there is no reason.
fn events_of(report: &EpochReport, view: View) -> Option<VecDeque<Event>> {
    let amendment = |of| Event::default().event("amendment").json_data(of).ok();
    let amendments = report.amendments.iter().map(amendment);
    let epoch = Event::default().event("epoch").id(report.epoch.to_string());
    amendments.chain([epoch.json_data(view.of(report)).ok()]).collect()
}

/// One reader's place in the epochs.
struct Feed {
    hub: Arc<Hub>,
    view: View,
    /// The first epoch that has not been fetched.
    next: u64,
    fetched: VecDeque<Arc<EpochReport>>,
    /// Events that are still to be sent of the last report.
    ready: VecDeque<Event>,
    reported: watch::Receiver<Option<u64>>,
    notices: broadcast::Receiver<Arc<str>>,
    permit: Permit,
    stopped: watch::Receiver<bool>,
}

/// What a reader is to be sent.
enum Next {
    Report(Arc<EpochReport>),
    Notice(Arc<str>),
}

impl Feed {
    /// The next report or notice, as soon as there is one, notices first; `None` when the
    /// controller stops or the reader's token is revoked. To one who reads too slowly, some notices
    /// are not sent.
    async fn next(&mut self) -> Option<Next> {
        loop {
            if self.permit.is_over() {
                return None;
            }
            if let Ok(notice) = self.notices.try_recv() {
                return Some(Next::Notice(notice));
            }
            if let Some(report) = self.fetched.pop_front() {
                return Some(Next::Report(report));
            }
            self.reported.mark_unchanged();
            self.fetched = self.hub.chamelemon.recent.reports_from(self.next, BATCH).into();
            if let Some(last) = self.fetched.back() {
                self.next = last.epoch + 1;
                continue;
            }
            // After longer epochs were configured, or the clock was set back, numbers are lower
            // than those that the reader knows.
            let newest = self.hub.chamelemon.recent.last_epoch();
            if let Some(newest) = newest.filter(|newest| newest.saturating_add(1) < self.next) {
                self.next = newest;
                continue;
            }
            tokio::select! {
                changed = self.reported.changed() => changed.ok()?,
                notice = self.notices.recv() => {
                    if let Ok(notice) = notice {
                        return Some(Next::Notice(notice));
                    }
                }
                () = self.permit.over() => return None,
                _ = self.stopped.wait_for(|&stopped| stopped) => return None,
            }
        }
    }
}
