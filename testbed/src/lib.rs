//! Fabrics, workloads and scenarios to see Calumma work on.

pub mod capture;
