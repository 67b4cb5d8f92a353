//! What the configuration decides once: the entries for ports, for collection packets and for the
//! mirror session they use.

use calumma_bfrt::client::update;
use calumma_bfrt::proto::UpdateType;
use calumma_bfrt::{ClientError, Match as Field, Value};

use crate::collection::FRONT;
use crate::config::{CollectionConfig, Config, Method, Role};
use crate::driver::Driver;
use crate::entries::{Match, TableEntry};

/// Tables that hold what the configuration says and nothing else.
const TABLES: [&str; 4] = [
    "Ingress.host_ports",
    "Egress.host_ports",
    "Ingress.forwarding.port_pair",
    "Ingress.collection.collectors",
];

/// Makes the switch forward as configured. Entries that are there already stay: traffic passes while
/// the daemon starts anew.
///
/// # Errors
/// What the driver refuses, for example because a table is full.
pub fn configure(driver: &Driver, config: &Config) -> Result<(), ClientError> {
    let wanted = driver.numbered(&entries(config))?;
    let mut present = Vec::new();
    for table in TABLES {
        present.extend(driver.entries(table)?);
    }
    driver.change(&present, &wanted)?;
    match config.collection.method {
        Method::Packets => mirror(driver, &config.collection),
        Method::Registers => Ok(()),
    }
}

fn entries(config: &Config) -> Vec<TableEntry> {
    let entry = |table: &str, port: (&'static str, u16), action, args| TableEntry {
        table: table.to_owned(),
        keys: vec![(port.0, Match::Exact(port.1.into()))],
        action,
        args,
    };
    let [host_in, host_out, pair, collectors] = TABLES;
    let mut out = Vec::new();
    for port in &config.ports {
        let send = vec![("port", port.peer.into())];
        out.push(entry(pair, ("ingress_port", port.number), "send", send));
        if port.role == Role::Host {
            let dscp = vec![("dscp", u32::from(config.carrier.dscp >> 3))];
            out.push(entry(host_in, ("ingress_port", port.number), "host", Vec::new()));
            out.push(entry(host_out, ("egress_port", port.number), "host", dscp));
        }
    }
    let collection = &config.collection;
    if collection.method == Method::Packets {
        for port in [collection.cpu_port, collection.recirculation_port] {
            let args = vec![
                ("report_port", collection.cpu_port.into()),
                ("recirculation_port", collection.recirculation_port.into()),
                ("session", collection.mirror_session.into()),
            ];
            out.push(entry(collectors, ("ingress_port", port), "accept", args));
        }
    }
    out
}

/// The session that copies the front of a full collection packet, so that it goes on.
fn mirror(driver: &Driver, collection: &CollectionConfig) -> Result<(), ClientError> {
    let table = driver.info().table("$mirror.cfg")?;
    let key = table.key(&[("$sid", Field::Exact(collection.mirror_session.into()))])?;
    let data = table.data(
        Some("$normal"),
        &[
            ("$session_enable", Value::Bool(true)),
            ("$direction", Value::Word("INGRESS".to_owned())),
            ("$ucast_egress_port", Value::Number(collection.recirculation_port.into())),
            ("$ucast_egress_port_valid", Value::Bool(true)),
            ("$max_pkt_len", Value::Number(FRONT as u64)),
        ],
    )?;
    let delete = update(UpdateType::Delete, table.entry(Some(key.clone()), None));
    // None was there, where the switch has just started.
    let _ = driver.write(vec![delete]);
    driver.write(vec![update(UpdateType::Insert, table.entry(Some(key), Some(data)))])
}
