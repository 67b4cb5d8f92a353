//! Raw bindings to the system's libdpdk, generated when this crate is built.
//!
//! All FFI of the workspace is declared here: DPDK's functions as bindgen finds them, and the few
//! inline ones that `shim.c` gives a symbol. Nothing here is safe; the `dpdk` crate is what others
//! use.

#![allow(unsafe_code)]

mod bindings {
    #![allow(missing_docs, non_camel_case_types, non_snake_case, non_upper_case_globals)]
    #![allow(
        unsafe_op_in_unsafe_fn,
        unreachable_pub,
        clippy::all,
        clippy::undocumented_unsafe_blocks
    )]
    #![allow(unnecessary_transmutes)]
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

pub use bindings::*;
