//! The program `calumma-edge`: each test starts it.

mod common;
mod dpdk_config;
mod floods;
mod interfaces;
mod operation;
mod pcap_port;
mod routed;
mod slow_controller;
