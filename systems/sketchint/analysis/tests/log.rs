//! What the controller's log says of SketchINT's section when it starts.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use calumma_controller::config::Config;
use calumma_controller::server;
use calumma_sketchint_analysis::SketchInt;

static IN_CONTROLLER: &[&dyn calumma_analysis::System] = &[&SketchInt];

/// All that was logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The lines of a controller about `[sketchint]`, which starts with this in that section.
fn logged(log: &Log, section: &str) -> Vec<String> {
    log.0.lock().unwrap().clear();
    let folder = std::env::temp_dir().join(format!("calumma-log-{}", std::process::id()));
    let text = format!(
        "listen = '127.0.0.1:0'\nhttp = '127.0.0.1:0'\nedges = ['e1', 'e2']\n\
         systems = ['sketchint']\nstate_dir = '{}'\n[sketchint]\n{section}\n",
        folder.display()
    );
    let config = Config::parse_for(IN_CONTROLLER, &text, "a test").unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let started = server::start_with(IN_CONTROLLER, config, Vec::new());
    let controller = runtime.block_on(started).unwrap();
    runtime.block_on(controller.stop()).unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    text.lines().filter(|line| line.contains("sketchint: ")).map(str::to_owned).collect()
}

#[test]
fn the_log_says_that_a_udp_port_moves_flows() {
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt().with_ansi(false).without_time().with_target(false);
    lines.with_writer(move || writer.clone()).init();
    let wanted = " INFO sketchint: udp_port = 41000: packets with a stack go to that UDP port, \
                  TCP's apart; where routers have several paths, flows move to other ones, and \
                  back as soon as this is switched off";
    assert_eq!(logged(&log, "udp_port = 41000"), [wanted]);
    let none: [&str; 0] = [];
    assert_eq!(logged(&log, ""), none);
    assert_eq!(logged(&log, "udp_port = 0"), none);
}
