//! A collector of flow records that others wrote.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running `nfcapd`, which receives records for `nfdump` to print.
#[derive(Debug)]
pub struct Nfcapd {
    process: Child,
    folder: PathBuf,
    port: u16,
}

impl Nfcapd {
    /// Starts it on a free port of this host, with its files in `folder`, which must be empty.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(folder: &Path) -> Self {
        // A port that was free a moment ago.
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        fs::create_dir_all(folder.join("flows")).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let process = Command::new("nfcapd")
            .args(["-b", "127.0.0.1", "-p", &port.to_string(), "-B", "4194304", "-w"])
            .arg(folder.join("flows"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let socket = format!("0100007F:{port:04X} ");
        let since = Instant::now();
        while !fs::read_to_string("/proc/net/udp").unwrap().contains(&socket) {
            assert!(since.elapsed() < Duration::from_secs(20), "nfcapd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { process, folder: folder.to_owned(), port }
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops it once it has received what was sent, and gives what `nfdump` reads in its files, as
    /// JSON; times are in UTC.
    ///
    /// It does not count records of options (which RFC 7011 does), and so takes each message with
    /// some, but for one at the beginning, for a gap in the sequence: `gaps` of them.
    ///
    /// # Panics
    /// When more or fewer gaps are in the sequence, or any record could not be read.
    pub fn stop(mut self, gaps: usize) -> Vec<u8> {
        std::thread::sleep(Duration::from_millis(300));
        let stopped = Command::new("kill").arg(self.process.id().to_string()).status().unwrap();
        assert!(stopped.success() && self.process.wait().unwrap().success());
        let log = fs::read_to_string(self.folder.join("log")).unwrap();
        assert!(log.contains(&format!("Sequence Errors: {gaps}, Bad Packets: 0")), "{log}");
        let output = Command::new("nfdump")
            .args(["-o", "json", "-R"])
            .arg(self.folder.join("flows"))
            .env("TZ", "UTC")
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        output.stdout
    }
}
