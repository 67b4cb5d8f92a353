//! Bit fields in byte strings, most significant bit first.

/// `width` bits from bit `at` on; the string must hold them.
#[inline]
pub(crate) fn read(bytes: &[u8], at: usize, width: u16) -> u128 {
    let end = at + usize::from(width);
    let mut value: u128 = 0;
    let mut index = at / 8;
    let last = end.div_ceil(8);
    let in_first = (at % 8) as u32;
    if index < last {
        value = u128::from(bytes[index] & (0xff >> in_first));
        index += 1;
    }
    // The last byte is joined without its surplus bits, so that 128 bits never overflow.
    let surplus = (last * 8 - end) as u32;
    while index < last {
        let byte = u128::from(bytes[index]);
        index += 1;
        value = if index == last {
            value << (8 - surplus) | byte >> surplus
        } else {
            value << 8 | byte
        };
    }
    if last == at / 8 + 1 { value >> surplus } else { value }
}

/// Stores the low `width` bits of `value` from bit `at` on; the bits there must be zero.
#[inline]
pub(crate) fn write(bytes: &mut [u8], at: usize, width: u16, value: u128) {
    let mut left = usize::from(width);
    let mut at = at;
    while left > 0 {
        let room = 8 - at % 8;
        let take = room.min(left);
        let chunk = (value >> (left - take)) as u8 & (0xff >> (8 - take)) as u8;
        bytes[at / 8] |= chunk << (room - take);
        at += take;
        left -= take;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::mask;

    #[test]
    fn fields_cross_bytes() {
        let bytes = [0b1010_1100, 0b0101_0011];
        assert_eq!(read(&bytes, 3, 7), 0b011_0001);
        assert_eq!(read(&bytes, 0, 16), 0b1010_1100_0101_0011);
        assert_eq!(read(&bytes, 4, 1), 1);
        assert_eq!(read(&bytes, 4, 0), 0);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(at in 0usize..40, width in 0u16..=128, value: u128) {
            let mut bytes = [0u8; 24];
            write(&mut bytes, at, width, value);
            prop_assert_eq!(read(&bytes, at, width), value & mask(width));
            let ones: u32 = bytes.iter().map(|b| b.count_ones()).sum();
            prop_assert_eq!(ones, (value & mask(width)).count_ones());
        }
    }
}
