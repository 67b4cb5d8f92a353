//! Asking such a port from another program: over TLS where its certificate is of an authority that
//! is known, and with a token where one is asked for.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use calumma_trust::is_loopback;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// How long a port may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client of one port.
#[derive(Debug)]
pub struct Client {
    agent: ureq::Agent,
    /// With the scheme.
    address: String,
    /// The header that shows the token.
    token: Option<String>,
}

impl Client {
    /// A client of the port at `address`, HOST:PORT with or without a scheme, which shows a token
    /// and trusts the authorities of `ca`, PEM, instead of the public ones.
    ///
    /// # Errors
    /// When there is no certificate in `ca`, or the token would be sent in the clear.
    pub fn new(address: &str, token: Option<&str>, ca: Option<&str>) -> Result<Self> {
        let address = match address.contains("://") {
            true => address.trim_end_matches('/').to_owned(),
            false => format!("http://{address}"),
        };
        if let (Some(_), Some(rest)) = (token, address.strip_prefix("http://"))
            && !is_loopback(rest.rsplit_once(':').map_or(rest, |(host, _)| host))
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

    /// The same with what files hold: of a token the file's only word, or the environment's
    /// `CALUMMA_TOKEN` where no file is named. It is no argument: everybody on the host sees those.
    ///
    /// # Errors
    /// As [`new`](Self::new), and where a file can't be read.
    pub fn of_files(address: &str, token: Option<&Path>, ca: Option<&Path>) -> Result<Self> {
        let read =
            |path: &Path| std::fs::read_to_string(path).with_context(|| path.display().to_string());
        let token = match token {
            Some(path) => Some(read(path)?),
            None => std::env::var("CALUMMA_TOKEN").ok(),
        };
        Self::new(address, token.as_deref().map(str::trim), ca.map(read).transpose()?.as_deref())
    }

    /// Where the port is, with the scheme.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// A request that reads `path`, with the token where there is one.
    pub fn get(&self, path: &str) -> ureq::RequestBuilder<ureq::typestate::WithoutBody> {
        self.showing(self.agent.get(format!("{}{path}", self.address)))
    }

    /// One that changes something.
    pub fn post(&self, path: &str) -> ureq::RequestBuilder<ureq::typestate::WithBody> {
        self.showing(self.agent.post(format!("{}{path}", self.address)))
    }

    fn showing<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header("authorization", token),
            None => request,
        }
    }
}

/// What to do about a failed request; `else_` where the token is not the reason.
pub fn remedy<'a>(problem: &ureq::Error, else_: &'a str) -> &'a str {
    match problem {
        ureq::Error::StatusCode(401 | 403) => "give a token: --token-file, or CALUMMA_TOKEN",
        _ => else_,
    }
}
