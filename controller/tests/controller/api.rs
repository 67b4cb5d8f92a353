//! The HTTP API as its description promises it, and epochs as they come.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Instant;

use calumma_controller::Config;
use serde_json::{Value, json};

use crate::schema;
use crate::stories::{Controller, Edge, PATIENCE, PATIENT, lost};

/// A controller that has reported three epochs of two edges.
fn three_epochs() -> (Controller, Edge, Edge, u64) {
    let controller = Controller::start(PATIENT);
    let mut e1 = Edge::join(&controller, "e1");
    let mut e2 = Edge::join(&controller, "e2");
    let first = e1.recent_epoch() - 2;
    for epoch in first..first + 3 {
        deliver(&controller, [&mut e1, &mut e2], epoch);
    }
    (controller, e1, e2, first)
}

fn deliver(controller: &Controller, [e1, e2]: [&mut Edge; 2], epoch: u64) {
    let world = e1.deliver_traffic(e2, epoch);
    assert_eq!(lost(&controller.report(epoch)), world.lost);
}

#[test]
fn every_answer_is_as_the_api_describes_it() {
    let (controller, _e1, _e2, first) = three_epochs();
    let description = controller.get("/api/v1/openapi.json");
    let flow = "src=10.1.0.2&dst=10.2.0.0&sport=7&dport=5201&proto=6";
    let requests = BTreeMap::from([
        ("/healthz", String::new()),
        ("/api/v1/deployment", String::new()),
        ("/api/v1/epochs", "?last=2".to_owned()),
        ("/api/v1/epochs/{epoch}", format!("{first}")),
        ("/api/v1/carrier", String::new()),
        ("/api/v1/hash-key", String::new()),
        ("/api/v1/edges", String::new()),
        ("/api/v1/nodes", String::new()),
        ("/api/v1/paths", String::new()),
        ("/api/v1/systems", String::new()),
        ("/api/v1/topology", String::new()),
        ("/api/v1/{system}/epochs", "?last=2".to_owned()),
        ("/api/v1/{system}/windows", "?last=2".to_owned()),
        ("/api/v1/{system}/epochs/{epoch}", format!("{first}")),
        ("/api/v1/attention", String::new()),
        ("/api/v1/flows", format!("?{flow}")),
        ("/api/v1/flows/history", format!("?{flow}")),
        ("/api/v1/victims", "?last=3".to_owned()),
    ]);
    for (path, methods) in description["paths"].as_object().unwrap() {
        // Systems that do not run here are asked in their own tests.
        let of_another = ["cfs", "sketchint"];
        let is_of = |system: &&str| path.starts_with(&format!("/api/v1/{system}/"));
        let of_another = of_another.iter().any(is_of);
        if methods.get("get").is_none() || path == "/api/v1/events" || of_another {
            continue;
        }
        let path_of = path.replace("{epoch}", "").replace("{system}", "chamelemon");
        let request = path_of + &requests[path.as_str()];
        let answer = controller.get(&request);
        let content = &methods["get"]["responses"]["200"]["content"]["application/json"];
        let problems = schema::problems(&description, &content["schema"], &answer);
        assert!(problems.is_empty(), "{request}: {problems:?}");
        let of_seven = schema::problems(&description, &content["schema"], &json!(7));
        assert!(!of_seven.is_empty(), "{path}: its schema says nothing");
    }
    assert!(description["paths"]["/api/v1/attention"]["post"]["requestBody"].is_object());
}

