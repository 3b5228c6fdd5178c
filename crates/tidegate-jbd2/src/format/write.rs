//! Writing blocks of the log.

use super::block::{TagLayout, data_checksum, record_checksum};
use super::checksum::crc32c;
use super::gate::{Checksums, Compat, Incompat, Superblock};
use super::raw::*;
use crate::units::{FsBlock, Tid};
use tidegate_rt::Timespec;
use zerocopy::big_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

fn header(kind: u32, tid: Tid) -> RawHeader {
    RawHeader { h_magic: JBD2_MAGIC.into(), h_blocktype: kind.into(), h_sequence: tid.0.into() }
}

/// Sets the checksum at the end of a descriptor or revoke block.
fn close(sb: &Superblock, block: &mut [u8]) {
    if sb.has_crc32c() {
        let (body, tail) = block.split_at_mut(block.len() - TAIL_SIZE);
        let sum = crc32c(crc32c(sb.seed, body), &[0; TAIL_SIZE]);
        tail.copy_from_slice(RawTail { t_checksum: sum.into() }.as_bytes());
    }
}

/// Writes `bytes` at `at`; returns the offset behind them.
fn put(block: &mut [u8], at: usize, bytes: &[u8]) -> usize {
    block[at..at + bytes.len()].copy_from_slice(bytes);
    at + bytes.len()
}

fn low_half(n: u32) -> u16 {
    let [_, _, a, b] = n.to_be_bytes();
    u16::from_be_bytes([a, b])
}

/// The tag of a block whose bytes in the log are `logged`; of the 16 bytes, the layout's number counts.
pub(crate) fn tag(
    sb: &Superblock,
    layout: TagLayout,
    tid: Tid,
    (at, logged): (FsBlock, &[u8]),
    flags: u32,
) -> [u8; 16] {
    let [high, low]: [U32; 2] = zerocopy::transmute!(at.0.to_be_bytes());
    let mut bytes = [0; 16];
    let sum = || data_checksum(sb.seed, tid, logged);
    if layout.checksums == Checksums::V3 {
        let raw =
            RawTag3 { t_blocknr: low, t_flags: flags.into(), t_blocknr_high: high, t_checksum: sum().into() };
        bytes.copy_from_slice(raw.as_bytes());
        return bytes;
    }
    let sum = if layout.checksums == Checksums::V2 { low_half(sum()) } else { 0 };
    let low = RawTag { t_blocknr: low, t_checksum: sum.into(), t_flags: low_half(flags).into() };
    if layout.wide {
        put(&mut bytes, 0, RawTag64 { low, t_blocknr_high: high }.as_bytes());
    } else {
        put(&mut bytes, 0, low.as_bytes());
    }
    bytes
}

/// Fills `block`, which is zeros, with a descriptor of `tags`, made by [`tag`]. The first tag has no
/// [`FLAG_SAME_UUID`], the others have it.
pub(crate) fn descriptor(
    sb: &Superblock,
    layout: TagLayout,
    tid: Tid,
    tags: impl Iterator<Item = [u8; 16]>,
    block: &mut [u8],
) {
    let mut at = put(block, 0, header(DESCRIPTOR_BLOCK, tid).as_bytes());
    for (n, tag) in tags.enumerate() {
        at = put(block, at, &tag[..layout.bytes.min(tag.len())]);
        if n == 0 {
            at = put(block, at, &sb.raw.s_uuid);
        }
    }
    close(sb, block);
}

/// Fills `block`, which is zeros, with revoke records.
pub(crate) fn revokes(sb: &Superblock, tid: Tid, blocks: &[FsBlock], block: &mut [u8]) {
    let each = if sb.incompat.contains(Incompat::BIT64) { 8 } else { 4 };
    let count = size_of::<RawRevoke>() + blocks.len() * each;
    let raw = RawRevoke {
        r_header: header(REVOKE_BLOCK, tid),
        r_count: u32::try_from(count).unwrap_or(u32::MAX).into(),
    };
    let mut at = put(block, 0, raw.as_bytes());
    for b in blocks {
        at = put(block, at, &b.0.to_be_bytes()[8 - each..]);
    }
    close(sb, block);
}

/// Fills `block`, which is zeros, with a commit record.
pub(crate) fn record(sb: &Superblock, tid: Tid, time: Timespec, block: &mut [u8]) {
    let mut raw = RawCommit::new_zeroed();
    raw.h_header = header(COMMIT_BLOCK, tid);
    raw.h_commit_sec = time.secs.cast_unsigned().into();
    raw.h_commit_nsec = time.nanos.into();
    if sb.has_crc32c() {
        raw.h_chksum[0] = record_checksum(sb.seed, raw, &block[size_of::<RawCommit>()..]).into();
    }
    put(block, 0, raw.as_bytes());
}

/// The superblock of a clean log with the features with which transactions are written: revokes, and those
/// that the caller asks for. Checksums of v1 and asynchronous commits are removed.
pub(crate) fn upgraded(sb: &Superblock, csum_v3: bool, bit64: bool) -> RawSuperblock {
    let mut raw = (*sb.raw).clone();
    if raw.s_header.h_blocktype.get() == SUPERBLOCK_V1 {
        // The bytes behind the fields of v1 have no meaning.
        let old = raw;
        raw = RawSuperblock::new_zeroed();
        raw.s_header = old.s_header;
        raw.s_header.h_blocktype = SUPERBLOCK_V2.into();
        raw.s_blocksize = old.s_blocksize;
        raw.s_maxlen = old.s_maxlen;
        raw.s_first = old.s_first;
        raw.s_sequence = old.s_sequence;
        raw.s_errno = old.s_errno;
        raw.s_nr_users = 1.into();
    }
    let mut incompat = sb.incompat.difference(Incompat::ASYNC_COMMIT) | Incompat::REVOKE;
    incompat.set(Incompat::BIT64, bit64 || incompat.contains(Incompat::BIT64));
    if csum_v3 {
        incompat.remove(Incompat::CSUM_V2);
        incompat.insert(Incompat::CSUM_V3);
        raw.s_checksum_type = CRC32C_CHKSUM;
    }
    raw.s_feature_incompat = incompat.bits().into();
    raw.s_feature_compat = sb.compat.difference(Compat::CHECKSUM).bits().into();
    raw
}
