//! A headless Chromium, driven by WebDriver.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// What a browser without a network, a screen or a user of its own is started with.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

/// A browser with one page.
pub(crate) struct Browser {
    _driver: Driver,
    agent: ureq::Agent,
    session: String,
}

/// The program that drives a browser; it ends with this.
struct Driver {
    child: Child,
    // Kept open: the driver would die of writing to a closed pipe.
    output: BufReader<ChildStdout>,
}

impl Driver {
    fn start() -> Self {
        let mut child = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("chromedriver starts");
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// The port that it listens on; `None` where it ended at once.
    fn port(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some((_, port)) = line.trim_end().rsplit_once("successfully on port ") {
                return Some(port.trim_end_matches('.').to_owned());
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// Starts a browser; `None`, the test being skipped, where this machine has none.
    pub(crate) fn start() -> Option<Self> {
        if !calumma_testenv::has_program("chromedriver", "chromium-driver") {
            return None;
        }
        // It takes a port that is free for one family of addresses, and ends where another program
        // has it for the other.
        let started = (0..5).find_map(|_| {
            let mut driver = Driver::start();
            let port = driver.port()?;
            Some((driver, port))
        });
        let (driver, port) = started.expect("chromedriver ends at once, again and again");
        let agent: ureq::Agent =
            ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build().into();
        let url = format!("http://127.0.0.1:{port}/session");
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": FLAGS},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let answer = agent.post(&url).send_json(wanted).unwrap().body_mut().read_json::<Value>();
        let id = answer.unwrap()["value"]["sessionId"].as_str().unwrap().to_owned();
        Some(Self { _driver: driver, agent, session: format!("{url}/{id}") })
    }

    fn post(&self, command: &str, body: Value) -> Value {
        let url = format!("{}/{command}", self.session);
        let mut answer = self.agent.post(&url).send_json(body).unwrap();
        answer.body_mut().read_json::<Value>().unwrap()["value"].take()
    }

    /// Gives the page a size in pixels, and the colours that its reader prefers.
    pub(crate) fn look(&self, width: u32, height: u32, colors: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1,
                          "mobile": width < 600});
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": colors}]});
        for (command, parameters) in
            [("setDeviceMetricsOverride", size), ("setEmulatedMedia", media)]
        {
            let command = format!("Emulation.{command}");
            self.post("goog/cdp/execute", json!({"cmd": command, "params": parameters}));
        }
    }

    pub(crate) fn open(&self, url: &str) {
        self.post("url", json!({"url": url}));
    }

    /// The value of a JavaScript expression on the page.
    pub(crate) fn value(&self, expression: &str) -> Value {
        self.post("execute/sync", json!({"script": format!("return {expression}"), "args": []}))
    }

    /// The text of the first element that `selector` finds.
    pub(crate) fn text(&self, selector: &str) -> String {
        let value = self.value(&format!("document.querySelector({selector:?}).textContent"));
        value.as_str().unwrap().to_owned()
    }

    /// The texts of all cells of the table in `selector`, row by row.
    pub(crate) fn table(&self, selector: &str) -> Vec<Vec<String>> {
        let rows = format!("...document.querySelectorAll({:?})", format!("{selector} tbody tr"));
        let cells =
            format!("[{rows}].map((row) => [...row.cells].map((cell) => cell.textContent))");
        serde_json::from_value(self.value(&cells)).unwrap()
    }

    /// Waits until a JavaScript expression is true.
    pub(crate) fn wait(&self, expression: &str) {
        let since = Instant::now();
        while self.value(expression) != json!(true) {
            assert!(
                since.elapsed() < PATIENCE,
                "{expression} never came true; the page says: {}",
                self.text("body")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Presses a key in the element that `selector` finds.
    pub(crate) fn press(&self, selector: &str, key: &str) {
        let event = format!("new KeyboardEvent('keydown', {{key: {key:?}, bubbles: true}})");
        self.value(&format!("document.querySelector({selector:?}).dispatchEvent({event})"));
    }

    /// What the page complained of on the console.
    pub(crate) fn complaints(&self) -> Value {
        self.post("se/log", json!({"type": "browser"}))
    }

    /// Keeps a picture of the page, for people to look at.
    pub(crate) fn picture(&self, path: &Path) {
        let url = format!("{}/screenshot", self.session);
        let mut answer = self.agent.get(&url).call().unwrap();
        let body = answer.body_mut().with_config().limit(1 << 26).read_json::<Value>().unwrap();
        let png = BASE64_STANDARD.decode(body["value"].as_str().unwrap()).unwrap();
        std::fs::write(path, png).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Also where a test failed: the driver ends its browser with the session.
        let _ = self.agent.delete(&self.session).call();
    }
}
