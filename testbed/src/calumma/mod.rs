//! The programs of Calumma as processes: the controller, edge switches, and the reports they make.

pub(crate) mod p4;
mod programs;
mod reports;
mod tofino;

pub(crate) use programs::{
    CLOCK_GUARD_US, Controller, Device, EPOCH, FLIGHT_GUARD_US, LOOPBACK, Measured, Place, Switch,
    Wire,
};
pub(crate) use reports::Reports;
pub(crate) use tofino::{Hardware, HardwarePort, Tofino, port_number};
