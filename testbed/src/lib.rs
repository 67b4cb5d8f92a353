//! Fabrics, workloads and scenarios to see Calumma work on.

pub mod baseline;
pub mod capture;
pub mod demo;
pub mod fabric;
pub mod inspect;
pub mod replay;
mod table;
pub mod traffic;
