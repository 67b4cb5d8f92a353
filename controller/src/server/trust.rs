//! Certificates and tokens as they are at present: read at the start and with each reload.

use std::path::Path;

use anyhow::Context;
use calumma_ports::{Access, AccessFiles};
use calumma_trust::tls::NodeServer;
use tokio::sync::watch;
use tracing::{error, info};

use crate::config::Config;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Trust {
    nodes: Option<watch::Sender<NodeServer>>,
    http: Access,
}

fn nodes(config: &Config) -> anyhow::Result<Option<NodeServer>> {
    config.tls.as_ref().map(NodeServer::read).transpose().context("[tls]")
}

fn http(config: &Config) -> AccessFiles<'_> {
    AccessFiles {
        tls: ("[http_tls]", config.http_tls.as_ref()),
        tokens: ("tokens", config.tokens.as_deref()),
    }
}

impl Trust {
    /// Reads what the configuration names.
    ///
    /// # Errors
    /// The file that can't be used, and why.
    pub(super) fn read(config: &Config) -> anyhow::Result<Self> {
        let nodes = nodes(config)?.map(watch::Sender::new);
        Ok(Self { nodes, http: Access::new(http(config).read()?, config.is_read_freely()) })
    }

    /// Reads it again; connections that stand are looked at anew.
    pub(super) fn reload(&self, config: &Config) {
        let read = nodes(config).and_then(|nodes| Ok((nodes, http(config).read()?)));
        let (nodes, http) = match read {
            Ok(read) => read,
            Err(problem) => return error!("{problem:#}; all that was read before stays"),
        };
        if let (Some(held), Some(nodes)) = (&self.nodes, nodes) {
            held.send_replace(nodes);
            info!("certificates and what is revoked were read again");
        }
        self.http.put(http);
    }

    /// What nodes are received by, as it changes; none where they come without TLS.
    pub(super) fn nodes(&self) -> Option<watch::Receiver<NodeServer>> {
        self.nodes.as_ref().map(watch::Sender::subscribe)
    }

    /// What HTTP is served by, and who may ask.
    pub(super) fn http(&self) -> &Access {
        &self.http
    }
}

/// Where changes are written to: the file that is named, or one in `state_dir`; none without
/// either.
pub(super) fn audit_path(config: &Config) -> Option<std::path::PathBuf> {
    let kept = |folder: &Path| folder.join("audit.jsonl");
    config.audit.clone().or_else(|| config.state_dir.as_deref().map(kept))
}
