//! Encrypted names in the form in which Linux shows them, and looks them up, without the key (`nokey` names
//! of fscrypt).
//!
//! The form is 8 zero bytes, where Linux has the directory's hash, and then the encrypted name, in base64
//! with `-` and `_` and without padding. For a name of more than 149 bytes it has the first 149 bytes and
//! then a hash of the whole, so that the form is no longer than a name may be. The form has no slash and no
//! zero byte.

use crate::format::hash::{DirHash, HashVersion};

/// Bytes of an encrypted name that the form contains unchanged.
const SHOWN: usize = 149;
/// Bytes in front of them.
const HEAD: usize = 8;

/// The form of an encrypted name without the key.
pub(crate) fn encode(name: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; HEAD];
    bytes.extend_from_slice(&name[..name.len().min(SHOWN)]);
    if name.len() > SHOWN {
        for n in 1..=4 {
            let hash = DirHash { version: HashVersion::HalfMd4, unsigned: true, seed: [n; 4] };
            let (major, minor) = hash.of(name);
            bytes.extend(major.to_le_bytes().into_iter().chain(minor.to_le_bytes()));
        }
    }
    base64(&bytes)
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn base64(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |b, n| b << 8 | u32::from(*n)) << (8 * (3 - three.len()));
        let digit = |n: usize| ALPHABET[(bits >> (18 - 6 * n) & 63) as usize];
        out.extend((0..=three.len()).map(digit));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_differ() {
        assert_eq!(base64(b"foob"), b"Zm9vYg");
        assert_eq!(base64(&[0xff, 0xfe]), b"__4");
        let long = |n: usize, last: u8| {
            let mut name = vec![0x2f; n];
            name[n - 1] = last;
            encode(&name)
        };
        assert!(long(255, 1).len() <= 255 && !long(255, 0).contains(&b'/'));
        assert_ne!(long(255, 1), long(255, 2));
        assert_ne!(long(16, 1), long(16, 2));
    }
}
