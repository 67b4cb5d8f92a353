//! The program as an operator meets it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use calumma_chamelemon::frames::{FrameReader, Message};
use calumma_chamelemon::{Attention, Layout};
use calumma_controller::EpochReport;
use calumma_sketch::HashKey;
use calumma_wire::{Marking, SwitchKind};

use crate::peer::PATIENCE;
use crate::world::World;

/// A directory of one test's own, removed when it ends.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("calumma-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) fn controller(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_calumma-controller"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    controller(arguments).output().unwrap()
}

#[test]
fn check_says_what_a_configuration_means_and_what_is_wrong_with_it() {
    let folder = Folder::new("check");
    let right = folder.file("right.toml", "edges = ['e1', 'e2']");
    let output = run(&["--config", &right, "--check"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("hh/hl/ll 3584/512/0"), "{text}");
    let marks = "  marks        as all edges' files say; where they name none, by \"ip-id\" if all";
    assert!(text.contains(marks), "{text}");
    for (more, wanted) in [
        ("systems = ['chamelemon', 'sketchint']", "but by \"ip-id\": sketchint's INT stacks"),
        ("hash_generators = 'public'", "but by \"ip-id\": switches of releases"),
        ("[domain]\nfabric_mtu = 1500", "without DF of more than 1500 bytes is not measured"),
    ] {
        let other = folder.file("other.toml", &format!("edges = ['e1']\n{more}"));
        let output = run(&["--config", &other, "--check"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(wanted), "{text}");
    }

    let wrong = folder
        .file("wrong.toml", "edges = ['e1']\n[epoch]\nlength_ms = 5\nflight_guard_us = 10000");
    let output = run(&["--config", &wrong, "--check"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success());
    assert!(text.contains("wrong.toml: [epoch]") && text.contains("lengthen the epoch"), "{text}");

    let output = run(&["--config", &right, "--out", "/nonexistent/x.jsonl"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains("--out /nonexistent/x.jsonl"), "{text}");
}

#[test]
fn it_says_where_it_listens_and_at_sigterm_writes_what_is_pending() {
    let folder = Folder::new("program");
    let config = folder.file("c.toml", "edges = ['e1', 'e2']\ngrace_ms = 60000");
    let out = folder.0.join("epochs.jsonl");
    let mut child = controller(&["--config", &config, "--listen", "127.0.0.1:0", "--quiet"])
        .args(["--http", "127.0.0.1:0", "--out"])
        .arg(&out)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    assert!(ready["http"].as_str().unwrap().starts_with("127.0.0.1:"));

    let stream = TcpStream::connect(ready["listen"].as_str().unwrap()).unwrap();
    let send = |message: &Message| {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        (&stream).write_all(&frame).unwrap();
    };
    let program = "a test".to_owned();
    let (edge, kind) = ("e1".to_owned(), SwitchKind::Tofino);
    send(&Message::Hello { edge, kind, program, holding: None, marking: Marking::default() });
    let (hash_key, attention, epoch) = welcome(&stream);
    let world: World = World::new(&["e1"], &Layout::default(), &hash_key, attention, epoch);
    let input = world.inputs().remove(0);
    send(&Message::Ingress(input.ingress.unwrap()));
    send(&Message::Egress(input.egress.unwrap()));
    // The controller closes its side once it has read to the end of this one.
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    (&stream).read_to_end(&mut rest).unwrap();

    let killed = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(killed.success());
    assert!(child.wait().unwrap().success());
    let text = fs::read_to_string(&out).unwrap();
    let reports: Vec<EpochReport> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(reports.len(), 1);
    assert_eq!((reports[0].epoch, reports[0].complete), (epoch, false));
    assert_eq!(reports[0].incomplete_because.len(), 2, "{reports:?}");
    assert_eq!(reports[0].edges[0].cardinality, Some(0.0));
}

/// As where somebody pauses the terminal, or a pager stands at its first page.
#[test]
fn an_output_that_nobody_reads_holds_up_neither_reports_nor_its_end() {
    let folder = Folder::new("unread");
    let config = folder.file("c.toml", "edges = ['e1']\ngrace_ms = 50");
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut child = controller(&["--config", &config, "--listen", "127.0.0.1:0"])
        .args(["--http", "127.0.0.1:0"])
        .stdout(writer.try_clone().unwrap())
        .spawn()
        .unwrap();
    let mut reader = BufReader::new(reader);
    let mut ready = String::new();
    reader.read_line(&mut ready).unwrap();
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    // It is full from here on; this ends when the reader is gone.
    let filling = std::thread::spawn(move || while writer.write_all(&[b'.'; 4096]).is_ok() {});

    let stream = TcpStream::connect(ready["listen"].as_str().unwrap()).unwrap();
    let send = |message: &Message| {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        (&stream).write_all(&frame).unwrap();
    };
    let program = "a test".to_owned();
    let (edge, kind) = ("e1".to_owned(), SwitchKind::Software);
    send(&Message::Hello { edge, kind, program, holding: None, marking: Marking::default() });
    let (.., epoch) = welcome(&stream);
    send(&Message::Sealed { epoch, late_packets: 0, late: Vec::new() });
    let last = || {
        let mut stream = TcpStream::connect(ready["http"].as_str().unwrap()).unwrap();
        let request =
            "GET /api/v1/epochs?last=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        let reports: Vec<EpochReport> = serde_json::from_str(body).unwrap();
        reports.last().map_or(0, |report| report.epoch)
    };
    let since = Instant::now();
    while last() < epoch + 20 {
        assert!(since.elapsed() < PATIENCE, "{} after {epoch}", last());
        std::thread::sleep(Duration::from_millis(20));
    }

    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let since = Instant::now();
    let ended = loop {
        match child.try_wait().unwrap() {
            Some(ended) => break ended,
            None if since.elapsed() > PATIENCE => child.kill().unwrap(),
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    drop(reader);
    filling.join().unwrap();
    assert!(ended.success(), "{ended}");
}

#[test]
fn its_threads_run_on_the_cpus_that_its_file_names() {
    let allowed = |task: &Path| {
        let status = fs::read_to_string(task.join("status")).unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        list.unwrap().trim().to_owned()
    };
    let own = allowed(Path::new("/proc/self"));
    let last = own.rsplit([',', '-']).next().unwrap();
    let folder = Folder::new("cpus");
    let start = |cpu: &str| {
        let config = format!("edges = ['e1']\nlisten = '127.0.0.1:0'\ncpus = [{cpu}]");
        let config = folder.file("c.toml", &config);
        let mut command = controller(&["--config", &config, "--http", "127.0.0.1:0", "--quiet"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut child = start(last);
    let mut ready = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let cpus: Vec<String> = tasks.map(|task| allowed(&task.unwrap().path())).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    // Decoding, reporting, and those of the connections and the HTTP API among them.
    assert!(cpus.len() > 4 && cpus.iter().all(|cpu| cpu == last), "{cpus:?}, not {last}");

    let output = start("1023").wait_with_output().unwrap();
    let problem = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && problem.contains("cpus = [1023]"), "{problem}");
}

#[test]
fn it_tells_systemd_when_it_is_ready_reloads_and_stops_and_logs_json_where_asked() {
    let folder = Folder::new("notify");
    let config = folder.file("c.toml", "edges = ['e1']\nlisten = '127.0.0.1:0'");
    let path = folder.path().join("notify.sock");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let notified = |word: &str| {
        let mut bytes = [0; 4096];
        loop {
            let read = socket.recv(&mut bytes).unwrap_or_else(|_| panic!("{word} in time"));
            if str::from_utf8(&bytes[..read]).unwrap().lines().any(|line| line == word) {
                return;
            }
        }
    };
    let child = controller(&["--config", &config, "--quiet", "--log-format", "json"])
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "200000")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let signal = |name: &str| {
        let id = child.id().to_string();
        assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
    };
    notified("READY=1");
    notified("WATCHDOG=1");
    signal("-HUP");
    notified("RELOADING=1");
    notified("READY=1");
    signal("-TERM");
    notified("STOPPING=1");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(log.lines().count() > 0);
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["level"].is_string() && line["fields"]["message"].is_string(), "{line}");
    }
}

#[test]
fn systemd_finds_no_fault_with_the_unit() {
    if !calumma_testenv::has_program("systemd-analyze", "systemd") {
        return;
    }
    let unit =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/systemd/calumma-controller.service");
    let unit = fs::read_to_string(unit).unwrap();
    // It checks that the program is there, too.
    let unit =
        unit.replace("/usr/bin/calumma-controller", env!("CARGO_BIN_EXE_calumma-controller"));
    let folder = Folder::new("unit");
    let path = folder.file("calumma-controller.service", &unit);
    let output = Command::new("systemd-analyze").args(["verify", &path]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !said.contains("calumma-controller.service:"), "{said}");
}

/// The text of a file of this repository.
fn text(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// What a unit says by a name, all of it.
fn values<'a>(unit: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    lines.filter(move |(of, _)| *of == name).flat_map(|(_, value)| value.split_whitespace())
}

/// What the sample of the configuration names can be used as the unit runs it: `cpus`, and the
/// folders of the state and of the audit file.
#[test]
fn the_unit_lets_the_controller_do_what_its_configuration_may_ask_for() {
    let unit = text("deploy/systemd/calumma-controller.service");
    let calls: Vec<&str> = values(&unit, "SystemCallFilter").collect();
    let refused = calls.iter().position(|&of| of == "@resources").unwrap();
    for call in ["setpriority", "sched_setaffinity"] {
        assert!(calls[refused..].contains(&call), "{call}");
    }
    let sample = text("docs/controller.toml");
    let folders = [("StateDirectory", "state_dir", "lib"), ("LogsDirectory", "audit", "log")];
    for (name, setting, under) in folders {
        let folder = values(&unit, name).next().unwrap_or_default();
        let setting = format!("# {setting} = \"/var/{under}/{folder}");
        assert!(!folder.is_empty() && sample.contains(&setting), "{setting}");
    }
}

/// What opens one device closes all others.
#[test]
fn units_of_edges_leave_dpdk_its_devices() {
    let unit = text("deploy/systemd/calumma-edge.service");
    for name in ["ProtectClock", "PrivateDevices", "DevicePolicy", "DeviceAllow"] {
        assert_eq!(values(&unit, name).next(), None, "{name}");
    }
    let left: Vec<&str> = values(&unit, "CapabilityBoundingSet").collect();
    assert!(!left.contains(&"CAP_SYS_TIME") && !left.contains(&"CAP_WAKE_ALARM"), "{left:?}");
}

/// What the controller welcomes an edge with, and an epoch that has just passed.
fn welcome(mut stream: &TcpStream) -> (HashKey, Attention, u64) {
    let mut reader = FrameReader::new();
    let mut bytes = [0; 4096];
    loop {
        let read = stream.read(&mut bytes).unwrap();
        reader.push(&bytes[..read]);
        if let Some(Message::Welcome { hash_key, attention, effective_epoch, .. }) =
            reader.next(None).unwrap()
        {
            return (hash_key, attention, effective_epoch - 4);
        }
        assert!(read > 0, "a welcome");
    }
}
