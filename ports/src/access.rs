//! What a port is served by and who may ask there: a certificate, tokens, and whether those who
//! only read need one. Read from files at the start and whenever they are to be read again.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use calumma_trust::tls::{HttpTls, http_server};
use calumma_trust::{Token, Tokens};
use tokio::sync::watch;
use tokio_rustls::rustls::ServerConfig;

use crate::http::Tls;

/// The files, with the keys of the configuration that name them.
#[derive(Clone, Copy, Debug)]
pub struct AccessFiles<'a> {
    /// The certificate; none where the port speaks without TLS.
    pub tls: (&'static str, Option<&'a HttpTls>),
    /// The tokens; none where nobody has one.
    pub tokens: (&'static str, Option<&'a Path>),
}

/// What the files hold.
#[derive(Debug)]
pub struct AccessRead {
    tls: Option<Arc<ServerConfig>>,
    tokens: Tokens,
}

impl AccessFiles<'_> {
    /// Reads all of them.
    ///
    /// # Errors
    /// Which one can't be used, and why.
    pub fn read(&self) -> Result<AccessRead> {
        let (key, tls) = self.tls;
        let tls = tls.map(http_server).transpose().context(key)?;
        let (key, tokens) = self.tokens;
        let tokens = tokens.map_or(Ok(Tokens::default()), Tokens::read).context(key)?;
        Ok(AccessRead { tls, tokens })
    }
}

/// See the [module](self).
#[derive(Debug)]
pub struct Access {
    tls: Option<watch::Sender<Arc<ServerConfig>>>,
    tokens: watch::Sender<Tokens>,
    is_read_freely: bool,
}

impl Access {
    /// By what was read. `is_read_freely`: whether requests that change nothing need no token.
    pub fn new(read: AccessRead, is_read_freely: bool) -> Self {
        let AccessRead { tls, tokens } = read;
        let (tls, tokens) = (tls.map(watch::Sender::new), watch::Sender::new(tokens));
        Self { tls, tokens, is_read_freely }
    }

    /// Goes by what was read now. Whether there is TLS stays as it was at the start.
    pub fn put(&self, read: AccessRead) {
        if let (Some(held), Some(tls)) = (&self.tls, read.tls) {
            held.send_replace(tls);
        }
        self.tokens.send_replace(read.tokens);
    }

    /// What the port is served by.
    pub fn tls(&self) -> Tls {
        self.tls.as_ref().map(watch::Sender::subscribe)
    }

    /// Whose token this is.
    pub fn token(&self, token: &str) -> Option<Token> {
        self.tokens.borrow().find(token).cloned()
    }

    /// All that are known, as they change: for those who read on for long.
    pub fn tokens(&self) -> watch::Receiver<Tokens> {
        self.tokens.subscribe()
    }

    /// Whether requests that change nothing need no token.
    pub fn is_read_freely(&self) -> bool {
        self.is_read_freely
    }
}
