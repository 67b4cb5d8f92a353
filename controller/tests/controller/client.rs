//! `calumma`, the client on a terminal.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use calumma_controller::EpochReport;

use crate::stories::{Controller, Edge, PATIENT, traffic};

fn calumma(controller: &Controller, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_calumma"));
    command.args(["--controller", &controller.running.http().unwrap().to_string()]);
    command.args(arguments);
    command
}

fn said(controller: &Controller, arguments: &[&str]) -> String {
    let output = calumma(controller, arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn deliver(controller: &Controller, edges: &mut [Edge; 2], epoch: u64) {
    let mut world = edges[0].world(epoch);
    traffic(&mut world);
    edges[0].deliver(&world, 0);
    edges[1].deliver(&world, 1);
    assert!(controller.report(epoch).complete);
}

#[test]
fn epochs_and_flows_are_shown_as_they_were_and_as_they_come() {
    let controller = Controller::start(PATIENT);
    let mut edges = ["e1", "e2"].map(|name| Edge::join(&controller, name));
    let first = edges[0].recent_epoch() - 2;
    (first..first + 2).for_each(|epoch| deliver(&controller, &mut edges, epoch));

    let text = said(&controller, &["epochs", "-n", "1"]);
    let lines: Vec<Vec<&str>> =
        text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][0], "epoch");
    assert_eq!(lines[1][..2], [(first + 1).to_string().as_str(), "complete"]);
    assert_eq!(lines[1][5..7], ["29", "29"], "victims and lost packets: {text}");
    let json = said(&controller, &["epochs", "--json"]);
    let reports: Vec<EpochReport> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(reports.iter().map(|report| report.epoch).collect::<Vec<_>>(), [first, first + 1]);

    let flow = ["flow", "10.1.0.2:7", ">", "10.2.0.0:5201", "tcp"];
    let text = said(&controller, &flow);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (4, "10.1.0.2:7 > 10.2.0.0:5201 tcp"));
    assert_eq!(lines[3].split_whitespace().collect::<Vec<_>>()[1..], ["1", "HL", "10", "at", "e1"]);

    let mut following =
        calumma(&controller, &["epochs", "--follow"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap().split_whitespace().next().unwrap().to_owned();
    assert_eq!([next(), next(), next()][1..], [first.to_string(), (first + 1).to_string()]);
    deliver(&controller, &mut edges, first + 2);
    assert_eq!(next(), (first + 2).to_string());
    following.kill().unwrap();
    following.wait().unwrap();
}

#[test]
fn what_is_wrong_is_said_with_the_remedy() {
    let refused = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_calumma")).args(arguments).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let no_flow = refused(&["flow", "10.1.0.2"]);
    assert!(no_flow.contains("is no flow: write it as"), "{no_flow}");
    let unknown = refused(&["fry"]);
    assert!(unknown.contains("there is no calumma-fry"), "{unknown}");
    let elsewhere = refused(&["--controller", "127.0.0.1:1", "epochs"]);
    assert!(elsewhere.contains("is a controller running there"), "{elsewhere}");
}