#[test]
fn losses_are_added_up_over_epochs_and_followed_flow_by_flow() {
    let (controller, _e1, _e2, first) = three_epochs();
    let victims = controller.get("/api/v1/victims?last=2&limit=5");
    assert_eq!((&victims["first_epoch"], &victims["epochs"]), (&json!(first + 1), &json!(2)));
    assert_eq!((&victims["victims"], &victims["lost"]), (&json!(29), &json!(58)));
    assert_eq!(victims["flows"].as_array().unwrap().len(), 5);
    assert_eq!(
        (&victims["flows"][0]["lost"], &victims["flows"][0]["epochs"]),
        (&json!(2), &json!(2))
    );

    let flow = "src=10.1.0.2&dst=10.2.0.0&sport=7&dport=5201&proto=6";
    let history = controller.get(&format!("/api/v1/flows/history?{flow}&last=2"));
    assert_eq!(history.as_array().unwrap().len(), 2);
    assert_eq!((&history[1]["epoch"], &history[1]["lost"]), (&json!(first + 2), &json!(1)));
    let at = &history[0]["sizes"][0];
    assert_eq!((&at["edge"], &at["size"], &at["exact"]), (&json!("e1"), &json!(10), &json!(true)));
    let other = flow.replace("sport=7", "sport=8");
    let history = controller.get(&format!("/api/v1/flows/history?{other}"));
    assert_eq!((&history[0]["lost"], &history[0]["class"]), (&json!(0), &Value::Null));

    // A flow that IPv4 keys don't hold, so that nobody measures it.
    let other = "src=2001:db8::1&dst=2001:db8::2&sport=7&dport=5201&proto=6";
    let history = controller.get(&format!("/api/v1/flows/history?{other}"));
    assert_eq!((&history[0]["lost"], &history[0]["sizes"]), (&Value::Null, &json!([])));

    let (status, answer) = controller
        .request("GET /api/v1/epochs/1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert_eq!(status, 404);
    assert!(answer["error"].as_str().unwrap().contains("raise `history`"), "{answer}");
}

/// That it is in no list of victims says nothing of it. Which flows are measured may change; what
/// was measured before stays.
#[test]
fn a_flow_outside_the_domain_has_no_losses_to_tell() {
    let domain = "[domain]\nprefixes = ['10.0.0.0/8']";
    let controller = Controller::start(&format!("{PATIENT}\n{domain}"));
    let (mut e1, mut e2) = (Edge::join(&controller, "e1"), Edge::join(&controller, "e2"));
    let epoch = e1.recent_epoch();
    deliver(&controller, [&mut e1, &mut e2], epoch);
    let flow = |src: &str| format!("src={src}&dst=10.2.0.0&sport=8&dport=5201&proto=6");
    let lost = |src: &str| {
        let history = controller.get(&format!("/api/v1/flows/history?{}", flow(src)));
        history[0]["lost"].clone()
    };
    let of_all = [json!(0), Value::Null];
    assert_eq!(["10.1.0.2", "192.0.2.1"].map(lost), of_all);
    assert_eq!(controller.get(&format!("/api/v1/flows?{}", flow("192.0.2.1"))), json!([]));
    let everything = format!("edges = ['e1', 'e2']\nlisten = '127.0.0.1:0'\n{PATIENT}");
    controller.running.reload(&Config::parse(&everything, "test.toml").unwrap());
    assert_eq!(["10.1.0.2", "192.0.2.1"].map(lost), of_all);
}

/// Epochs as Server-Sent Events.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(controller: &Controller, path: &str, headers: &str) -> Self {
        let mut stream = TcpStream::connect(controller.running.http().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        Self(BufReader::new(stream))
    }

    /// The next event's data, `None` where the stream has ended.
    fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        let since = Instant::now();
        loop {
            line.clear();
            // What keeps the stream alive is a line as well.
            assert!(since.elapsed() < PATIENCE, "no event");
            if self.0.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }
}

#[test]
fn epochs_come_as_events_and_a_reader_who_reconnects_misses_none() {
    let (controller, mut e1, mut e2, first) = three_epochs();
    let mut all = Events::open(&controller, "/api/v1/events?last=2", "");
    let mut known = Events::open(&controller, "/api/v1/events?view=report", &last_id(first));
    for epoch in first + 1..first + 3 {
        assert_eq!(all.next().unwrap()["epoch"], epoch);
        assert_eq!(known.next().unwrap()["loss"].as_array().unwrap().len(), 29);
    }
    deliver(&controller, [&mut e1, &mut e2], first + 3);
    let event = all.next().unwrap();
    assert_eq!((&event["epoch"], &event["lost"]), (&json!(first + 3), &json!(29)));
    assert_eq!(event["loss"], Value::Null, "a summary names no flows");
    controller.stop();
    assert_eq!(all.next(), None, "the stream ends with the controller");
}

/// Epochs are longer than before the controller's restart, or its clock was set back.
#[test]
fn a_reader_who_knows_higher_numbers_goes_on_from_the_newest() {
    let (controller, mut e1, mut e2, first) = three_epochs();
    let mut events = Events::open(&controller, "/api/v1/events", &last_id(2 * first));
    assert_eq!(events.next().unwrap()["epoch"], first + 2);
    deliver(&controller, [&mut e1, &mut e2], first + 3);
    assert_eq!(events.next().unwrap()["epoch"], first + 3);
}

fn last_id(epoch: u64) -> String {
    format!("Last-Event-ID: {epoch}\r\n")
}
