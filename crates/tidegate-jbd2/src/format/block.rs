//! The blocks of the log: tags, revoke records, commit records.
//!
//! Blocks are slices of the journal's block size, which is at least 1024 bytes.

use super::checksum::crc32c;
use super::gate::{Checksums, Incompat, Superblock};
use super::raw::*;
use crate::units::{FsBlock, Tid};
use zerocopy::FromBytes;

/// Kind and transaction of a block, if it is one of the journal's own.
pub(crate) fn header(block: &[u8]) -> Option<(u32, Tid)> {
    let (raw, _) = RawHeader::ref_from_prefix(block).ok()?;
    (raw.h_magic.get() == JBD2_MAGIC).then(|| (raw.h_blocktype.get(), Tid(raw.h_sequence.get())))
}

/// One block of a transaction, as its descriptor names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    /// The block's place on the volume.
    pub block: FsBlock,
    /// Its first four bytes were the magic.
    pub escaped: bool,
    /// Its checksum, of as many bits as the journal keeps; 0 where it keeps none.
    pub checksum: u32,
}

/// The layout of tags in the descriptors of one journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TagLayout {
    pub(super) checksums: Checksums,
    pub(super) wide: bool,
    /// Bytes of one tag, without a UUID.
    pub bytes: usize,
    /// Bytes at the end of a descriptor that hold no tags.
    pub tail: usize,
}

impl TagLayout {
    pub fn of(sb: &Superblock) -> TagLayout {
        let wide = sb.incompat.contains(Incompat::BIT64);
        let narrow = if wide { size_of::<RawTag64>() } else { size_of::<RawTag>() };
        let bytes = match sb.checksums {
            Checksums::None | Checksums::V1 => narrow,
            // Linux counts the checksum twice here, so every device has the gap.
            Checksums::V2 => narrow + 2,
            Checksums::V3 => size_of::<RawTag3>(),
        };
        TagLayout { checksums: sb.checksums, wide, bytes, tail: if sb.has_crc32c() { TAIL_SIZE } else { 0 } }
    }

    /// The tag at the beginning of `bytes` with its flags; `None` where there is no whole tag.
    fn parse(&self, bytes: &[u8]) -> Option<(Tag, u32)> {
        let bytes = bytes.get(..self.bytes)?;
        let (low, high, flags, checksum) = if self.checksums == Checksums::V3 {
            let (raw, _) = RawTag3::ref_from_prefix(bytes).ok()?;
            (raw.t_blocknr, raw.t_blocknr_high.get(), raw.t_flags.get(), raw.t_checksum.get())
        } else {
            let (raw, _) = RawTag::ref_from_prefix(bytes).ok()?;
            let high = RawTag64::ref_from_prefix(bytes).map_or(0, |(raw, _)| raw.t_blocknr_high.get());
            (raw.t_blocknr, high, raw.t_flags.get().into(), raw.t_checksum.get().into())
        };
        let high = if self.wide { high } else { 0 };
        let block = FsBlock(u64::from(high) << 32 | u64::from(low.get()));
        Some((Tag { block, escaped: flags & FLAG_ESCAPE != 0, checksum }, flags))
    }
}

/// The tags of a descriptor, in the order of the blocks that follow it in the log.
pub(crate) fn tags(layout: TagLayout, descriptor: &[u8]) -> impl Iterator<Item = Tag> {
    let end = descriptor.len() - layout.tail;
    let mut at = Some(size_of::<RawHeader>());
    std::iter::from_fn(move || {
        let from = at?;
        let (tag, flags) = layout.parse(descriptor.get(from..end)?)?;
        let uuid = if flags & FLAG_SAME_UUID == 0 { UUID_SIZE } else { 0 };
        at = (flags & FLAG_LAST_TAG == 0).then_some(from + layout.bytes + uuid);
        Some(tag)
    })
}

/// The blocks that a revoke block names; `None` when its count goes beyond the block.
pub(crate) fn revoked<'a>(
    sb: &Superblock,
    block: &'a [u8],
) -> Option<impl Iterator<Item = FsBlock> + use<'a>> {
    let (raw, _) = RawRevoke::ref_from_prefix(block).ok()?;
    let room = block.len() - if sb.has_crc32c() { TAIL_SIZE } else { 0 };
    let count = usize::try_from(raw.r_count.get()).ok().filter(|&n| n <= room)?;
    let each = if sb.incompat.contains(Incompat::BIT64) { 8 } else { 4 };
    let records = block.get(size_of::<RawRevoke>()..count).unwrap_or_default();
    Some(records.chunks_exact(each).map(|r| FsBlock(r.iter().fold(0, |n, b| n << 8 | u64::from(*b)))))
}

impl Superblock {
    /// Whether the tail of a descriptor or revoke block has the block's checksum; true for a journal without
    /// checksums.
    pub(crate) fn tail_holds(&self, block: &[u8]) -> bool {
        if !self.has_crc32c() {
            return true;
        }
        let (body, tail) = block.split_at(block.len() - TAIL_SIZE);
        let sum = crc32c(crc32c(self.seed, body), &[0; TAIL_SIZE]);
        RawTail::ref_from_bytes(tail).is_ok_and(|t| t.t_checksum.get() == sum)
    }

    /// Whether a commit record has its checksum (csum v2 and v3); true for a journal without checksums. A
    /// record is valid even if the device kept only its first sector: zeros follow it.
    pub(crate) fn record_holds(&self, block: &[u8]) -> bool {
        if !self.has_crc32c() {
            return true;
        }
        let Ok((raw, rest)) = RawCommit::read_from_prefix(block) else { return false };
        let found = raw.h_chksum[0].get();
        let sum = record_checksum(self.seed, raw, rest);
        sum == found || record_checksum(self.seed, raw, &vec![0; rest.len()]) == found
    }

    /// Whether the bytes of a logged block, as they are in the log, have the checksum of its tag; true for a
    /// journal without checksums.
    pub(crate) fn data_holds(&self, tag: &Tag, tid: Tid, logged: &[u8]) -> bool {
        let sum = || data_checksum(self.seed, tid, logged);
        match self.checksums {
            Checksums::None | Checksums::V1 => true,
            Checksums::V2 => tag.checksum == sum() & 0xffff,
            Checksums::V3 => tag.checksum == sum(),
        }
    }
}

/// The checksum of a commit record whose block continues with `rest`.
pub(crate) fn record_checksum(seed: u32, mut raw: RawCommit, rest: &[u8]) -> u32 {
    raw.h_chksum[0] = 0.into();
    crc32c(crc32c(seed, zerocopy::IntoBytes::as_bytes(&raw)), rest)
}

/// The checksum of a logged block: of the transaction's number and the bytes in the log.
pub(crate) fn data_checksum(seed: u32, tid: Tid, logged: &[u8]) -> u32 {
    crc32c(crc32c(seed, &tid.0.to_be_bytes()), logged)
}
