//! Reading checkpoint packs, and choosing between the two.

use super::{Checkpoint, Superblock, size};
use crate::format::raw::*;
use std::borrow::Cow;
use tidegate_vfs::{At, Error, Result};
use zerocopy::FromBytes;

/// A pack that cannot be used.
#[derive(Debug)]
pub struct BadPack {
    /// The rule that the pack breaks.
    pub error: Error,
    /// The pack's version, if it was written to its end, and so did count.
    pub version: Option<u64>,
}

impl From<Error> for BadPack {
    fn from(error: Error) -> Self {
        BadPack { error, version: None }
    }
}

impl Checkpoint {
    /// Reads and validates both packs through `read` (a block by its address) and takes the newer. A power
    /// cut leaves a pack that was not written to its end. A pack that was written to its end and breaks a
    /// rule is damage: the other pack is taken then, with [`Checkpoint::passed_over`] set.
    ///
    /// # Errors
    /// `Corrupt` when neither can be used.
    pub fn load(sb: &Superblock, mut read: impl FnMut(u32) -> Result<Vec<u8>>) -> Result<Checkpoint> {
        let [a, b] = [0, 1].map(|n| Self::load_pack(sb, n, &mut read));
        // Versions wrap around: the newer version is the one that is ahead.
        let newer = |of: u64, than: u64| (of.wrapping_sub(than).cast_signed()) > 0;
        match (a, b) {
            (Ok(a), Ok(b)) => Ok(if newer(b.version(), a.version()) { b } else { a }),
            (Ok(mut cp), Err(bad)) | (Err(bad), Ok(mut cp)) => {
                // Of two packs with one version the first counts; sload.f2fs leaves such packs.
                let counts = |v| newer(v, cp.version()) || cp.pack == 1 && v == cp.version();
                if let Some(version) = bad.version.filter(|v| counts(*v)) {
                    cp.passed_over = Some(bad.error);
                    cp.newest_version = version;
                }
                Ok(cp)
            }
            (Err(a), Err(b)) => {
                let b_is_newest = match (a.version, b.version) {
                    (Some(x), Some(y)) => newer(y, x),
                    (None, Some(_)) => true,
                    _ => false,
                };
                Err(if b_is_newest { b.error } else { a.error })
            }
        }
    }

    /// Reads and validates one pack.
    ///
    /// # Errors
    /// The pack's fault, and the version of a pack that was written to its end.
    pub fn load_pack(
        sb: &Superblock,
        pack: u32,
        read: &mut impl FnMut(u32) -> Result<Vec<u8>>,
    ) -> std::result::Result<Checkpoint, BadPack> {
        let (raw, crc, head) = Self::load_head(sb, pack, read)?;
        let version = Some(raw.checkpoint_ver.get());
        Self::validated(sb, pack, (raw, crc, head), read).map_err(|error| BadPack { error, version })
    }

    /// Reads a pack's head and tail, which must be of one version.
    fn load_head(
        sb: &Superblock,
        pack: u32,
        read: &mut impl FnMut(u32) -> Result<Vec<u8>>,
    ) -> Result<(RawCheckpoint, u32, Vec<u8>)> {
        let start = sb.cp_blkaddr + pack * BLOCKS_PER_SEG;
        let bad = |rule: Cow<'static, str>| {
            Error::corrupt(rule).at_block(start).at(At::Part("checkpoint pack", pack.into()))
        };
        let head = read(start)?;
        let (raw, crc) = parse_head(&head).ok_or_else(|| bad("the head's checksum does not match".into()))?;
        let total = raw.cp_pack_total_block_count.get();
        if total < 2 + sb.cp_payload || total > BLOCKS_PER_SEG {
            return Err(bad("cp_pack_total_block_count".into()));
        }
        let tail = read(start + total - 1)?;
        let tail_version = parse_head(&tail).map(|(t, _)| t.checkpoint_ver);
        if tail_version != Some(raw.checkpoint_ver) {
            return Err(bad("head and tail do not agree: it was not written to its end".into()));
        }
        Ok((raw, crc, head))
    }

    fn validated(
        sb: &Superblock,
        pack: u32,
        (raw, crc, head): (RawCheckpoint, u32, Vec<u8>),
        read: &mut impl FnMut(u32) -> Result<Vec<u8>>,
    ) -> Result<Checkpoint> {
        let start = sb.cp_blkaddr + pack * BLOCKS_PER_SEG;
        let bad = |rule: Cow<'static, str>| {
            Error::corrupt(rule).at_block(start).at(At::Part("checkpoint pack", pack.into()))
        };
        let flags = CpFlags::from_bits_retain(raw.ckpt_flags.get());
        let (sit, nat) = bitmaps(sb, &raw, flags, &head, |n| read(start + 1 + n))?
            .ok_or_else(|| bad("the version bitmaps do not fit".into()))?;
        let raw = Box::new(raw);
        let cp = Checkpoint {
            newest_version: raw.checkpoint_ver.get(),
            raw,
            flags,
            pack,
            start,
            crc,
            sit_bitmap: sit,
            nat_bitmap: nat,
            passed_over: None,
        };
        cp.validate(sb).map_err(bad)?;
        Ok(cp)
    }
}

fn parse_head(block: &[u8]) -> Option<(RawCheckpoint, u32)> {
    let raw = RawCheckpoint::read_from_prefix(block).ok()?.0;
    let offset = size(raw.checksum_offset.get());
    if !(CP_MIN_CHKSUM_OFFSET..=CP_CHKSUM_OFFSET).contains(&offset) {
        return None;
    }
    let stored = le32(block, offset);
    (stored == checkpoint_crc(block, offset)).then_some((raw, stored))
}

type Bitmaps = Option<(Vec<u8>, Vec<u8>)>;

/// The version bitmaps of the SIT and the NAT, wherever this head keeps them.
fn bitmaps(
    sb: &Superblock,
    raw: &RawCheckpoint,
    flags: CpFlags,
    head: &[u8],
    mut payload: impl FnMut(u32) -> Result<Vec<u8>>,
) -> Result<Bitmaps> {
    let (sit_len, nat_len) =
        (size(raw.sit_ver_bitmap_bytesize.get()), size(raw.nat_ver_bitmap_bytesize.get()));
    let cut = |from: usize, len: usize| head.get(from..from.checked_add(len)?).map(<[u8]>::to_vec);
    let base = CP_BITMAP_OFFSET;
    if flags.contains(CpFlags::LARGE_NAT_BITMAP) {
        return Ok(cut(base + 4, nat_len).and_then(|nat| Some((cut(base + 4 + nat_len, sit_len)?, nat))));
    }
    if sb.cp_payload == 0 {
        return Ok(cut(base, sit_len).and_then(|sit| Some((sit, cut(base + sit_len, nat_len)?))));
    }
    if sit_len > size(sb.cp_payload) * BLOCK_SIZE {
        return Ok(None);
    }
    let mut sit = Vec::with_capacity(sit_len);
    for n in 0..u32::try_from(sit_len.div_ceil(BLOCK_SIZE)).unwrap_or(0) {
        sit.extend(payload(n)?);
    }
    sit.truncate(sit_len);
    Ok(cut(base, nat_len).map(|nat| (sit, nat)))
}
