//! The gate: a journal's superblock, validated. Values that pass here are not checked again.

use super::checksum::crc32c;
use super::raw::*;
use crate::log::Log;
use crate::units::{LogBlock, Tid};
use std::borrow::Cow;
use std::ops::Range;
use tidegate_vfs::{At, Error, ErrorKind, Result};
use zerocopy::{FromBytes, IntoBytes};

bitflags::bitflags! {
    /// `s_feature_compat`. Unknown features of these do not matter to a reader.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Compat: u32 {
        /// Commit records carry a checksum of their transaction (csum v1).
        const CHECKSUM = 1;
        const _ = !0;
    }

    /// `s_feature_incompat`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Incompat: u32 {
        /// There are revoke records.
        const REVOKE = 1;
        /// Block numbers have 64 bits.
        const BIT64 = 2;
        /// A commit record may be on the device before its blocks are.
        const ASYNC_COMMIT = 4;
        /// Blocks carry checksums of 16 bits in their tags.
        const CSUM_V2 = 8;
        /// Blocks carry checksums of 32 bits in their tags.
        const CSUM_V3 = 16;
        /// The end of the log holds fast commits.
        const FAST_COMMIT = 32;
        const _ = !0;
    }
}

/// Incompatible features that Tidegate reads.
const READ: Incompat = Incompat::REVOKE
    .union(Incompat::BIT64)
    .union(Incompat::ASYNC_COMMIT)
    .union(Incompat::CSUM_V2)
    .union(Incompat::CSUM_V3)
    .union(Incompat::FAST_COMMIT);

/// The checksums of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// None.
    None,
    /// crc32 of a transaction's blocks, in its commit record.
    V1,
    /// crc32c of everything; of a logged block the low 16 bits.
    V2,
    /// crc32c of everything.
    V3,
}

/// A journal's superblock. Its geometry is consistent and fits its log.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// The bytes it came from.
    pub raw: Box<RawSuperblock>,
    /// Features that a program may ignore; none in a superblock of version 1.
    pub compat: Compat,
    /// Features that a program must know; none in a superblock of version 1.
    pub incompat: Incompat,
    /// The journal's checksums.
    pub checksums: Checksums,
    /// Bytes in a block.
    pub block_size: u32,
    /// The log as a ring: its blocks, without the superblock and the fast-commit area.
    pub ring: Range<u32>,
    /// Blocks of the fast-commit area; empty when there is none.
    pub fast_commits: Range<u32>,
    /// The first transaction in the log. In a clean log, it may be the last or the next.
    pub sequence: Tid,
    /// The start of that transaction; `None` for a clean log.
    pub start: Option<LogBlock>,
    /// An error of the volume that the volume's superblock may not record: an errno, 0 for none.
    pub errno: i32,
    /// The seed of the blocks' checksums.
    pub seed: u32,
}

impl Superblock {
    /// Reads and validates the superblock of `log`.
    ///
    /// # Errors
    /// `Corrupt` for broken rules, `Unsupported` for unknown features, the device's.
    pub fn read(log: &Log) -> Result<Superblock> {
        let block = log.read_block(LogBlock(0))?;
        Self::parse(&block, log.block_size(), log.len())
    }

    /// Validates `block`, the first of a log of `len` blocks.
    ///
    /// # Errors
    /// `Corrupt` for broken rules, `Unsupported` for unknown features.
    pub fn parse(block: &[u8], block_size: u32, len: u32) -> Result<Superblock> {
        let (raw, _) = RawSuperblock::read_from_prefix(block).map_err(|_| corrupt("too short"))?;
        rule(raw.s_header.h_magic.get() == JBD2_MAGIC, || "no magic".into())?;
        let (compat, incompat) = features(&raw)?;
        let checksums = checksums(&raw, compat, incompat)?;
        if matches!(checksums, Checksums::V2 | Checksums::V3) {
            let (found, made) = (raw.s_checksum.get(), superblock_checksum(&raw));
            rule(found == made, || format!("checksum {found:#x}, its bytes have {made:#x}"))?;
        }
        let (size, maxlen) = (raw.s_blocksize.get(), raw.s_maxlen.get());
        rule(size == block_size, || format!("s_blocksize {size}, the volume has {block_size}"))?;
        rule(maxlen <= len, || format!("s_maxlen {maxlen}, the log has {len} blocks"))?;
        let (ring, fast_commits) = areas(&raw, incompat)?;
        let start = raw.s_start.get();
        rule(start == 0 || ring.contains(&start), || {
            format!("s_start {start} is not in the log's blocks {} to {}", ring.start, ring.end - 1)
        })?;
        let seed = crc32c(!0, &raw.s_uuid);
        Ok(Superblock {
            compat,
            incompat,
            checksums,
            block_size: size,
            ring,
            fast_commits,
            sequence: Tid(raw.s_sequence.get()),
            start: (start != 0).then_some(LogBlock(start)),
            errno: raw.s_errno.get().cast_signed(),
            seed,
            raw: Box::new(raw),
        })
    }

