//! The checksums of the format.

/// crc32c, continued from `seed` and not inverted at its ends: the checksum of csum v2 and v3.
pub(crate) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// crc32 with the highest bit first (0x04C11DB7), not inverted at its ends: the checksum of csum v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crc32Be(u32);

impl Crc32Be {
    /// The checksum of no bytes.
    pub fn new() -> Self {
        Crc32Be(!0)
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |crc, b| {
            let [high, ..] = crc.to_be_bytes();
            (crc << 8) ^ TABLE[usize::from(high ^ b)]
        });
    }

    /// The checksum of all bytes so far.
    pub fn value(self) -> u32 {
        self.0
    }
}

static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let (mut n, mut byte) = (0, 0_u32);
    while n < 256 {
        let mut crc = byte << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc >> 31 == 1 { (crc << 1) ^ 0x04C1_1DB7 } else { crc << 1 };
            bit += 1;
        }
        table[n] = crc;
        (n, byte) = (n + 1, byte + 1);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values of the catalogue of CRCs for CRC-32C and CRC-32/BZIP2, whose ends are inverted.
    #[test]
    fn check_values() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        let mut crc = Crc32Be::new();
        crc.update(b"1234");
        crc.update(b"56789");
        assert_eq!(!crc.value(), 0xFC89_1918);
    }
}
