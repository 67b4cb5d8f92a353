//! Safe Rust over DPDK: Eal, Port, queues, Mempool, Mbuf, Burst, lcores.
