//! Groups of numbers that are always the same ones in the same order, described once for writing
//! and reading.

use std::fmt::Display;

use crate::body::Body;
use crate::error::DecodeError;

/// A number in a group.
pub trait Number: Display + PartialOrd + Sized {
    /// Appends it.
    fn put(self, out: &mut Vec<u8>);

    /// Reads it.
    ///
    /// # Errors
    /// Where too few bytes are left; `field` is what the error calls it.
    fn read(body: &mut Body<'_>, field: &'static str) -> Result<Self, DecodeError>;

    /// Reads one that has a lower limit.
    ///
    /// # Errors
    /// Where it is less, or too few bytes are left.
    fn read_at_least(
        body: &mut Body<'_>,
        field: &'static str,
        least: Self,
    ) -> Result<Self, DecodeError> {
        let offset = body.offset();
        let number = Self::read(body, field)?;
        if number < least {
            let why = format_args!("{number}; at least {least} is needed");
            return Err(body.wrong(offset, field, why));
        }
        Ok(number)
    }
}

macro_rules! numbers {
    ($($number:ident),+) => {
        $(impl Number for $number {
            fn put(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn read(body: &mut Body<'_>, field: &'static str) -> Result<Self, DecodeError> {
                body.$number(field)
            }
        })+
    };
}
numbers!(u8, u16, u32, u64);

/// A body, or a part of one, that [`fields!`](crate::fields) describes.
pub trait Fields: Sized {
    /// The body that it is, or is a part of, with its article, as errors call it.
    const BODY: &'static str;

    /// How many bytes it takes.
    const BYTES: usize;

    /// Appends its fields.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads its fields.
    ///
    /// # Errors
    /// The first byte that can't be read, and why.
    fn read(body: &mut Body<'_>) -> Result<Self, DecodeError>;
}

/// Defines a struct of unsigned numbers that is a body, or a part of one: the numbers in their
/// order, little-endian. Each has the name that errors call it by, and the least that it may be,
/// if that is not 0. The struct implements [`Fields`], and as a whole body it has `encode` and
/// `decode`.
///
/// ```
/// calumma_wire::fields! {
///     /// How long something is.
///     #[derive(Debug, PartialEq)]
///     pub struct Size of "a size" {
///         /// Its rows.
///         pub rows: u16 as "rows" at least 1,
///         /// Its bytes.
///         pub bytes: u32 as "length in bytes",
///     }
/// }
///
/// assert_eq!(Size { rows: 2, bytes: 3 }.encode(), [2, 0, 3, 0, 0, 0]);
/// assert_eq!(Size::decode(&[2, 0, 3, 0, 0, 0]), Ok(Size { rows: 2, bytes: 3 }));
/// let problem = Size::decode(&[0; 6]).unwrap_err();
/// assert_eq!(problem.to_string(), "byte 0 of a size: rows: 0; at least 1 is needed");
/// ```
#[macro_export]
macro_rules! fields {
    (
        $(#[$about:meta])*
        $vis:vis struct $name:ident of $body:literal {
            $(
                $(#[$about_field:meta])*
                $field_vis:vis $field:ident: $number:ident as $called:literal
                    $(at least $least:literal)?
            ),+ $(,)?
        }
    ) => {
        $(#[$about])*
        $vis struct $name {
            $($(#[$about_field])* $field_vis $field: $number,)+
        }

        impl $crate::Fields for $name {
            const BODY: &'static str = $body;

            const BYTES: usize = 0 $(+ size_of::<$number>())+;

            fn put(&self, out: &mut Vec<u8>) {
                $($crate::Number::put(self.$field, out);)+
            }

            fn read(body: &mut $crate::body::Body<'_>) -> Result<Self, $crate::DecodeError> {
                Ok(Self {
                    $($field: $crate::fields!(@read body, $number, $called $(, $least)?)?,)+
                })
            }
        }

        impl $name {
            /// Its bytes.
            $vis fn encode(&self) -> Vec<u8> {
                let mut out = Vec::with_capacity(<Self as $crate::Fields>::BYTES);
                $crate::Fields::put(self, &mut out);
                out
            }

            /// What these bytes say.
            ///
            /// # Errors
            /// The first byte that can't be read, and why.
            $vis fn decode(bytes: &[u8]) -> Result<Self, $crate::DecodeError> {
                let mut body = $crate::body::Body::new($body, bytes, 0);
                let fields = <Self as $crate::Fields>::read(&mut body)?;
                body.end()?;
                Ok(fields)
            }
        }
    };
    (@read $body:ident, $number:ident, $called:literal) => {
        <$number as $crate::Number>::read($body, $called)
    };
    (@read $body:ident, $number:ident, $called:literal, $least:literal) => {
        <$number as $crate::Number>::read_at_least($body, $called, $least)
    };
}

#[cfg(test)]
mod tests {
    use crate::Fields;
    use crate::body::Body;

    fields! {
        /// One number of each width.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        struct Widths of "some widths" {
            byte: u8 as "the byte",
            two: u16 as "two bytes" at least 2,
            four: u32 as "four bytes",
            eight: u64 as "eight bytes" at least 1,
        }
    }

    const BYTES: [u8; 15] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

    #[test]
    fn fields_stand_in_their_order_little_endian() {
        let widths = Widths::decode(&BYTES).unwrap();
        let Widths { byte, two, four, eight } = widths;
        assert_eq!((byte, two, four, eight), (1, 0x302, 0x7060504, 0xF0E0D0C0B0A0908));
        assert_eq!((widths.encode(), Widths::BYTES), (BYTES.to_vec(), BYTES.len()));
    }

    #[test]
    fn what_is_wrong_is_named_by_byte_and_field() {
        let problem = |bytes: &[u8]| Widths::decode(bytes).unwrap_err().to_string();
        let short = problem(&BYTES[..5]);
        assert!(short.starts_with("byte 3 of some widths: four bytes needs 4 bytes"), "{short}");
        let long = problem(&[&BYTES[..], &[0]].concat());
        assert!(long.starts_with("byte 15 of some widths: 1 bytes are left over"), "{long}");
        let mut bytes = BYTES;
        bytes[1..3].copy_from_slice(&[1, 0]);
        assert_eq!(problem(&bytes), "byte 1 of some widths: two bytes: 1; at least 2 is needed");
        bytes = BYTES;
        bytes[7..].fill(0);
        assert_eq!(problem(&bytes), "byte 7 of some widths: eight bytes: 0; at least 1 is needed");
    }

    #[test]
    fn a_part_is_read_where_it_stands_and_nothing_behind_it() {
        let bytes = [&[9][..], &BYTES, &[7]].concat();
        let mut body = Body::new("a body", &bytes, 1);
        assert_eq!(Widths::read(&mut body), Widths::decode(&BYTES));
        assert_eq!(body.u8("the next"), Ok(7));
        let mut out = vec![9];
        Widths::decode(&BYTES).unwrap().put(&mut out);
        assert_eq!(out, bytes[..16]);
    }
}
