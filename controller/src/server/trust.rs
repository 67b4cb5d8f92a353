//! Certificates and tokens as they are at present: read at the start and with each reload.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::Context;
use calumma_ports::http::Tls;
use calumma_trust::tls::{NodeServer, http_server};
use calumma_trust::{Token, Tokens};
use rustls::ServerConfig;
use tokio::sync::watch;
use tracing::{error, info};

use crate::config::Config;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Trust {
    nodes: Option<watch::Sender<NodeServer>>,
    http: Option<watch::Sender<Arc<ServerConfig>>>,
    tokens: RwLock<Tokens>,
    /// Whether requests that change nothing need no token.
    is_read_freely: bool,
}

/// What is read from files.
struct Read {
    nodes: Option<NodeServer>,
    http: Option<Arc<ServerConfig>>,
    tokens: Tokens,
}

impl Read {
    fn of(config: &Config) -> anyhow::Result<Self> {
        let nodes = config.tls.as_ref().map(NodeServer::read).transpose().context("[tls]")?;
        let http = config.http_tls.as_ref().map(http_server);
        let http = http.transpose().context("[http_tls]")?;
        let tokens = config.tokens.as_deref().map_or(Ok(Tokens::default()), Tokens::read);
        Ok(Self { nodes, http, tokens: tokens.context("tokens")? })
    }
}

impl Trust {
    /// Reads what the configuration names.
    ///
    /// # Errors
    /// The file that can't be used, and why.
    pub(super) fn read(config: &Config) -> anyhow::Result<Self> {
        let Read { nodes, http, tokens } = Read::of(config)?;
        Ok(Self {
            nodes: nodes.map(watch::Sender::new),
            http: http.map(watch::Sender::new),
            tokens: RwLock::new(tokens),
            is_read_freely: config.is_read_freely(),
        })
    }

    /// Reads it again; connections that stand are looked at anew.
    pub(super) fn reload(&self, config: &Config) {
        let Read { nodes, http, tokens } = match Read::of(config) {
            Ok(read) => read,
            Err(problem) => return error!("{problem:#}; all that was read before stays"),
        };
        if let (Some(held), Some(nodes)) = (&self.nodes, nodes) {
            held.send_replace(nodes);
            info!("certificates and what is revoked were read again");
        }
        if let (Some(held), Some(http)) = (&self.http, http) {
            held.send_replace(http);
        }
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = tokens;
    }

    /// What nodes are received by, as it changes; none where they come without TLS.
    pub(super) fn nodes(&self) -> Option<watch::Receiver<NodeServer>> {
        self.nodes.as_ref().map(watch::Sender::subscribe)
    }

    /// What HTTP is served by.
    pub(super) fn http(&self) -> Tls {
        self.http.as_ref().map(watch::Sender::subscribe)
    }

    /// Whose token this is.
    pub(super) fn token(&self, token: &str) -> Option<Token> {
        self.tokens.read().unwrap_or_else(PoisonError::into_inner).find(token).cloned()
    }

    /// Whether requests that change nothing need no token.
    pub(super) fn is_read_freely(&self) -> bool {
        self.is_read_freely
    }
}

/// Where changes are written to: the file that is named, or one in `state_dir`; none without
/// either.
pub(super) fn audit_path(config: &Config) -> Option<std::path::PathBuf> {
    let kept = |folder: &Path| folder.join("audit.jsonl");
    config.audit.clone().or_else(|| config.state_dir.as_deref().map(kept))
}
