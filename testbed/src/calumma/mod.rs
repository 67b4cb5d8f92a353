//! The programs of Calumma as processes: the controller, edge switches, and the reports they make.

mod programs;
mod reports;

pub(crate) use programs::{
    CLOCK_GUARD_US, Controller, Device, EPOCH, FLIGHT_GUARD_US, Measured, Place, Switch, Wire,
};
pub(crate) use reports::Reports;
