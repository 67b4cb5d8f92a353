//! Any request over HTTP, to a controller and to a switch's metrics, over real sockets: it is
//! answered, without a panic, and changes nothing unless it shows the token.
//!
//! The first byte says whether it shows it; then come a line `METHOD TARGET`, lines of headers, an
//! empty line and the body, of which the length is added. Run with
//! `cargo +nightly fuzz run fuzz-testbed-http fuzz/corpus/http fuzz/seeds/http` in `testbed/`.
#![no_main]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use calumma_controller::Config;
use calumma_switch_host::metrics::{MetricsConfig, server};
use calumma_trust::{Role, Tokens};
use libfuzzer_sys::fuzz_target;
use nix::sys::socket::{setsockopt, sockopt};

/// Both ports, and a token that is good for everything.
struct Ports {
    controller: SocketAddr,
    metrics: SocketAddr,
    token: String,
}

static PORTS: OnceLock<Ports> = OnceLock::new();

impl Ports {
    fn open() -> Self {
        let path = std::env::temp_dir().join(format!("calumma-fuzz-{}", std::process::id()));
        let tokens = path.with_extension("tokens");
        let _ = std::fs::remove_file(&tokens);
        let token = Tokens::add(&tokens, "fuzz", Role::Operate).unwrap();

        let text = format!(
            "edges = ['e1', 'e2']\nlisten = '127.0.0.1:0'\nhttp = '127.0.0.1:0'\n\
             tokens = {tokens:?}"
        );
        let config = Config::parse(&text, "fuzz").unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let running =
            runtime.block_on(calumma_controller::server::start(config, Vec::new())).unwrap();
        let controller = running.http().unwrap();
        // Both live for as long as the process does.
        std::mem::forget((running, runtime));

        // The port is chosen here, since the server does not say which it was given.
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config =
            MetricsConfig { listen: Some(free), tokens: Some(tokens), ..MetricsConfig::default() };
        let routes = Router::new().route("/metrics", get(async || "calumma_up 1\n"));
        let (access, serve) = server(&config, false, routes).unwrap().unwrap();
        std::thread::spawn(serve);
        std::mem::forget(access);
        Self { controller, metrics: free, token }
    }
}

/// A request, and whether it does no more than ask.
struct Asked {
    bytes: Vec<u8>,
    only_asks: bool,
    shows_token: bool,
}

impl Asked {
    /// None where it would not be one whole request.
    fn of(input: &[u8], token: &str) -> Option<Self> {
        let (&first, rest) = input.split_first()?;
        let text = std::str::from_utf8(rest).ok()?;
        let lower = text.to_ascii_lowercase();
        let frames = ["content-length", "transfer-encoding", "expect", "upgrade", "\r"];
        if frames.iter().any(|word| lower.contains(word)) {
            return None;
        }
        let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
        let mut lines = head.lines();
        let (method, target) = lines.next()?.split_once(' ')?;
        let mut request = format!("{method} {target} HTTP/1.1\r\n");
        for line in lines {
            request += &format!("{line}\r\n");
        }
        let shows_token = first & 1 == 1;
        if shows_token {
            request += &format!("authorization: Bearer {token}\r\n");
        }
        request += &format!("content-length: {}\r\n\r\n{body}", body.len());
        let only_asks = ["GET", "HEAD", "OPTIONS"].contains(&method);
        Some(Self { bytes: request.into_bytes(), only_asks, shows_token })
    }

    /// What it is answered: the number on the first line.
    fn send(&self, to: SocketAddr) -> u16 {
        let mut stream = TcpStream::connect(to).unwrap();
        // Closed by a reset, it leaves no port behind that waits.
        setsockopt(&stream, sockopt::Linger, &nix::libc::linger { l_onoff: 1, l_linger: 0 })
            .unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(&self.bytes).unwrap();
        let mut answer = [0; 512];
        let mut read = 0;
        while read < 12 {
            match stream.read(&mut answer[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                // The fuzzer's alarm clock.
                Err(problem) if problem.kind() == ErrorKind::Interrupted => {}
                Err(problem) => panic!("no answer: {problem}"),
            }
        }
        let line = std::str::from_utf8(answer.get(..12).unwrap()).unwrap();
        assert!(read >= 12 && line.starts_with("HTTP/1.1 "), "{line:?}");
        line[9..].parse().unwrap()
    }
}

fuzz_target!(
    init: {
        PORTS.get_or_init(Ports::open);
    },
    |input: &[u8]| {
        let ports = PORTS.get_or_init(Ports::open);
        let Some(asked) = Asked::of(input, &ports.token) else { return };
        let status = asked.send(ports.controller);
        assert!(status < 500 || status == 503, "{status}");
        assert!(asked.only_asks || asked.shows_token || status >= 400, "changed without a token");
        let status = asked.send(ports.metrics);
        assert!(status < 500, "{status}");
    }
);
