//! The fast-commit area: tags of length and value, little-endian, that change a volume after its last commit.
//!
//! Only the volume's format knows the effect of a tag; this module knows how tags lie in blocks and which of
//! them count. Tags of several fast commits follow each other. Each fast commit ends with a tail, which has
//! the checksum of all tags since the tail before. Tags that no tail covers were not committed.

use super::checksum::crc32c;
use super::raw::{EXTENT_SIZE, RawFcAddRange, RawFcDelRange, RawFcDentryInfo, RawFcHead, RawFcTail, RawFcTl};
use crate::units::Tid;
use std::mem::offset_of;
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

/// `EXT4_FC_TAG_ADD_RANGE` and those that follow it.
mod tag {
    pub const ADD_RANGE: u16 = 1;
    pub const DEL_RANGE: u16 = 2;
    pub const CREAT: u16 = 3;
    pub const LINK: u16 = 4;
    pub const UNLINK: u16 = 5;
    pub const INODE: u16 = 6;
    pub const PAD: u16 = 7;
    pub const TAIL: u16 = 8;
    pub const HEAD: u16 = 9;
}

/// Bytes of a tag's number and length.
const TL: usize = size_of::<RawFcTl>();
/// The longest name.
const NAME_MAX: usize = 255;
/// Bytes of the smallest inode.
const INODE_MIN: usize = 128;

/// An inode's number in a fast commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FcInode(pub u32);

/// A name that is added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FcName {
    /// The directory.
    pub parent: FcInode,
    /// The inode behind the name.
    pub inode: FcInode,
    /// The name, 1 to 255 bytes.
    pub name: Vec<u8>,
}

/// One change of a fast commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FcTag {
    /// A file gets an extent.
    AddRange {
        /// The file.
        inode: FcInode,
        /// The extent, in the volume's format.
        extent: [u8; EXTENT_SIZE],
    },
    /// A file loses blocks.
    DelRange {
        /// The file.
        inode: FcInode,
        /// The first block of the file that it loses.
        block: u32,
        /// Number of blocks.
        len: u32,
    },
    /// An inode is made, with its first name.
    Creat(FcName),
    /// An inode gets another name.
    Link(FcName),
    /// An inode loses a name.
    Unlink(FcName),
    /// An inode's attributes.
    Inode {
        /// The inode.
        inode: FcInode,
        /// Its bytes, in the volume's format; at least 128.
        raw: Vec<u8>,
    },
}

/// A tag as it lies in a block.
struct Tlv<'a> {
    tag: u16,
    value: &'a [u8],
    /// Number, length and value.
    bytes: &'a [u8],
}

/// The tags of one block, up to the first invalid one.
struct Tlvs<'a>(&'a [u8]);

impl<'a> Tlvs<'a> {
    /// The next tag; an error for bytes that are no tag.
    fn next(&mut self) -> Option<Result<Tlv<'a>, ()>> {
        let (head, _) = RawFcTl::read_from_prefix(self.0).ok()?;
        let (tag, len) = (head.fc_tag.get(), usize::from(head.fc_len.get()));
        let Some(bytes) = self.0.get(..TL + len).filter(|_| has_length(tag, len)) else {
            self.0 = &[];
            return Some(Err(()));
        };
        self.0 = &self.0[TL + len..];
        Some(Ok(Tlv { tag, value: &bytes[TL..], bytes }))
    }
}

fn has_length(tag: u16, len: usize) -> bool {
    match tag {
        tag::ADD_RANGE => len == size_of::<RawFcAddRange>(),
        tag::DEL_RANGE => len == size_of::<RawFcDelRange>(),
        tag::CREAT | tag::LINK | tag::UNLINK => {
            let name = len.checked_sub(size_of::<RawFcDentryInfo>());
            name.is_some_and(|n| (1..=NAME_MAX).contains(&n))
        }
        tag::INODE => len >= 4 + INODE_MIN,
        tag::PAD => true,
        // A tail's length includes the padding up to the end of its block.
        tag::TAIL => len >= size_of::<RawFcTail>(),
        tag::HEAD => len == size_of::<RawFcHead>(),
        _ => false,
    }
}

/// The reason why the area cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The first commit is damaged.
    Damaged,
    /// The head names unknown features.
    Features(u32),
}

/// Counts, block by block, the committed tags of the area.
pub(crate) struct Scan {
    /// The transaction that the fast commits follow.
    tid: Tid,
    crc: u32,
    seen: u64,
    /// Number of committed tags, those without effect included.
    pub committed: u64,
    first: bool,
}

impl Scan {
    /// A scan; `tid` is the transaction behind the last whole one of the log.
    pub fn new(tid: Tid) -> Scan {
        Scan { tid, crc: 0, seen: 0, committed: 0, first: true }
    }

