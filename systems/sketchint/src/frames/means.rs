//! By what means a switch knows what it says in stacks: a part of [`Window`](super::Window) and
//! [`Passed`](super::Passed), which have the bytes.

use calumma_plane::int::means::Means;
use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u8, put_u64};

pub(super) fn put_means(out: &mut Vec<u8>, means: Means) {
    put_u8(out, means.bits());
    put_u64(out, means.arrival_error_ns);
}

pub(super) fn read_means(body: &mut Body<'_>) -> Result<Means, DecodeError> {
    const FIELD: &str = "means";
    let offset = body.offset();
    let (bits, error_ns) = (body.u8(FIELD)?, body.u64("error of arrivals in stacks")?);
    let unknown = || body.wrong(offset, FIELD, format_args!("{bits:#010b} has unknown bits"));
    Means::new(bits, error_ns).ok_or_else(unknown)
}
