//! Delivery of events to one address, on a thread of its own, in order, with patience.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Deserialize;
use tracing::{info, warn};

/// Events that may wait while an address does not answer.
const EVENTS_WAITING: usize = 256;

/// Longest time that a request takes.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Times that an event is tried; with the waits between, for about four minutes.
const ATTEMPTS: u32 = 9;

/// The first wait between attempts; each one after is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Where events are sent. It shows its host alone: the rest is often a secret.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct WebhookUrl(String);

impl WebhookUrl {
    /// Whether it is of HTTP, with TLS or without.
    pub(super) fn is_http(&self) -> bool {
        self.0.starts_with("http://") || self.0.starts_with("https://")
    }
}

impl From<&str> for WebhookUrl {
    fn from(url: &str) -> Self {
        Self(url.to_owned())
    }
}

impl fmt::Display for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = self.0.split_once("://").map_or(&*self.0, |(_, rest)| rest);
        f.write_str(&rest[host(rest)])
    }
}

impl fmt::Debug for WebhookUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebhookUrl({self})")
    }
}

/// An address that events are sent to.
#[derive(Debug)]
pub(super) struct Webhook {
    events: Option<SyncSender<Arc<str>>>,
    /// Hung up to say that there is no more time to wait.
    patience: Option<Sender<()>>,
    lost: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Webhook {
    /// Starts the thread that delivers to `url`.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(url: &WebhookUrl) -> std::io::Result<Self> {
        let (events, waiting) = sync_channel(EVENTS_WAITING);
        let (patience, hung_up) = channel();
        let lost = Arc::new(AtomicU64::new(0));
        let (name, url) = (url.to_string(), url.0.clone());
        let delivery = Delivery { url, name, hung_up, lost: lost.clone() };
        let thread = std::thread::Builder::new()
            .name("webhook".to_owned())
            .spawn(move || delivery.run(&waiting))?;
        Ok(Self { events: Some(events), patience: Some(patience), lost, thread: Some(thread) })
    }

    /// Hands an event over, as JSON.
    pub(super) fn send(&self, event: &Arc<str>) {
        let full = |events: &SyncSender<_>| events.try_send(event.clone()).is_err();
        if self.events.as_ref().is_none_or(full) {
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Events that never arrived, so far.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Tries what is waiting once more, and ends.
    pub(super) fn finish(&mut self) {
        self.events = None;
        self.patience = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

/// The thread's side.
struct Delivery {
    url: String,
    /// What the log calls it.
    name: String,
    hung_up: Receiver<()>,
    lost: Arc<AtomicU64>,
}

/// Where the host is in what stands behind the scheme of an address.
pub(crate) fn host(rest: &str) -> Range<usize> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    rest[..end].rfind('@').map_or(0, |at| at + 1)..end
}

/// What became of a request.
enum Answer {
    Accepted,
    /// Trying again may help.
    Later(String),
    Refused(String),
}

impl Delivery {
    fn run(&self, waiting: &Receiver<Arc<str>>) {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .build();
        let agent = ureq::Agent::new_with_config(config);
        for event in waiting {
            if let Err(problem) = self.deliver(&agent, &event) {
                self.lost.fetch_add(1, Relaxed);
                warn!("webhook {}: {problem}; discarded: {event}", self.name);
            }
        }
    }

    fn deliver(&self, agent: &ureq::Agent, event: &str) -> Result<(), String> {
        let mut wait = FIRST_WAIT;
        for attempt in 1.. {
            match self.post(agent, event) {
                Answer::Accepted => break,
                Answer::Refused(problem) => return Err(problem),
                Answer::Later(problem) => {
                    if attempt == ATTEMPTS || !self.may_wait(wait) {
                        return Err(problem);
                    }
                    info!("webhook {}: {problem}; trying again", self.name);
                    wait *= 2;
                }
            }
        }
        Ok(())
    }

    fn post(&self, agent: &ureq::Agent, event: &str) -> Answer {
        let request = agent.post(&self.url).header("content-type", "application/json");
        match request.send(event) {
            Err(problem) => Answer::Later(problem.to_string()),
            Ok(response) => match response.status() {
                status if status.is_success() => Answer::Accepted,
                status if status.is_server_error() || matches!(status.as_u16(), 408 | 429) => {
                    Answer::Later(format!("answered {status}"))
                }
                status => Answer::Refused(format!("answered {status}")),
            },
        }
    }

    /// Waits, unless the controller is ending.
    fn may_wait(&self, wait: Duration) -> bool {
        self.hung_up.recv_timeout(wait) == Err(RecvTimeoutError::Timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_names_a_webhook_without_its_secrets() {
        for (url, shown) in [
            ("https://hooks.example.net/services/T0/secret", "hooks.example.net"),
            ("http://user:secret@10.0.0.1:8080?token=secret", "10.0.0.1:8080"),
        ] {
            assert_eq!(WebhookUrl::from(url).to_string(), shown);
        }
    }
}
