//! The switch's ports: brought up with the speed that the configuration gives them, and what they
//! count.

use calumma_bfrt::{ClientError, Value};
use tracing::info;

use crate::config::{AutoNegotiation, Fec, PortConfig, Speed};
use crate::driver::Driver;

/// The driver's tables of ports and of what they count, and their key.
const TABLE: &str = "$PORT";
const COUNTS: &str = "$PORT_STAT";
const KEY: &str = "$DEV_PORT";

/// Brings up the ports that have a speed and are not up with it. The others are somebody else's.
///
/// # Errors
/// What the driver refuses, for example a speed that a port can't have.
pub(crate) fn bring_up(driver: &Driver, ports: &[PortConfig]) -> Result<(), ClientError> {
    for port in ports {
        let Some(speed) = port.speed else { continue };
        let values = values(port, speed);
        let there = driver.fixed(TABLE, (KEY, port.number.into()))?;
        let table = driver.info().table(TABLE)?;
        let same = there.is_some_and(|there| {
            values.iter().all(|(name, value)| table.value(&there, name).as_ref() == Some(value))
        });
        if !same {
            // Set anew: a port that is up does not change its speed.
            driver.put(TABLE, (KEY, port.number.into()), None, &values)?;
            info!(port = port.number, ?speed, fec = ?port.fec, "port brought up");
        }
    }
    Ok(())
}

/// What a port counts, by the names that DPDK has for the same and by those of the driver.
const COUNTED: [(&str, &str); 7] = [
    ("rx_packets", "$FramesReceivedOK"),
    ("rx_bytes", "$OctetsReceivedinGoodFrames"),
    ("rx_errors", "$FrameswithanyError"),
    ("rx_missed", "$FramesDroppedBufferFull"),
    ("tx_packets", "$FramesTransmittedOK"),
    ("tx_bytes", "$OctetsTransmittedwithouterror"),
    ("tx_errors", "$FramesTransmittedwithError"),
];

/// What a port has counted; nothing where the driver has no such port.
///
/// # Errors
/// When the driver counts nothing at ports.
pub(crate) fn counts(
    driver: &Driver,
    number: u16,
) -> Result<impl Iterator<Item = (&'static str, u64)>, ClientError> {
    let there = driver.fixed(COUNTS, (KEY, number.into()))?;
    let table = driver.info().table(COUNTS)?;
    Ok(COUNTED.into_iter().filter_map(move |(name, field)| {
        match table.value(there.as_ref()?, field)? {
            Value::Number(count) => Some((name, count)),
            Value::Bool(_) | Value::Word(_) => None,
        }
    }))
}

/// What a port is to be.
fn values(port: &PortConfig, speed: Speed) -> [(&'static str, Value); 4] {
    let speed = match speed {
        Speed::G1 => "BF_SPEED_1G",
        Speed::G10 => "BF_SPEED_10G",
        Speed::G25 => "BF_SPEED_25G",
        Speed::G40 => "BF_SPEED_40G",
        Speed::G50 => "BF_SPEED_50G",
        Speed::G100 => "BF_SPEED_100G",
        Speed::G200 => "BF_SPEED_200G",
        Speed::G400 => "BF_SPEED_400G",
    };
    let fec = match port.fec {
        // Of two words for the same, those that a driver answers with: a port that is not what it
        // should be goes down for a moment.
        Fec::None => "BF_FEC_TYP_NONE",
        Fec::Fc => "BF_FEC_TYP_FC",
        Fec::Rs => "BF_FEC_TYP_REED_SOLOMON",
    };
    let agrees = match port.autonegotiation {
        AutoNegotiation::Default => "PM_AN_DEFAULT",
        AutoNegotiation::On => "PM_AN_FORCE_ENABLE",
        AutoNegotiation::Off => "PM_AN_FORCE_DISABLE",
    };
    let word = |word: &str| Value::Word(word.to_owned());
    [
        ("$SPEED", word(speed)),
        ("$FEC", word(fec)),
        ("$AUTO_NEGOTIATION", word(agrees)),
        ("$PORT_ENABLE", Value::Bool(true)),
    ]
}
