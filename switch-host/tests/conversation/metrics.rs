//! A switch's metrics: who may read them, and readers that never finish a request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use calumma_ports::client::Client;
use calumma_switch_host::metrics::{self, MetricsConfig, Readers};
use calumma_trust::tls::HttpTls;
use calumma_trust::{Authority, Role, TlsFiles, Tokens};

use crate::secured::Folder;

const PAGE: &str = "calumma_edge_last_epoch 7";

/// Serves a page as a switch's metrics.
fn serve(config: &MetricsConfig) -> Arc<Readers> {
    let routes = Router::new().route("/metrics", get(async || PAGE));
    let (access, serve) = metrics::server(config, false, routes).unwrap().unwrap();
    std::thread::spawn(serve);
    access
}

/// An address that was free a moment ago, and so it will be.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn scrape(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: e1\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_thousand_slow_readers_keep_nobody_from_a_switchs_metrics() {
    let address = free();
    serve(&MetricsConfig { listen: Some(address), ..MetricsConfig::default() });
    assert!(scrape(address).ends_with(PAGE));
    let slow: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            // One that had to give way already may be closed.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ");
            stream
        })
        .collect();
    let since = Instant::now();
    assert!(scrape(address).ends_with(PAGE));
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    // Without the reader's doing, in time.
    for mut stream in slow {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        if let Err(error) = stream.read_to_end(&mut Vec::new()) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }
}

/// The switch listens on all addresses, and is asked by one that other hosts could not use: what it
/// asks for does not depend on that.
#[test]
fn other_hosts_read_metrics_by_tls_and_token_until_it_is_revoked() {
    let folder = Folder::new(&["e1"]);
    let mut authority = Authority::open(&folder.0).unwrap();
    let named = authority.issue_metrics("e1", &["127.0.0.1".to_owned()], 1).unwrap();
    let TlsFiles { ca, certificate, key, .. } = folder.files(&named);
    let tokens = folder.0.join("tokens");
    let token = Tokens::add(&tokens, "prometheus", Role::Read).unwrap();
    let port = free().port();
    let access = serve(&MetricsConfig {
        listen: Some(SocketAddr::from(([0, 0, 0, 0], port))),
        tokens: Some(tokens.clone()),
        tls: Some(HttpTls { certificate, key }),
    });

    let ca = std::fs::read_to_string(ca).unwrap();
    let address = format!("https://127.0.0.1:{port}");
    let read = |token, ca| {
        let client = Client::new(&address, token, ca).unwrap();
        let answer = client.get("/metrics").call();
        answer.map(|mut answer| answer.body_mut().read_to_string().unwrap())
    };
    let refused = |answer| matches!(answer, Err(ureq::Error::StatusCode(401)));
    assert_eq!(read(Some(&token), Some(&ca)).unwrap(), PAGE);
    assert!(refused(read(None, Some(&ca))));
    assert!(refused(read(Some("calumma-0"), Some(&ca))));
    let unknown = read(Some(&token), None).unwrap_err().to_string();
    assert!(unknown.contains("certificate"), "{unknown}");
    let plain = Client::new(&format!("http://127.0.0.1:{port}"), Some(&token), None).unwrap();
    assert!(plain.get("/metrics").call().is_err());

    // What can't be read changes nothing.
    let kept = std::fs::read(&tokens).unwrap();
    std::fs::write(&tokens, "rubbish").unwrap();
    access.reload();
    assert_eq!(read(Some(&token), Some(&ca)).unwrap(), PAGE);
    std::fs::write(&tokens, kept).unwrap();
    Tokens::revoke(&tokens, "prometheus").unwrap();
    access.reload();
    assert!(refused(read(Some(&token), Some(&ca))));
}
