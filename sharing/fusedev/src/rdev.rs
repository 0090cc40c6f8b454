//! Numbers of special files, as Linux packs them into 32 bits.
//!
//! ```text
//! 31        20 19         8 7        0
//! minor 8..20 | major 0..12 | minor 0..8
//! ```

/// The packed number of a device by its major and minor, of 12 and 20 bits.
pub(crate) fn encode_dev((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// Major and minor of a packed number.
pub fn decode_dev(device: u32) -> (u32, u32) {
    (device >> 8 & 0xfff, device & 0xff | device >> 12 & 0xf_ff00)
}

#[cfg(test)]
mod tests {
    use super::{decode_dev, encode_dev};

    #[test]
    fn numbers_are_packed_as_linux_does() {
        for (pair, number) in
            [((8, 1), 0x801), ((0xfff, 0xf_ffff), u32::MAX), ((259, 0x12345), 0x1231_0345)]
        {
            assert_eq!((encode_dev(pair), decode_dev(number)), (number, pair));
        }
    }
}
