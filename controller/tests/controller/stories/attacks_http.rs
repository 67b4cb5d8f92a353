//! Readers that attack the HTTP port: slow ones, many, greedy ones, and other people's web pages.

use std::io::{BufRead, BufReader};
use std::time::Instant;

use super::attacks::{connect_from, metric, reports_go_on, resident_bytes};
use super::*;

const ATTACKER: [u8; 4] = [127, 0, 0, 2];

/// Half of a request each; in time, all are closed.
#[test]
fn a_thousand_connections_that_finish_no_request_keep_no_reader_out() {
    let controller = Controller::start_with(&["e1", "e9"], IMPATIENT);
    let mut e9 = Edge::join(&controller, "e9");
    let to = controller.running.http().unwrap();
    let slow: Vec<TcpStream> = (0..1000)
        .map(|_| {
            let mut stream = connect_from(&controller, ATTACKER, to);
            // One that had to give way already may be closed.
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ");
            stream
        })
        .collect();
    let since = Instant::now();
    assert_eq!(controller.get("/healthz")["status"], "ok");
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    reports_go_on(&controller, &mut e9, 1, Duration::from_secs(10));
    let displaced = r#"calumma_turned_away_connections_total{how="displaced",port="http"}"#;
    assert!(metric(&controller, displaced) >= 1000.0 - 128.0);
    for mut stream in slow {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut answer = Vec::new();
        // Reset or closed: what counts is that it does not wait for more.
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    }
    assert!(since.elapsed() < PATIENCE);
}

/// Each asks for megabytes, and takes none.
#[test]
fn readers_that_take_no_answers_hold_up_no_report_and_little_memory() {
    let controller =
        Controller::start_with(&["e1", "e2", "e9"], "grace_ms = 4000\ntasks.heavy_hitter = 1");
    let [mut e1, mut e2] = ["e1", "e2"].map(|name| Edge::join(&controller, name));
    let mut e9 = Edge::join(&controller, "e9");
    let first = e1.recent_epoch() - 4;
    for epoch in first..first + 4 {
        let edges = ["e1", "e2", "e9"];
        let mut world: World = World::new(&edges, &e1.layout, &e1.hash_key, e1.attention, epoch);
        (0..7000).for_each(|n| world.send((0, 1), flow(n), 20, |_| false));
        (0..7000).for_each(|n| world.send((1, 0), flow(100_000 + n), 20, |_| false));
        e1.deliver(&world, 0);
        e2.deliver(&world, 1);
        e9.deliver(&world, 2);
        controller.report(epoch);
    }
    let whole = controller.get_text("/api/v1/epochs").len();
    assert!(whole > 2 << 20, "{whole}");

    let (to, before) = (controller.running.http().unwrap(), resident_bytes());
    let greedy: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = connect_from(&controller, ATTACKER, to);
            stream.write_all(b"GET /api/v1/epochs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").unwrap();
            stream
        })
        .collect();
    let since = Instant::now();
    assert_eq!(controller.get("/healthz")["status"], "ok");
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    // Those that get no turn are answered 503.
    let busy = greedy[50..].iter().filter(|stream| {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut status = [0; 12];
        (&**stream).read_exact(&mut status).unwrap();
        &status == b"HTTP/1.1 503"
    });
    assert!(busy.count() > 0);
    let epoch = e1.recent_epoch();
    let edges = ["e1", "e2", "e9"];
    let world: World = World::new(&edges, &e1.layout, &e1.hash_key, e1.attention, epoch);
    let since = Instant::now();
    e1.deliver(&world, 0);
    e2.deliver(&world, 1);
    e9.deliver(&world, 2);
    controller.report(epoch);
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{} MiB for {} MiB of answers", grown >> 20, (100 * whole) >> 20);
    drop(greedy);
}

/// Small requests, one after the other on each connection.
#[test]
fn who_asks_without_a_pause_is_answered_429_and_holds_up_nobody() {
    const CONNECTIONS: usize = 8;
    let controller = Controller::start_with(&["e1", "e9"], IMPATIENT);
    let mut e9 = Edge::join(&controller, "e9");
    let to = controller.running.http().unwrap();
    let frequent: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let stream = connect_from(&controller, ATTACKER, to);
            std::thread::spawn(move || {
                let request = b"GET /api/v1/hash-key HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
                // It is over when the controller is.
                let mut asks = stream.try_clone().unwrap();
                std::thread::spawn(move || while asks.write_all(request).is_ok() {});
                let answers = BufReader::new(stream).lines().map_while(Result::ok);
                answers.filter(|line| line.contains("HTTP/1.1 429")).count()
            })
        })
        .collect();
    reports_go_on(&controller, &mut e9, 1, Duration::from_secs(10));
    let refused = r#"calumma_refused_requests_total{why="frequent"}"#;
    let end = Instant::now() + PATIENCE;
    while metric(&controller, refused) < 1000.0 {
        assert!(Instant::now() < end, "it may ask as often as it likes");
    }
    let since = Instant::now();
    assert_eq!(controller.get("/healthz")["status"], "ok");
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    drop(controller);
    let turned_away: usize = frequent.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(turned_away >= 1000, "{turned_away}");
}

#[test]
fn other_peoples_web_pages_can_neither_read_nor_change_anything() {
    let controller = Controller::start(PATIENT);
    let status = |request: &str, headers: &str| {
        let token = tokens().1;
        let request = format!(
            "{request} HTTP/1.1\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
             {headers}\r\n"
        );
        controller.request(&request).0
    };
    let own = "Host: 127.0.0.1:7601\r\n";
    let own_page = format!("{own}Origin: http://127.0.0.1:7601\r\n");
    let foreign_page = format!("{own}Origin: http://evil.example\r\n");
    let rebound = "Host: evil.example:7601\r\nOrigin: http://evil.example:7601\r\n";
    let (json, form) = ("Content-Type: application/json\r\n", "Content-Type: text/plain\r\n");
    assert_eq!(status("GET /api/v1/edges", rebound), 421);
    assert_eq!(status("GET /api/v1/edges", &foreign_page), 403);
    assert_eq!(status("GET /api/v1/edges", &own_page), 200);
    for path in ["/api/v1/attention/release", "/api/v1/hash-key/rotate"] {
        let post = format!("POST {path}");
        assert_eq!(status(&post, &format!("{rebound}{json}")), 421, "{path}");
        assert_eq!(status(&post, &format!("{foreign_page}{json}")), 403, "{path}");
        assert_eq!(status(&post, &format!("{own}{form}")), 415, "{path}");
        assert_eq!(status(&post, own), 415, "{path}");
        assert_eq!(status(&post, &format!("{own_page}{json}")), 200, "{path}");
    }
    assert_eq!(metric(&controller, r#"calumma_refused_requests_total{why="foreign"}"#), 10.0);
}

/// Behind a name that the configuration knows it answers as behind its address.
#[test]
fn a_name_of_the_controllers_own_is_configured() {
    let controller = Controller::start("http_names = ['controller.example']");
    let status = |host: &str| {
        let request = format!("GET /healthz HTTP/1.1\r\nConnection: close\r\nHost: {host}\r\n\r\n");
        controller.request(&request).0
    };
    assert_eq!(["controller.example:80", "other.example:80"].map(status), [200, 421]);
}