    /// This journal with the features of `raw`, which was derived from its superblock.
    pub(crate) fn with(&self, raw: &RawSuperblock) -> Result<Superblock> {
        let mut raw = raw.clone();
        let features = Incompat::from_bits_retain(raw.s_feature_incompat.get());
        if features.intersects(Incompat::CSUM_V2 | Incompat::CSUM_V3) {
            raw.s_checksum = superblock_checksum(&raw).into();
        }
        Self::parse(raw.as_bytes(), self.block_size, raw.s_maxlen.get())
    }

    /// Whether blocks carry a crc32c.
    pub fn has_crc32c(&self) -> bool {
        matches!(self.checksums, Checksums::V2 | Checksums::V3)
    }

    /// The block of the ring that is `n` blocks behind `at`; `n` is at most the ring's length.
    pub(crate) fn forward(&self, at: LogBlock, n: u32) -> LogBlock {
        let (len, from) = (self.ring.end - self.ring.start, at.0 - self.ring.start);
        let sum = u64::from(from) + u64::from(n);
        let wrapped = sum % u64::from(len);
        LogBlock(self.ring.start + u32::try_from(wrapped).unwrap_or(0))
    }

    /// The superblock's bytes with a new start of the log, ready to be written: `start` is `None` for a clean
    /// log.
    pub(crate) fn bytes(&self, sequence: Tid, start: Option<LogBlock>) -> RawSuperblock {
        let mut raw = (*self.raw).clone();
        raw.s_sequence = sequence.0.into();
        raw.s_start = start.map_or(0, |b| b.0).into();
        raw.s_errno = self.errno.cast_unsigned().into();
        if self.has_crc32c() {
            raw.s_checksum = superblock_checksum(&raw).into();
        }
        raw
    }
}

/// The features of a superblock; all of them can be read.
fn features(raw: &RawSuperblock) -> Result<(Compat, Incompat)> {
    let kind = raw.s_header.h_blocktype.get();
    rule(matches!(kind, SUPERBLOCK_V1 | SUPERBLOCK_V2), || format!("h_blocktype {kind}"))?;
    if kind == SUPERBLOCK_V1 {
        return Ok((Compat::empty(), Incompat::empty()));
    }
    let incompat = Incompat::from_bits_retain(raw.s_feature_incompat.get());
    let (unknown, ro) = (incompat.difference(READ).bits(), raw.s_feature_ro_compat.get());
    if unknown != 0 {
        return Err(unsupported(format!("unknown incompatible features {unknown:#x}")));
    }
    if ro != 0 {
        return Err(unsupported(format!("unknown read-only features {ro:#x}")));
    }
    Ok((Compat::from_bits_retain(raw.s_feature_compat.get()), incompat))
}

fn checksums(raw: &RawSuperblock, compat: Compat, incompat: Incompat) -> Result<Checksums> {
    let [v1, v2, v3] = [
        compat.contains(Compat::CHECKSUM),
        incompat.contains(Incompat::CSUM_V2),
        incompat.contains(Incompat::CSUM_V3),
    ];
    rule(!(v2 && v3), || "csum v2 and v3 at once".into())?;
    rule(!(v1 && (v2 || v3)), || "csum v1 and v2 or v3 at once".into())?;
    let kind = raw.s_checksum_type;
    if (v2 || v3) && kind != CRC32C_CHKSUM {
        return Err(unsupported(format!("s_checksum_type {kind}")));
    }
    Ok(match (v1, v2, v3) {
        (true, ..) => Checksums::V1,
        (_, true, _) => Checksums::V2,
        (.., true) => Checksums::V3,
        _ => Checksums::None,
    })
}

/// The ring and the fast-commit area. One block between them belongs to neither.
fn areas(raw: &RawSuperblock, incompat: Incompat) -> Result<(Range<u32>, Range<u32>)> {
    let (maxlen, first) = (raw.s_maxlen.get(), raw.s_first.get());
    let mut last = maxlen;
    let mut fast_commits = maxlen..maxlen;
    if incompat.contains(Incompat::FAST_COMMIT) {
        let blocks = match raw.s_num_fc_blks.get() {
            0 => DEFAULT_FC_BLOCKS,
            n => n,
        };
        rule(blocks < maxlen, || format!("s_num_fc_blks {blocks} of s_maxlen {maxlen}"))?;
        last = maxlen - blocks;
        fast_commits = last + 1..maxlen;
    }
    // A descriptor, a block and a record need room.
    rule(first != 0 && first < last && last - first >= 3, || {
        format!("s_first {first}, s_maxlen {maxlen}: no room for a log")
    })?;
    Ok((first..last, fast_commits))
}

