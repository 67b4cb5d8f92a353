//! What the controller publishes before an epoch is over, and when it came.

use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result};

use super::{http_address, unix_ns};
use crate::fabric::Namespace;

/// How an event of this type begins.
const NOTICE: &str = "event: notice";
const DATA: &str = "data:";

/// A notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Noticed {
    /// When it came, in nanoseconds since the Unix epoch.
    pub at_ns: u64,
    /// What it says, a JSON object.
    pub json: String,
}

/// Reads the controller's events.
#[derive(Debug)]
pub(super) struct Notices {
    stream: TcpStream,
    reader: Option<JoinHandle<()>>,
    come: Arc<Mutex<Vec<Noticed>>>,
}

impl Notices {
    /// Begins to read the events of the controller that runs in `namespace`.
    pub(super) fn start(namespace: &Namespace, token: &str) -> Result<Self> {
        let connect = || TcpStream::connect(http_address()).context("the controller's events");
        let mut stream = namespace.within(connect)?;
        write!(
            stream,
            "GET /api/v1/events HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\n\r\n",
            http_address()
        )?;
        let come = Arc::<Mutex<Vec<Noticed>>>::default();
        let lines = BufReader::new(stream.try_clone()?);
        let to = come.clone();
        let reader = std::thread::spawn(move || read(lines, &to));
        Ok(Self { stream, reader: Some(reader), come })
    }

    /// Those that have come.
    pub(super) fn come(&self) -> Vec<Noticed> {
        self.come.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Notices {
    fn drop(&mut self) {
        // It may be closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.reader.take().map(JoinHandle::join);
    }
}

/// Keeps the data of each notice until the events end.
fn read(lines: impl BufRead, come: &Mutex<Vec<Noticed>>) {
    let mut is_notice = false;
    for line in lines.lines() {
        let Ok(line) = line else { return };
        match line.strip_prefix(DATA) {
            Some(json) if is_notice => {
                let Ok(at_ns) = unix_ns() else { return };
                let noticed = Noticed { at_ns, json: json.trim_start().to_owned() };
                come.lock().unwrap_or_else(PoisonError::into_inner).push(noticed);
                is_notice = false;
            }
            Some(_) => {}
            None => is_notice = line.starts_with(NOTICE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_are_told_from_epochs() {
        let events = "HTTP/1.1 200 OK\r\n\r\n40\r\nid: 7\ndata: {\"epoch\": 7}\n\n\r\n\
                      30\r\nevent: notice\ndata: {\"loops\": []}\n\n\r\n20\r\ndata: {}\n\n";
        let come = Mutex::default();
        read(events.as_bytes(), &come);
        let come: Vec<String> = come.into_inner().unwrap().into_iter().map(|of| of.json).collect();
        assert_eq!(come, ["{\"loops\": []}"]);
    }
}
