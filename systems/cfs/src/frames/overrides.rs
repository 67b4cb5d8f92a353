//! What a plan says otherwise than the setup.
//!
//! ```text
//! entries (4; 0: as the setup says)
//! grade (1; 0: as the setup says, else one more than the rule's number)
//! whether no flow is claimed (1)
//! ```

use calumma_wire::DecodeError;
use calumma_wire::body::{Body, put_u8, put_u32};

use super::graded::Graded;
use super::setup::Setup;

/// What switches measure by in a window, otherwise than by their [`Setup`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Flows that a switch's table holds, at most those of the setup.
    pub entries: Option<u32>,
    /// How flows are graded.
    pub grade: Option<Graded>,
    /// Whether switches claim no flows although the setup lets them.
    pub unclaimed: bool,
}

impl Overrides {
    /// Whether switches with this setup can measure so.
    ///
    /// # Errors
    /// The field that they can't measure by, and why.
    pub fn check(&self, setup: &Setup) -> Result<(), (&'static str, String)> {
        if let Some(entries) = self.entries.filter(|&entries| entries > setup.entries) {
            let (least, most) = (Setup::ENTRIES.start(), setup.entries);
            let why = format!("{entries}: must be {least} to {most}, which there is memory for");
            return Err(("entries", why));
        }
        setup.with(*self).check()
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        put_u32(out, self.entries.unwrap_or(0));
        let number = |grade| Graded::ALL.iter().position(|&rule| rule == grade);
        put_u8(out, self.grade.and_then(number).map_or(0, |number| number as u8 + 1));
        put_u8(out, self.unclaimed.into());
    }

    /// What stands there of a switch that measures by `setup`.
    pub(super) fn read(body: &mut Body<'_>, setup: &Setup) -> Result<Self, DecodeError> {
        let at = body.offset();
        let entries = Some(body.u32("entries")?).filter(|&entries| entries != 0);
        let number = body.u8("grade")?.checked_sub(1);
        let rule = |number| Graded::ALL.get(usize::from(number)).copied();
        let grade = number.and_then(rule);
        if let Some(number) = number.filter(|_| grade.is_none()) {
            return Err(body.wrong(at + 4, "grade", format_args!("there is no rule {number}")));
        }
        let overrides = Self { entries, grade, unclaimed: body.flag("unclaimed")? };
        overrides.check(setup).map_err(|(field, why)| {
            let of_field = if field == "entries" { at } else { at + 4 };
            body.wrong(of_field, field, why)
        })?;
        Ok(overrides)
    }
}