    /// Scans the next block; true if the block after it counts, too.
    pub fn block(&mut self, block: &[u8]) -> Result<bool, Refused> {
        let begins = |block| RawFcTl::read_from_prefix(block).is_ok_and(|(t, _)| t.fc_tag.get() == tag::HEAD);
        if std::mem::take(&mut self.first) && !begins(block) {
            return Ok(false);
        }
        let mut tlvs = Tlvs(block);
        while let Some(tlv) = tlvs.next() {
            let Ok(tlv) = tlv else { return self.stop() };
            self.seen += 1;
            match tlv.tag {
                tag::HEAD => {
                    let Ok((head, _)) = RawFcHead::read_from_prefix(tlv.value) else { return self.stop() };
                    if head.fc_features.get() != 0 {
                        return Err(Refused::Features(head.fc_features.get()));
                    }
                    if head.fc_tid.get() != self.tid.0 {
                        return Ok(false);
                    }
                    self.crc = crc32c(self.crc, tlv.bytes);
                }
                tag::TAIL => {
                    let Ok((tail, _)) = RawFcTail::read_from_prefix(tlv.value) else { return self.stop() };
                    let covered = TL + offset_of!(RawFcTail, fc_crc);
                    let crc = crc32c(std::mem::take(&mut self.crc), &tlv.bytes[..covered]);
                    if tail.fc_tid.get() != self.tid.0 || tail.fc_crc.get() != crc {
                        return self.stop();
                    }
                    self.committed = self.seen;
                }
                _ => self.crc = crc32c(self.crc, tlv.bytes),
            }
        }
        Ok(true)
    }

    /// The tags from here on are not committed, which is fine behind a committed fast commit.
    fn stop(&self) -> Result<bool, Refused> {
        if self.committed > 0 { Ok(false) } else { Err(Refused::Damaged) }
    }
}

/// The changes in one block of the area, of the first `left` tags; reduces `left` by them.
pub(crate) fn changes(block: &[u8], left: &mut u64) -> Vec<FcTag> {
    let mut tlvs = Tlvs(block);
    let mut all = Vec::new();
    while let Some(Ok(tlv)) = tlvs.next() {
        if *left == 0 {
            break;
        }
        *left -= 1;
        all.extend(change(tlv.tag, tlv.value));
    }
    all
}

/// The change that a tag makes; none for head, tail and padding. The lengths were checked.
fn change(tag: u16, v: &[u8]) -> Option<FcTag> {
    let name = || {
        let (d, name) = RawFcDentryInfo::read_from_prefix(v).ok()?;
        let (parent, inode) = (FcInode(d.fc_parent_ino.get()), FcInode(d.fc_ino.get()));
        Some(FcName { parent, inode, name: name.to_vec() })
    };
    Some(match tag {
        tag::ADD_RANGE => {
            let (range, _) = RawFcAddRange::read_from_prefix(v).ok()?;
            FcTag::AddRange { inode: FcInode(range.fc_ino.get()), extent: range.fc_ex }
        }
        tag::DEL_RANGE => {
            let (range, _) = RawFcDelRange::read_from_prefix(v).ok()?;
            let (block, len) = (range.fc_lblk.get(), range.fc_len.get());
            FcTag::DelRange { inode: FcInode(range.fc_ino.get()), block, len }
        }
        tag::CREAT => FcTag::Creat(name()?),
        tag::LINK => FcTag::Link(name()?),
        tag::UNLINK => FcTag::Unlink(name()?),
        tag::INODE => {
            let (ino, raw) = U32::read_from_prefix(v).ok()?;
            FcTag::Inode { inode: FcInode(ino.get()), raw: raw.to_vec() }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of tags, with a tail whose checksum is right unless `broken`.
    fn block(tags: &[(u16, &[u8])], tid: u32, broken: bool) -> Vec<u8> {
        let mut b = Vec::new();
        let mut put = |tag: u16, len: usize, value: &[u8]| {
            b.extend(tag.to_le_bytes());
            b.extend(u16::try_from(len).unwrap().to_le_bytes());
            b.extend(value);
        };
        tags.iter().for_each(|(tag, value)| put(*tag, value.len(), value));
        let rest = 1024 - tags.iter().map(|(_, v)| TL + v.len()).sum::<usize>() - TL;
        put(tag::TAIL, rest, &tid.to_le_bytes());
        let crc = crc32c(0, &b) ^ u32::from(broken);
        b.extend(crc.to_le_bytes());
        b.resize(1024, 0);
        b
    }

    fn head(tid: u32) -> Vec<u8> {
        [0u32.to_le_bytes(), tid.to_le_bytes()].concat()
    }

    #[test]
    fn what_a_tail_covers_counts() {
        let unlink = [&[2, 0, 0, 0, 12, 0, 0, 0][..], b"name"].concat();
        let one = block(&[(tag::HEAD, &head(7)), (tag::UNLINK, &unlink), (tag::PAD, &[0; 20])], 7, false);
        let two = block(&[(tag::DEL_RANGE, &[1; 12])], 7, true);
        let mut scan = Scan::new(Tid(7));
        assert_eq!((scan.block(&one), scan.committed), (Ok(true), 4));
        assert_eq!((scan.block(&two), scan.committed), (Ok(false), 4));
        let mut left = scan.committed;
        let name = FcName { parent: FcInode(2), inode: FcInode(12), name: b"name".to_vec() };
        assert_eq!((changes(&one, &mut left), left), (vec![FcTag::Unlink(name)], 0));
        assert_eq!(changes(&two, &mut left), []);
    }

    #[test]
    fn others_and_damaged_ones_are_told_apart() {
        let of = |tid| block(&[(tag::HEAD, &head(tid))], tid, false);
        let mut scan = Scan::new(Tid(8));
        assert_eq!((scan.block(&of(7)), scan.committed), (Ok(false), 0));
        let mut scan = Scan::new(Tid(8));
        assert_eq!((scan.block(&[0; 1024]), scan.committed), (Ok(false), 0));
        let broken = block(&[(tag::HEAD, &head(8))], 8, true);
        assert_eq!(Scan::new(Tid(8)).block(&broken), Err(Refused::Damaged));
        let mut unknown = of(8);
        unknown[4] = 2;
        assert_eq!(Scan::new(Tid(8)).block(&unknown), Err(Refused::Features(2)));
    }
}
