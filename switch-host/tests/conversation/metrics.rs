//! A switch's metrics, and readers that never finish a request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use calumma_switch_host::metrics;

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
    // Free a moment ago, and so it will be.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let routes = Router::new().route("/metrics", get(async || "calumma_edge_last_epoch 7"));
    std::thread::spawn(metrics::server(address, routes).unwrap());
    assert!(scrape(address).ends_with("calumma_edge_last_epoch 7"));
    let slow: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = TcpStream::connect(address).unwrap();
            // One that had to give way already may be closed.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ");
            stream
        })
        .collect();
    let since = Instant::now();
    assert!(scrape(address).ends_with("calumma_edge_last_epoch 7"));
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    // Without the reader's doing, in time.
    for mut stream in slow {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        if let Err(error) = stream.read_to_end(&mut Vec::new()) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }
}
