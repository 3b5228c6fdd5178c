//! The hashes of names that directories are ordered by.
//!
//! The algorithms are public: TEA (Wheeler and Needham), the first half of MD4 (RFC 1320), and the older
//! "hack" hash of the first hashed directories. A directory's root block has the number of its hash. The
//! superblock says whether bytes count as signed, as that depended on the machine that made the volume.

/// The algorithm of a hash of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashVersion {
    /// The first hash.
    Legacy,
    /// Half of MD4.
    HalfMd4,
    /// TEA.
    Tea,
}

/// A hash with all of its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirHash {
    /// The algorithm.
    pub version: HashVersion,
    /// Bytes of names count as unsigned.
    pub unsigned: bool,
    /// `s_hash_seed`; all zeros for the algorithm's own start value.
    pub seed: [u32; 4],
}

/// The hash at which `readdir` ends; no name has it.
const EOF: u32 = 0x7fff_ffff << 1;

/// The start state of MD4 (RFC 1320, 3.3).
const MD4_START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

impl DirHash {
    /// The hash with a root block's number: 0 to 2, and 3 to 5 for the same algorithms with unsigned bytes.
    /// `None` for other numbers, of which 6 (SipHash) takes a key that is not on the volume.
    pub fn new(number: u8, unsigned: bool, seed: [u32; 4]) -> Option<Self> {
        let version = match number % 3 {
            _ if number > 5 => return None,
            0 => HashVersion::Legacy,
            1 => HashVersion::HalfMd4,
            _ => HashVersion::Tea,
        };
        Some(DirHash { version, unsigned: unsigned || number > 2, seed })
    }

    /// Whether names have no minor hash.
    pub fn is_legacy(&self) -> bool {
        self.version == HashVersion::Legacy
    }

    /// The major hash of `name`, by which directories are ordered, and the minor one. The lowest bit of the
    /// major hash is 0: in index entries it says that names of one hash lie in two blocks.
    pub fn of(&self, name: &[u8]) -> (u32, u32) {
        let (hash, minor) = match self.version {
            HashVersion::Legacy => (self.legacy(name), 0),
            HashVersion::HalfMd4 => {
                let buf = self.blocks(name, half_md4);
                (buf[1], buf[2])
            }
            HashVersion::Tea => {
                let buf = self.blocks(name, tea);
                (buf[0], buf[1])
            }
        };
        let hash = hash & !1;
        (if hash == EOF { EOF - 2 } else { hash }, minor)
    }

    fn byte(&self, b: u8) -> u32 {
        if self.unsigned { b.into() } else { i32::from(b.cast_signed()).cast_unsigned() }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut hash, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
        for b in name {
            let mixed = before.wrapping_add(hash ^ self.byte(*b).wrapping_mul(7_152_373));
            let next = if mixed & 0x8000_0000 != 0 { mixed.wrapping_sub(0x7fff_ffff) } else { mixed };
            (before, hash) = (hash, next);
        }
        hash << 1
    }

    /// Feeds `name` to `transform` in pieces of `N` words.
    fn blocks<const N: usize>(&self, name: &[u8], transform: fn(&mut [u32; 4], &[u32; N])) -> [u32; 4] {
        let mut buf = if self.seed == [0; 4] { MD4_START } else { self.seed };
        let mut rest = name;
        while !rest.is_empty() {
            transform(&mut buf, &self.words(rest));
            rest = rest.get(4 * N..).unwrap_or_default();
        }
        buf
    }

    /// The first `4 * N` bytes as words; a word that the name does not fill is padded with the low byte of
    /// its length, four times.
    fn words<const N: usize>(&self, rest: &[u8]) -> [u32; N] {
        let pad = u32::from_ne_bytes([rest.len().to_le_bytes()[0]; 4]);
        let mut out = [pad; N];
        for (word, bytes) in out.iter_mut().zip(rest.chunks(4)) {
            *word = bytes.iter().fold(pad, |w, b| (w << 8).wrapping_add(self.byte(*b)));
        }
        out
    }
}

fn tea(buf: &mut [u32; 4], key: &[u32; 4]) {
    let (mut sum, mut b0, mut b1) = (0_u32, buf[0], buf[1]);
    let mix = |v: u32, sum: u32, k0: u32, k1: u32| {
        (v << 4).wrapping_add(k0) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(k1)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        b0 = b0.wrapping_add(mix(b1, sum, key[0], key[1]));
        b1 = b1.wrapping_add(mix(b0, sum, key[2], key[3]));
    }
    buf[0] = buf[0].wrapping_add(b0);
    buf[1] = buf[1].wrapping_add(b1);
}

/// A round's constant (the roots of 2 and 3 as in RFC 1320), shifts, and the words in their order.
const ROUNDS: [(u32, [u32; 4], [usize; 8]); 3] = [
    (0, [3, 7, 11, 19], [0, 1, 2, 3, 4, 5, 6, 7]),
    (0x5A82_7999, [3, 5, 9, 13], [1, 3, 5, 7, 0, 2, 4, 6]),
    (0x6ED9_EBA1, [3, 9, 11, 15], [3, 7, 2, 6, 1, 5, 0, 4]),
];

fn half_md4(buf: &mut [u32; 4], input: &[u32; 8]) {
    let f = |round: usize, x: u32, y: u32, z: u32| match round {
        0 => z ^ (x & (y ^ z)),
        1 => (x & y).wrapping_add((x ^ y) & z),
        _ => x ^ y ^ z,
    };
    // Each step changes another word: a, then d, c, b, and a again.
    let mut v = *buf;
    for (round, (constant, shifts, order)) in ROUNDS.iter().enumerate() {
        for (step, word) in order.iter().enumerate() {
            let a = (4 - step % 4) % 4;
            let mixed = f(round, v[(a + 1) % 4], v[(a + 2) % 4], v[(a + 3) % 4]);
            let sum = v[a].wrapping_add(mixed).wrapping_add(input[*word]).wrapping_add(*constant);
            v[a] = sum.rotate_left(shifts[step % 4]);
        }
    }
    for (b, v) in buf.iter_mut().zip(v) {
        *b = b.wrapping_add(v);
    }
}
