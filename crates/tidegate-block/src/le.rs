//! Little-endian numbers anywhere in a block, for arrays and fields that no structure covers.
//!
//! Bytes past the end read as 0 and are not written.

/// The u16 at byte `at`.
pub fn le16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_le_bytes(*b))
}

/// The u32 at byte `at`.
pub fn le32(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_le_bytes(*b))
}

/// The u64 at byte `at`.
pub fn le64(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_le_bytes(*b))
}

/// Sets the u32 at byte `at`.
pub fn put32(bytes: &mut [u8], at: usize, v: u32) {
    if let Some(b) = bytes.get_mut(at..).and_then(|b| b.first_chunk_mut()) {
        *b = v.to_le_bytes();
    }
}

/// The u32 number `i` of an array of them.
pub fn word(bytes: &[u8], i: usize) -> u32 {
    le32(bytes, 4 * i)
}

/// Sets the u32 number `i` of an array of them.
pub fn set_word(bytes: &mut [u8], i: usize, v: u32) {
    put32(bytes, 4 * i, v);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_with_the_bytes() {
        let mut b = [1, 2, 3, 4, 5, 6, 7, 8, 9];
        assert_eq!((le16(&b, 1), word(&b, 1), le64(&b, 1)), (0x0302, 0x0807_0605, 0x0908_0706_0504_0302));
        assert_eq!((le16(&b, 8), le32(&b, 6), le64(&b, 2), le32(&b, 10)), (0, 0, 0, 0));
        set_word(&mut b, 2, 7);
        put32(&mut b, 6, 7);
        assert_eq!(b, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        put32(&mut b, 5, 7);
        assert_eq!(b, [1, 2, 3, 4, 5, 7, 0, 0, 0]);
    }
}
