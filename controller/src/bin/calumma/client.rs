//! Requests to the controller, and its events.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use calumma_ports::client::{self, remedy};
use serde::de::DeserializeOwned;

/// How long to wait before a controller that went away is looked for again.
const RETRY: Duration = Duration::from_secs(1);

/// A controller's HTTP API.
pub(crate) struct Client(client::Client);

impl Client {
    /// A client of the controller at `address`, by what is in these files.
    ///
    /// # Errors
    /// When there is no certificate in `ca`, or the token would be shown to everybody on the way.
    pub(crate) fn new(
        address: &str,
        token: Option<&Path>,
        ca: Option<&Path>,
    ) -> anyhow::Result<Self> {
        client::Client::of_files(address, token, ca).map(Self)
    }

    /// The answer to a request.
    ///
    /// # Errors
    /// When no controller answers there, or something else does.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let url = format!("{}{path}", self.0.address());
        let mut answer = self.0.get(path).call().map_err(|problem| {
            let remedy = remedy(&problem, "is a controller running there, with `http` configured?");
            anyhow::Error::from(problem).context(format!("{url}: {remedy}"))
        })?;
        // A thousand reports of a busy network are larger than the client's own limit.
        let body = answer.body_mut().with_config().limit(u64::MAX).reader();
        serde_json::from_reader(BufReader::new(body)).with_context(|| {
            format!("{url}: the answer is not that of a controller of this version")
        })
    }

    /// The answer to a request that changes something.
    ///
    /// # Errors
    /// When no controller answers there, or why it does not do it.
    pub(crate) fn post<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.post_json(path, &[])
    }

    /// The same of one that says what it wants, in JSON.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub(crate) fn post_json<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &[u8],
    ) -> anyhow::Result<T> {
        #[derive(serde::Deserialize)]
        struct Problem {
            error: String,
        }
        let url = format!("{}{path}", self.0.address());
        let asked = self.0.post(path).config().http_status_as_error(false).build();
        let asked = asked.header("content-type", "application/json").send(body);
        let mut answer = asked.with_context(|| {
            format!("{url}: is a controller running there, with an HTTP address?")
        })?;
        let (status, body) = (answer.status(), answer.body_mut().read_to_string()?);
        if !status.is_success() {
            let problem: Result<Problem, _> = serde_json::from_str(&body);
            bail!("{}", problem.map_or(format!("{url}: {status}"), |problem| problem.error));
        }
        serde_json::from_str(&body).with_context(|| {
            format!("{url}: the answer is not that of a controller of this version")
        })
    }

    /// The last `last` epochs, and every one to come; goes on when a controller comes back.
    pub(crate) fn events(&self, view: &'static str, last: usize) -> Events<'_> {
        Events { client: self, view, last, known: None, lines: None }
    }
}

/// Epochs as they come: their numbers, and their JSON.
pub(crate) struct Events<'a> {
    client: &'a Client,
    view: &'static str,
    last: usize,
    /// The last epoch that was received.
    known: Option<u64>,
    lines: Option<std::io::Lines<BufReader<ureq::BodyReader<'static>>>>,
}

impl Events<'_> {
    /// The next epoch.
    ///
    /// # Errors
    /// When no controller has ever answered there.
    pub(crate) fn next(&mut self) -> anyhow::Result<(u64, String)> {
        loop {
            if let Some(lines) = &mut self.lines {
                if let Some(event) = event(lines) {
                    self.known = Some(event.0);
                    return Ok(event);
                }
                eprintln!("calumma: the controller has gone; waiting for it to come back");
                self.lines = None;
            }
            self.connect()?;
        }
    }

    fn connect(&mut self) -> anyhow::Result<()> {
        let (last, view) = (self.last, self.view);
        let path = format!("/api/v1/events?last={last}&view={view}");
        loop {
            let mut request = self.client.0.get(&path);
            if let Some(known) = self.known {
                request = request.header("Last-Event-ID", known.to_string());
            }
            match request.call() {
                Ok(answer) => {
                    let reader = BufReader::new(answer.into_body().into_reader());
                    self.lines = Some(reader.lines());
                    return Ok(());
                }
                Err(_) if self.known.is_some() => std::thread::sleep(RETRY),
                Err(problem) => {
                    let remedy =
                        remedy(&problem, "is a controller running there, with an HTTP address?");
                    let address = self.client.0.address();
                    return Err(
                        anyhow::Error::from(problem).context(format!("{address}: {remedy}"))
                    );
                }
            }
        }
    }
}

/// Where what comes after `known` begins in numbers that rise. Where all of them are lower, since
/// epochs are longer now or the controller's clock was set back, that is the last.
pub(crate) fn unknown_from(numbers: &[u64], known: Option<u64>) -> usize {
    match numbers.last() {
        Some(newest) if Some(*newest) < known => numbers.len() - 1,
        _ => numbers.partition_point(|number| Some(*number) <= known),
    }
}

/// The next event; `None` where the stream has ended. Comments, which keep it alive, are passed
/// over.
fn event(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> Option<(u64, String)> {
    let (mut id, mut data) = (None, None);
    for line in lines {
        let line = line.ok()?;
        if let Some(text) = line.strip_prefix("id: ") {
            id = text.parse().ok();
        } else if let Some(text) = line.strip_prefix("data: ") {
            data = Some(text.to_owned());
        } else if line.is_empty()
            && let (Some(id), Some(data)) = (id, data.take())
        {
            return Some((id, data));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{event, unknown_from};

    #[test]
    fn what_comes_after_the_last_is_new_and_the_last_where_numbers_have_fallen() {
        assert_eq!(unknown_from(&[7, 8, 9], None), 0);
        assert_eq!(unknown_from(&[7, 8, 9], Some(7)), 1);
        assert_eq!(unknown_from(&[7, 8, 9], Some(9)), 3);
        assert_eq!(unknown_from(&[7, 8, 9], Some(40)), 2);
        assert_eq!(unknown_from(&[], Some(40)), 0);
    }

    #[test]
    fn events_are_read_between_comments_until_the_stream_breaks_off() {
        let text =
            ":\n\nevent: epoch\nid: 7\ndata: {\"a\":1}\n\n:\n\nid: 8\ndata: {}\n\nid: 9\ndata: {";
        let mut lines = text.lines().map(|line| Ok(line.to_owned()));
        assert_eq!(event(&mut lines), Some((7, "{\"a\":1}".to_owned())));
        assert_eq!(event(&mut lines), Some((8, "{}".to_owned())));
        assert_eq!(event(&mut lines), None);
    }
}
