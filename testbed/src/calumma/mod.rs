//! The programs of Calumma as processes: the controller, edge switches, and the reports they make.

mod programs;
mod reports;

pub(crate) use programs::{Controller, Device, EPOCH, Place, Switch, Wire};
pub(crate) use reports::Reports;
