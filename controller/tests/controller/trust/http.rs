//! Tokens and TLS of the HTTP API, and what is written down of changes.

use std::time::{Duration, Instant};

use calumma_trust::{Role, Tokens};
use serde_json::{Value, json};

use super::*;
use crate::stories::tokens;

const JSON: &str = "Content-Type: application/json\r\n";

/// A request and its answer: status, headers and body.
fn ask(secured: &Secured, request: &str, headers: &str) -> (u16, String) {
    let text =
        format!("{request} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n");
    let mut stream = over_tls(secured);
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

fn over_tls(secured: &Secured) -> StreamOwned<ClientConnection, TcpStream> {
    let port = secured.controller.running.http().unwrap().port();
    let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let config = tls::node_client(&secured.files("e1")).unwrap();
    let name = std::net::IpAddr::from([127, 0, 0, 1]).into();
    StreamOwned::new(ClientConnection::new(config, name).unwrap(), socket)
}

/// A metric of a controller whose HTTP speaks TLS.
pub(super) fn metric_over_tls(secured: &Secured, sample: &str) -> f64 {
    let bearer = format!("Authorization: Bearer {}\r\n", tokens().1);
    let (_, text) = ask(secured, "GET /metrics", &bearer);
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {sample} in:\n{text}")).parse().unwrap()
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n{JSON}")
}

/// On an address that other hosts reach.
#[test]
fn without_a_token_nothing_is_read_and_with_one_for_reading_nothing_changed() {
    let (file, folder) = (Folder::new(), Folder::new());
    std::fs::create_dir_all(&file.0).unwrap();
    let path = file.0.join("tokens");
    let reader = Tokens::add(&path, "grafana", Role::Read).unwrap();
    let operator = Tokens::add(&path, "ada", Role::Operate).unwrap();
    let audit = folder.0.join("audit.jsonl");
    let secured = Secured::start_by(
        &["e1"],
        &format!("http = '0.0.0.0:0'\ntokens = {path:?}\naudit = {audit:?}"),
    );
    let status = |request: &str, headers: &str| ask(&secured, request, headers).0;
    let wrong = bearer(&format!("{reader}0"));
    for path in ["/api/v1/edges", "/metrics", "/healthz", "/api/v1/events", "/none"] {
        let get = format!("GET {path}");
        assert_eq!(status(&get, ""), 401, "{path}");
        assert_eq!(status(&get, &wrong), 401, "{path}");
        assert_eq!(status(&get, "Authorization: Basic YTpi\r\n"), 401, "{path}");
    }
    assert_eq!(status("GET /api/v1/edges", &bearer(&reader)), 200);
    assert_eq!(status("GET /", ""), 200, "the page on which a token is asked for");
    assert_eq!(status("GET /dashboard/main.js", ""), 200);

    let release = "POST /api/v1/attention/release";
    assert_eq!(status(release, JSON), 401);
    assert_eq!(status(release, &wrong), 401);
    assert_eq!(status(release, &bearer(&reader)), 403);
    assert_eq!(std::fs::read_to_string(&audit).unwrap(), "", "nothing has changed");
    assert_eq!(status(release, &bearer(&operator)), 200);
    let body = r#"{"hl_buckets": 700}"#;
    let set = format!("{}Content-Length: {}\r\n", bearer(&operator), body.len());
    assert_eq!(status("POST /api/v1/attention", &format!("{set}\r\n{body}")), 200);
    let lines = std::fs::read_to_string(&audit).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |field: &str| lines.iter().map(|line| line[field].clone()).collect::<Vec<_>>();
    assert_eq!(of("who"), ["ada", "ada"]);
    assert_eq!(of("what"), [release, "POST /api/v1/attention"]);
    assert_eq!(of("body"), [Value::Null, json!({"hl_buckets": 700})]);
    assert_eq!(of("status"), [200, 200]);
    assert!(of("from").iter().all(|from| from.as_str().unwrap().starts_with("127.0.0.1:")));

    Tokens::revoke(&path, "ada").unwrap();
    secured.reload();
    assert_eq!(status(release, &bearer(&operator)), 401, "revoked");
    assert_eq!(status("GET /healthz", &bearer(&reader)), 200);
    let text = std::fs::read_to_string(&audit).unwrap();
    assert!(text.lines().last().unwrap().contains("SIGHUP"), "{text}");
    assert!(!text.contains(&operator) && !text.contains(&reader));
}

/// The key changes in a thread of its own, which knows nothing of connections.
#[test]
fn a_change_is_written_down_though_its_sender_does_not_wait_for_the_answer() {
    let folder = Folder::new();
    let (state, audit) = (folder.0.join("state"), folder.0.join("audit.jsonl"));
    let secured = Secured::start(&["e1"], &format!("state_dir = {state:?}\naudit = {audit:?}"));
    let operator = bearer(tokens().1);
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "no change");
        let mut stream = over_tls(&secured);
        let rotate = "POST /api/v1/hash-key/rotate HTTP/1.1\r\nHost: 127.0.0.1\r\n";
        stream.write_all(format!("{rotate}{operator}\r\n").as_bytes()).unwrap();
        drop(stream);
        std::thread::sleep(Duration::from_millis(20));
        let (_, answer) = ask(&secured, "GET /api/v1/hash-key", &operator);
        let status: Value = serde_json::from_str(answer.lines().last().unwrap()).unwrap();
        if !status["last"].is_null() {
            break;
        }
    }
    let is_noted = || {
        let text = std::fs::read_to_string(&audit).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.any(|line| line["status"] == 200 && line["who"] == "ada")
    };
    while !is_noted() {
        assert!(Instant::now() < end, "{}", std::fs::read_to_string(&audit).unwrap());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An event stream has no end of its own.
#[test]
fn whose_token_is_revoked_reads_no_event_any_more() {
    let folder = Folder::new();
    std::fs::create_dir_all(&folder.0).unwrap();
    let path = folder.0.join("tokens");
    let tokens = ["grafana", "ada"].map(|name| Tokens::add(&path, name, Role::Read).unwrap());
    let secured = Secured::start_by(&["e1"], &format!("http = '0.0.0.0:0'\ntokens = {path:?}"));
    let mut streams = tokens.map(|token| {
        let mut stream = over_tls(&secured);
        let events = "GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n";
        stream.write_all(format!("{events}{}\r\n", bearer(&token)).as_bytes()).unwrap();
        stream.sock.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        stream
    });
    // Whether the stream ends in a while; what comes until then is passed over.
    let ends = |stream: &mut StreamOwned<ClientConnection, TcpStream>, within: Duration| {
        let (end, mut bytes) = (Instant::now() + within, [0; 512]);
        while Instant::now() < end {
            match stream.read(&mut bytes) {
                Ok(0) => return true,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return true,
                _ => {}
            }
        }
        false
    };
    let [revoked, other] = &mut streams;
    assert!(!ends(revoked, Duration::from_millis(500)));
    Tokens::revoke(&path, "grafana").unwrap();
    secured.reload();
    assert!(ends(revoked, PATIENCE), "it goes on");
    assert!(!ends(other, Duration::from_millis(200)), "somebody else's ends as well");
}

/// A browser can't send a header with an event stream, and sends cookies whoever has it ask.
#[test]
fn a_browsers_cookie_is_good_for_reading_only() {
    let secured = Secured::start(&["e1"], "");
    let (_, operator) = tokens();
    let session = "POST /api/v1/session";
    assert_eq!(ask(&secured, session, JSON).0, 401, "no cookie for nobody, on loopback either");
    let (status, answer) = ask(&secured, session, &bearer(operator));
    assert_eq!(status, 204);
    let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    for wanted in ["HttpOnly", "SameSite=Strict", "Secure", "Path=/"] {
        assert!(cookie.contains(wanted), "{cookie}");
    }
    let cookie = format!("Cookie: a=b; {}\r\n{JSON}", cookie.split(';').next().unwrap());
    assert_eq!(ask(&secured, "GET /api/v1/edges", &cookie).0, 200);
    assert_eq!(ask(&secured, "POST /api/v1/attention/release", &cookie).0, 401);
    let forged = format!("Cookie: calumma_token=calumma-{}\r\n", "0".repeat(64));
    assert_eq!(ask(&secured, "GET /api/v1/edges", &forged).0, 401);
}

/// Changes need a token on loopback as well; reading does not.
#[test]
fn on_loopback_everybody_reads_and_only_operators_change() {
    let controller = Controller::start("");
    assert_eq!(controller.get("/healthz")["status"], "ok");
    let release = |headers: &str| {
        let request = "POST /api/v1/attention/release HTTP/1.1\r\nHost: localhost\r\n\
                       Connection: close\r\nContent-Type: application/json\r\n";
        controller.request(&format!("{request}{headers}\r\n")).0
    };
    assert_eq!(release(""), 401);
    assert_eq!(release(&format!("Authorization: bearer {}\r\n", tokens().1)), 200);
}

/// Whoever speaks without TLS, or says nothing at all, keeps no reader out.
#[test]
fn http_by_tls_is_nothing_else() {
    let secured = Secured::start(&["e1"], "");
    let to = secured.controller.running.http().unwrap();
    let idle: Vec<TcpStream> = (0..600).map(|_| TcpStream::connect(to).unwrap()).collect();
    assert_eq!(ask(&secured, "GET /healthz", "").0, 200);
    drop(idle);
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP"), "{answer:?}");
}
