//! Fabrics, workloads and scenarios to see Calumma work on.

pub mod baseline;
pub mod capture;
pub mod fabric;
pub mod inspect;
mod table;
pub mod traffic;