fn superblock_checksum(raw: &RawSuperblock) -> u32 {
    let zeroed = RawSuperblock { s_checksum: 0.into(), ..raw.clone() };
    crc32c(!0, zeroed.as_bytes())
}

/// The place that the errors of this module name.
const SUPERBLOCK: &str = "journal superblock (log block 0)";

fn rule(holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(corrupt(what())) }
}

fn corrupt(rule: impl Into<Cow<'static, str>>) -> Error {
    Error::corrupt(rule).at(At::The(SUPERBLOCK))
}

fn unsupported(what: String) -> Error {
    Error::new(ErrorKind::Unsupported, what).at(At::The(SUPERBLOCK))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sound() -> RawSuperblock {
        let mut raw = RawSuperblock::new_zeroed();
        raw.s_header.h_magic = JBD2_MAGIC.into();
        raw.s_header.h_blocktype = SUPERBLOCK_V2.into();
        raw.s_blocksize = 1024.into();
        raw.s_maxlen = 64.into();
        raw.s_first = 1.into();
        raw
    }

    fn parse(raw: &RawSuperblock) -> Result<Superblock> {
        Superblock::parse(raw.as_bytes(), 1024, 64)
    }

    use zerocopy::FromZeros;

    #[test]
    fn each_rule_says_what_it_found() {
        assert!(parse(&sound()).is_ok());
        type Break = fn(&mut RawSuperblock);
        let broken: [(Break, ErrorKind, &str); 14] = [
            (|r| r.s_header.h_magic = 1.into(), ErrorKind::Corrupt, "no magic"),
            (|r| r.s_header.h_blocktype = 1.into(), ErrorKind::Corrupt, "h_blocktype 1"),
            (|r| r.s_blocksize = 4096.into(), ErrorKind::Corrupt, "s_blocksize 4096"),
            (|r| r.s_maxlen = 65.into(), ErrorKind::Corrupt, "s_maxlen 65"),
            (|r| r.s_first = 0.into(), ErrorKind::Corrupt, "s_first 0"),
            (|r| r.s_first = 63.into(), ErrorKind::Corrupt, "s_first 63"),
            (|r| r.s_start = 64.into(), ErrorKind::Corrupt, "s_start 64"),
            (|r| r.s_feature_incompat = 64.into(), ErrorKind::Unsupported, "features 0x40"),
            (|r| r.s_feature_ro_compat = 1.into(), ErrorKind::Unsupported, "read-only features 0x1"),
            (|r| r.s_feature_incompat = 0x18.into(), ErrorKind::Corrupt, "v2 and v3"),
            (
                |r| (r.s_feature_compat, r.s_feature_incompat) = (1.into(), 16.into()),
                ErrorKind::Corrupt,
                "csum v1",
            ),
            (|r| r.s_feature_incompat = 16.into(), ErrorKind::Unsupported, "s_checksum_type 0"),
            (
                |r| (r.s_feature_incompat, r.s_checksum_type) = (16.into(), 4),
                ErrorKind::Corrupt,
                "checksum 0x0",
            ),
            (|r| r.s_feature_incompat = 32.into(), ErrorKind::Corrupt, "s_num_fc_blks 256"),
        ];
        for (change, kind, text) in broken {
            let mut raw = sound();
            change(&mut raw);
            let e = parse(&raw).unwrap_err();
            assert!(e.kind() == kind && e.what().contains(text), "{e}: {text}");
            assert_eq!(e.places().next(), Some(&At::The(SUPERBLOCK)), "{e}");
        }
    }

    #[test]
    fn the_ring_wraps_before_the_fast_commits() {
        let mut raw = sound();
        raw.s_feature_incompat = Incompat::FAST_COMMIT.bits().into();
        raw.s_num_fc_blks = 10.into();
        let sb = parse(&raw).unwrap();
        assert_eq!((sb.ring.clone(), sb.fast_commits.clone()), (1..54, 55..64));
        assert_eq!(sb.forward(LogBlock(53), 1), LogBlock(1));
        assert_eq!(sb.forward(LogBlock(53), 53), LogBlock(53));
    }
}
