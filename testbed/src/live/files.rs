//! Files of what systems other than ChameleMon reported in a live fabric: `<system>.jsonl` has the
//! reports as the controller wrote them, and `<system>.wires.jsonl` what the kernel logged in the
//! same epochs, line by line.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use calumma_analysis::{EpochHead, Flow};
use calumma_sketch::WideKey;
use serde::Serialize;

use crate::simulate::EpochTruth;
use crate::topology::{Place, Topology};

/// What the kernel logged in the epochs of a report.
#[derive(Serialize)]
struct WiresLine<'a> {
    #[serde(flatten)]
    head: EpochHead,
    flows: Vec<FlowLine<'a>>,
    /// What the report says that is not so.
    contradiction: Option<&'a str>,
}

/// A flow.
#[derive(Serialize)]
struct FlowLine<'a> {
    #[serde(flatten)]
    flow: Flow,
    came: Vec<CameLine<'a>>,
    /// Where routers lost packets of it.
    lost: Vec<LostLine>,
}

/// What came to a switch.
#[derive(Serialize)]
struct CameLine<'a> {
    node: &'a str,
    packets: u64,
    bytes: u64,
    /// Those of the packets that a host behind the switch had sent.
    entered: u64,
}

/// Packets lost in one place.
#[derive(Serialize)]
struct LostLine {
    place: Place,
    lost: u64,
}

/// The files, by name.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    open: BTreeMap<String, File>,
}

impl Files {
    /// Files in a folder, which is made.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        Ok(Self { folder: folder.to_owned(), open: BTreeMap::new() })
    }

    /// Writes a report of a system, the line `report`, beside what the kernel logged.
    pub(super) fn write(
        &mut self,
        (system, head): (&str, EpochHead),
        report: &str,
        (truth, topology): (&EpochTruth, &Topology),
        contradiction: Option<&str>,
    ) -> Result<()> {
        self.append(&format!("{system}.jsonl"), report.trim_end())?;
        let mut flows: BTreeMap<WideKey, FlowLine<'_>> = BTreeMap::new();
        let line =
            |key: &WideKey| FlowLine { flow: key.into(), came: Vec::new(), lost: Vec::new() };
        for (key, switches) in truth.came.iter().flatten() {
            let of_flow = flows.entry(*key).or_insert_with(|| line(key));
            of_flow.came.extend(switches.iter().map(|(&switch, came)| CameLine {
                node: &topology.names()[switch],
                packets: came.packets,
                bytes: came.bytes,
                entered: came.entered,
            }));
        }
        for flow in &truth.flows {
            let of_flow = flows.entry(flow.key).or_insert_with(|| line(&flow.key));
            for &(segment, lost) in &flow.losses {
                let (place, lost) = (topology.place(segment), u64::from(lost));
                match of_flow.lost.iter_mut().find(|line| line.place == place) {
                    Some(line) => line.lost += lost,
                    None => of_flow.lost.push(LostLine { place, lost }),
                }
            }
        }
        let flows = flows.into_values().collect();
        let line = serde_json::to_string(&WiresLine { head, flows, contradiction })?;
        self.append(&format!("{system}.wires.jsonl"), &line)
    }

    fn append(&mut self, name: &str, line: &str) -> Result<()> {
        let path = self.folder.join(name);
        let naming = || format!("writing {}", path.display());
        let file = match self.open.remove(name) {
            Some(file) => file,
            None => File::create(&path).with_context(naming)?,
        };
        let file = self.open.entry(name.to_owned()).or_insert(file);
        writeln!(file, "{line}").with_context(naming)
    }
}
