//! Alerts as an HTTP server receives them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use calumma_analysis::Published;
use calumma_controller::Config;
use calumma_controller::EpochReport;
use calumma_controller::alert::{Alerts, AlertsSection, WebhookUrl};
use calumma_controller::output::Sink;
use calumma_systems::SYSTEMS;
use serde_json::Value;

use crate::any::quiet;
use crate::stories::{Controller, Edge};

const PATIENCE: Duration = Duration::from_secs(30);

/// A server that gives each request the next of `answers`, and the last of them to all after, and
/// passes on what it was sent.
fn server(answers: &'static [&'static str]) -> (String, mpsc::Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut reader = BufReader::new(stream.unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = answers[number.min(answers.len() - 1)];
            let head = "content-length: 0\r\nconnection: close\r\n\r\n";
            reader
                .into_inner()
                .write_all(format!("HTTP/1.1 {answer}\r\n{head}").as_bytes())
                .unwrap();
            if sender.send(serde_json::from_slice(&body).unwrap()).is_err() {
                break;
            }
        }
    });
    (url, received)
}

fn alerts(url: &str) -> Alerts {
    let section = AlertsSection {
        webhooks: vec![WebhookUrl::from(url)],
        raise_after: 2,
        clear_after: 2,
        ..AlertsSection::default()
    };
    section.check().unwrap();
    let config = Config::parse("edges = ['e1']", "c.toml").unwrap();
    Alerts::start(SYSTEMS, &section, &config).unwrap()
}

/// An epoch of which edge e1 delivered nothing, or everything.
fn epoch(epoch: u64, missing: bool) -> Arc<Published> {
    let mut report: EpochReport = quiet();
    (report.epoch, report.start_unix_ns) = (epoch, epoch * 50_000_000);
    if missing {
        report.complete = false;
        report.missing_edges = vec!["e1".to_owned()];
        report.incomplete_because = vec!["e1: nothing came in time".to_owned()];
    }
    Arc::new(Published::new(report, ""))
}

#[test]
fn a_webhook_hears_of_an_edge_that_goes_and_comes_back_though_its_server_stumbles() {
    let (url, received) = server(&["503 Service Unavailable", "200 OK"]);
    let mut alerts = alerts(&url);
    for n in 0..10 {
        alerts.take(&epoch(n, (2..6).contains(&n))).unwrap();
    }
    let events: Vec<Value> =
        (0..3).map(|_| received.recv_timeout(PATIENCE).expect("an event in time")).collect();
    assert_eq!(events[0], events[1], "sent again after the server stumbled");
    let words = |event: &Value| (event["event"].clone(), event["epoch"].as_u64().unwrap());
    assert_eq!(words(&events[1]), ("start".into(), 3));
    assert_eq!(words(&events[2]), ("end".into(), 7));
    assert_eq!(events[1]["alert"], "edge_missing");
    assert_eq!(events[1]["node"], "e1");
    assert_eq!(events[1]["id"], events[2]["id"]);
    assert_eq!(events[1]["text"], "e1: nothing came in time");
    alerts.finish().unwrap();
}

#[test]
fn what_is_refused_is_not_tried_again_and_counts_as_a_failure() {
    let (url, received) = server(&["404 Not Found"]);
    let mut alerts = alerts(&url);
    for n in 0..3 {
        alerts.take(&epoch(n, true)).unwrap();
    }
    received.recv_timeout(PATIENCE).expect("the event in time");
    let problem = alerts.finish().unwrap_err().to_string();
    assert!(problem.contains("1 events could not be delivered"), "{problem}");
    assert!(received.try_recv().is_err());
}

#[test]
fn a_server_that_is_away_does_not_keep_the_controller_from_ending() {
    // A port that was free a moment ago: nobody listens.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut alerts = alerts(&format!("http://127.0.0.1:{port}/hook"));
    for n in 0..3 {
        alerts.take(&epoch(n, true)).unwrap();
    }
    let since = Instant::now();
    assert!(alerts.finish().is_err());
    assert!(since.elapsed() < PATIENCE, "far less than the four minutes of all attempts");
}

#[test]
fn the_alerts_of_a_system_end_when_it_is_switched_off() {
    let (url, received) = server(&["200 OK"]);
    let config = |systems: &str| {
        format!(
            "edges = ['e1', 'e2']\nlisten = '127.0.0.1:0'\nsystems = {systems}\ngrace_ms = 100\n\
             [alerts]\nwebhooks = ['{url}']\nraise_after = 1"
        )
    };
    let controller = Controller::start_by(&config("['chamelemon', 'cfs']"));
    let mut e1 = Edge::join(&controller, "e1");
    let world = e1.world(e1.recent_epoch());
    e1.deliver(&world, 0);
    let next = |what: &str| loop {
        let event = received.recv_timeout(PATIENCE).expect("an event in time");
        if event["alert"] == "edge_missing" && event["node"] == "e2" && event["event"] == what {
            return event;
        }
    };
    let start = next("start");
    controller.running.reload(&Config::parse(&config("['cfs']"), "test.toml").unwrap());
    let end = next("end");
    assert_eq!(end["id"], start["id"]);
    assert_eq!(end["text"], "not watched any more: chamelemon is switched off");
    controller.stop();
}
