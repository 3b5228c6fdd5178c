//! The format's checksums: crc32c and crc16, both without the usual inversions.

/// The start of a checksum that does not continue another.
pub const START: u32 = !0;

/// crc32c, continued from `seed` and not inverted before or after, so that checksums chain.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// crc16 (reflected 0xA001), continued from `seed`, as group descriptors have it without metadata checksums.
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |crc, b| {
        (0..8).fold(crc ^ u16::from(*b), |c, _| if c & 1 != 0 { c >> 1 ^ 0xA001 } else { c >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_chain_and_have_their_known_values() {
        let all = b"123456789";
        assert_eq!(!crc32c(START, all), 0xE306_9283);
        assert_eq!(crc32c(crc32c(7, &all[..4]), &all[4..]), crc32c(7, all));
        // The check values of CRC-16/MODBUS (from 0xFFFF) and of CRC-16/ARC (from 0).
        assert_eq!((crc16(0xFFFF, all), crc16(0, all)), (0x4B37, 0xBB3D));
    }
}
