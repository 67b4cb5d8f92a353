//! What the model has built in of the architecture: the headers a program includes and the names
//! of the extern objects.
//!
//! The P4 text beside this file (`arch/*.p4`) declares the types a TNA program names; it was
//! written for this model from the published architecture. Extern objects have no P4
//! declaration: their meaning is Rust.

/// The headers that `#include <...>` finds without a file.
pub(crate) const BUILTIN_NAMES: &[&str] = &["core.p4", "tna.p4"];

/// The text of a built-in header.
pub(crate) fn builtin(name: &str) -> Option<&'static str> {
    match name {
        "core.p4" => Some(CORE),
        "tna.p4" => Some(include_str!("../arch/tna.p4")),
        _ => None,
    }
}

const CORE: &str = include_str!("../arch/core.p4");

/// Extern objects that the model runs.
pub(crate) const EXTERNS: &[&str] = &[
    "CRCPolynomial",
    "Checksum",
    "Counter",
    "Digest",
    "DirectCounter",
    "Hash",
    "Mirror",
    "ParserCounter",
    "ParserPriority",
    "Random",
    "Register",
    "RegisterAction",
    "Resubmit",
];

/// Extern objects of the architecture that the model refuses.
pub(crate) const UNSUPPORTED_EXTERNS: &[&str] = &[
    "ActionProfile",
    "ActionSelector",
    "Alpm",
    "Atcam",
    "DirectLpf",
    "DirectMeter",
    "DirectRegister",
    "DirectRegisterAction",
    "DirectWred",
    "Lpf",
    "MathUnit",
    "Meter",
    "RegisterParam",
    "SelectorAction",
    "Wred",
];
