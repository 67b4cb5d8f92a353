//! Fabrics, workloads and scenarios to see Calumma work on.

pub mod accuracy;
mod balance;
pub mod baseline;
mod calumma;
pub mod capture;
pub mod carrier;
pub mod circulate;
pub mod collected;
pub mod coverage;
pub mod demo;
pub mod disks;
pub mod fabric;
pub mod figures;
pub mod generator;
pub mod inspect;
pub mod live;
pub mod nightly;
mod queue;
pub mod replay;
pub mod scenario;
pub mod simulate;
pub mod soak;
pub mod stacks;
pub mod system;
mod table;
pub mod tiny;
pub mod traffic;
pub mod workload;

pub use calumma_topology as topology;
