//! Requests to the controller, and its events.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::de::DeserializeOwned;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// How long a controller may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait before a controller that went away is looked for again.
const RETRY: Duration = Duration::from_secs(1);

/// A controller's HTTP API.
pub(crate) struct Client {
    agent: ureq::Agent,
    /// With the scheme.
    address: String,
    /// The header that shows the token.
    token: Option<String>,
}

impl Client {
    /// A client of the controller at `address`, which shows a token and believes the authorities of
    /// `ca`, PEM, instead of the world's.
    ///
    /// # Errors
    /// When there is no certificate in `ca`, or the token would be shown to everybody on the way.
    pub(crate) fn new(
        address: &str,
        token: Option<&str>,
        ca: Option<&str>,
    ) -> anyhow::Result<Self> {
        let address = match address.contains("://") {
            true => address.trim_end_matches('/').to_owned(),
            false => format!("http://{address}"),
        };
        if let (Some(_), Some(rest)) = (token, address.strip_prefix("http://"))
            && !calumma_trust::is_loopback(rest.rsplit_once(':').map_or(rest, |(host, _)| host))
        {
            bail!("{address}: a token is sent over https:// only, or to this host");
        }
        let mut config = ureq::Agent::config_builder()
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE));
        if let Some(pem) = ca {
            let items = parse_pem(pem.as_bytes()).collect::<Result<Vec<_>, _>>().context("--ca")?;
            let roots = items.into_iter().filter_map(|item| match item {
                PemItem::Certificate(certificate) => Some(certificate),
                _ => None,
            });
            let roots: Vec<_> = roots.collect();
            ensure!(!roots.is_empty(), "--ca: no certificate is in it");
            let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots)).build();
            config = config.tls_config(tls);
        }
        let token = token.map(|token| format!("Bearer {token}"));
        Ok(Self { agent: config.build().into(), address, token })
    }

    /// A request, with the token where there is one.
    fn asking<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header("authorization", token),
            None => request,
        }
    }

    /// The answer to a request.
    ///
    /// # Errors
    /// When no controller answers there, or something else does.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let url = format!("{}{path}", self.address);
        let mut answer = self.asking(self.agent.get(&url)).call().map_err(|problem| {
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
        #[derive(serde::Deserialize)]
        struct Problem {
            error: String,
        }
        let url = format!("{}{path}", self.address);
        let asked = self.asking(self.agent.post(&url)).config().http_status_as_error(false).build();
        let asked = asked.header("content-type", "application/json").send_empty();
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

/// What to do about a problem; `else_` where it is none of the token's.
fn remedy<'a>(problem: &ureq::Error, else_: &'a str) -> &'a str {
    match problem {
        ureq::Error::StatusCode(401 | 403) => "give a token: --token-file, or CALUMMA_TOKEN",
        _ => else_,
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
        let (address, last, view) = (&self.client.address, self.last, self.view);
        let url = format!("{address}/api/v1/events?last={last}&view={view}");
        loop {
            let mut request = self.client.asking(self.client.agent.get(&url));
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
                    return Err(
                        anyhow::Error::from(problem).context(format!("{address}: {remedy}"))
                    );
                }
            }
        }
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
    use super::event;

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
