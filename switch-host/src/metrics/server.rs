//! Where a switch's metrics can be read, and by whom.
//!
//! On loopback everybody reads. Where other hosts reach the address, there is TLS, and who reads
//! shows a token of either role, unless the switch's file says `insecure = true`.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use calumma_ports::http::bearer;
use calumma_ports::{Access, AccessFiles, Bounds, Guests};
use calumma_trust::is_loopback_address;
use calumma_trust::tls::HttpTls;
use serde::Deserialize;
use tracing::{error, info};

/// Connections to a switch's port: a few who scrape, and an operator.
const BOUNDS: Bounds = Bounds { most: 64, most_of_address: 16 };

/// Where a switch's metrics can be read.
#[derive(Clone, Debug, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// Address to serve them on. Unset: nowhere.
    pub listen: Option<SocketAddr>,
    /// File of the tokens by which other hosts read them, as `calumma-controller token` makes it.
    pub tokens: Option<PathBuf>,
    /// The certificate that they are served by.
    pub tls: Option<HttpTls>,
}

impl MetricsConfig {
    /// Whether what other hosts can read is protected, or the operator has said that it shall not
    /// be.
    ///
    /// # Errors
    /// What is missing, and the remedy.
    pub fn check_exposure(&self, insecure: bool) -> Result<(), String> {
        let Some(listen) = self.listen.filter(|_| !self.is_read_freely(insecure)) else {
            return Ok(());
        };
        if self.tokens.is_none() || self.tls.is_none() {
            return Err(format!(
                "other hosts reach {listen}, so [metrics] needs `tokens` (`calumma-controller token \
                 add NAME`) and `tls` (`calumma-controller pki issue NODE --metrics-at HOST`); or \
                 let it listen on 127.0.0.1, or write `insecure = true`"
            ));
        }
        Ok(())
    }

    /// Whether they are read without a token.
    fn is_read_freely(&self, insecure: bool) -> bool {
        insecure || self.listen.is_none_or(|listen| is_loopback_address(listen.ip()))
    }
}

/// Who may read, by the files that the configuration names: read at the start and with each reload.
#[derive(Debug)]
pub struct Readers {
    config: MetricsConfig,
    access: Access,
}

impl Readers {
    fn read(config: &MetricsConfig, insecure: bool) -> anyhow::Result<Self> {
        let access = Access::new(files(config).read()?, config.is_read_freely(insecure));
        Ok(Self { config: config.clone(), access })
    }

    /// Reads certificate and tokens again. Where they can't be read, the log says so, and what was
    /// read before stays.
    pub fn reload(&self) {
        match files(&self.config).read() {
            Ok(read) => self.access.put(read),
            Err(problem) => error!("{problem:#}; what was read before stays"),
        }
    }

    /// Whether somebody may read who shows `token`, or none.
    fn admits(&self, token: Option<&str>) -> bool {
        let known = |token| self.access.token(token).is_some();
        token.map_or(self.access.is_read_freely(), known)
    }
}

fn files(config: &MetricsConfig) -> AccessFiles<'_> {
    AccessFiles {
        tls: ("metrics.tls", config.tls.as_ref()),
        tokens: ("metrics.tokens", config.tokens.as_deref()),
    }
}

/// Listens where `config` says, and gives what to reload and the work of a thread: to serve
/// `routes` there for as long as the process lives. None of both where it listens nowhere.
///
/// # Errors
/// When the address can't be listened on, or a file can't be used.
pub fn server(
    config: &MetricsConfig,
    insecure: bool,
    routes: Router,
) -> anyhow::Result<Option<(Arc<Readers>, impl FnOnce() + Send + 'static)>> {
    let Some(listen) = config.listen else { return Ok(None) };
    let readers = Arc::new(Readers::read(config, insecure)?);
    let listener = TcpListener::bind(listen)
        .with_context(|| format!("metrics.listen: listening on {listen}; is it in use?"))?;
    listener.set_nonblocking(true).context("metrics.listen")?;
    info!(address = %listener.local_addr()?, "metrics");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tls = readers.access.tls();
    let routes = routes.layer(from_fn_with_state(readers.clone(), check));
    let serve = move || {
        let served = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let guests = Arc::new(Guests::new(BOUNDS));
            calumma_ports::http::serve(listener, tls, routes, guests, std::future::pending()).await;
            std::io::Result::Ok(())
        });
        if let Err(problem) = served {
            error!("metrics are not served any more: {problem}");
        }
    };
    Ok(Some((readers, serve)))
}

/// Passes on what its sender may read.
async fn check(State(readers): State<Arc<Readers>>, request: Request, next: Next) -> Response {
    if readers.admits(bearer(request.headers())) {
        return next.run(request).await;
    }
    let problem = "this needs a token that metrics.tokens names, as `Authorization: Bearer TOKEN`";
    let challenge = [(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
    (StatusCode::UNAUTHORIZED, challenge, problem).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_that_other_hosts_reach_need_tokens_and_tls() {
        let tls = HttpTls { certificate: "a".into(), key: "b".into() };
        for (listen, tokens, tls, insecure, may) in [
            (None, false, None, false, true),
            (Some("127.0.0.1:1"), false, None, false, true),
            (Some("[::1]:1"), false, None, false, true),
            (Some("0.0.0.0:1"), false, None, false, false),
            (Some("10.0.0.1:1"), true, None, false, false),
            (Some("10.0.0.1:1"), false, Some(&tls), false, false),
            (Some("10.0.0.1:1"), true, Some(&tls), false, true),
            (Some("[::]:1"), false, None, true, true),
        ] {
            let config = MetricsConfig {
                listen: listen.map(|listen| listen.parse().unwrap()),
                tokens: tokens.then(|| "t".into()),
                tls: tls.cloned(),
            };
            assert_eq!(config.check_exposure(insecure).is_ok(), may, "{config:?}");
        }
    }
}
