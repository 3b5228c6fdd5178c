//! A bio that grows, and the pages in it.

use crate::format::units::BlockAddr;
use crate::segment::log::LogId;
use std::sync::Arc;
use tidegate_block::{BioFlags, Errno, Segment};
use tidegate_rt::trace::{Span, SpanPoint};
use tidegate_vfs::Inode;

static SUBMIT_PAGE_WRITE: SpanPoint<4> =
    SpanPoint::new("f2fs_submit_page_write", ["ino", "index", "addrs", "what"]);

/// Pages whose write-back ends with their bio.
pub(crate) struct Pages {
    pub inode: Arc<Inode>,
    pub index: u64,
    pub pages: usize,
    /// The first page's old place; [`BlockAddr::NEW`] or [`BlockAddr::NULL`] where it had none.
    pub old: BlockAddr,
    /// The pages are file data that goes to a new place.
    pub moved: bool,
    /// Cleaning moves the pages.
    pub cleaned: bool,
}

/// Pages on one range of blocks.
pub(crate) struct Extent {
    pub blk: BlockAddr,
    pub segments: Vec<Segment>,
    pub pages: Pages,
}

/// A function that a waiting thread wants called at the end of a block's write.
pub(crate) type Then = Box<dyn FnOnce(Result<(), Errno>) + Send>;

/// Blocks that have a place, with their pages, if they are pages of an inode.
pub(crate) struct Placed {
    pub blk: BlockAddr,
    pub segments: Vec<Segment>,
    pub pages: Option<Pages>,
    pub then: Option<Then>,
}

impl From<Extent> for Placed {
    fn from(e: Extent) -> Placed {
        Placed { blk: e.blk, segments: e.segments, pages: Some(e.pages), then: None }
    }
}

impl Placed {
    /// The number of blocks.
    pub(super) fn blocks(&self) -> u32 {
        self.segments.iter().map(|s| s.len).sum::<u32>() / 4096
    }
}

impl Extent {
    /// Cuts an extent into pieces for one bio each: at most `most` blocks and `max_segments` segments, as
    /// long as one segment has no more blocks.
    pub(super) fn pieces(self, most: usize, max_segments: usize) -> Vec<Extent> {
        let Extent { blk, segments, pages } = self;
        let mut rest = segments.into_iter().peekable();
        let (mut done, mut out) = (0, Vec::new());
        while done < pages.pages {
            let (mut blocks, mut segments) = (0, Vec::new());
            while let Some(s) = rest.peek() {
                let n = (s.len / 4096) as usize;
                let full = segments.len() == max_segments || blocks + n > most;
                if full && blocks > 0 {
                    break;
                }
                blocks += n;
                segments.extend(rest.next());
            }
            if blocks == 0 {
                break; // no memory for the rest: nobody asks for that
            }
            let piece = Pages {
                inode: pages.inode.clone(),
                index: pages.index + done as u64,
                pages: blocks,
                old: pages.old,
                moved: pages.moved,
                cleaned: pages.cleaned,
            };
            out.push(Extent { blk: blk.plus(done as u32), segments, pages: piece });
            done += blocks;
        }
        out
    }
}

/// The last bio of a pass over a file, sent at the end of the pass.
pub(crate) struct LastBio(pub(super) LogId, pub(super) Growing);

impl Pages {
    /// Whether every checkpoint waits for these pages.
    pub(super) fn is_cp_data(&self, log: LogId) -> bool {
        log.kind.is_node() || self.inode.is_dir() || self.cleaned
    }

    pub(super) fn range(&self) -> std::ops::Range<u64> {
        self.index..self.index + self.pages as u64
    }

    /// A trace span while pages join bios, until the result is dropped. Its values: two addresses in one
    /// number, the old one above; the number of pages (12 bits) and the log (4 bits); the bio's flags.
    pub(super) fn submitting(&self, blk: BlockAddr, log: LogId, flags: BioFlags) -> Span {
        let addrs = u64::from(self.old.0) << 32 | u64::from(blk.0);
        let what = self.pages as u64 & 0xFFF | (log.kind as u64) << 12 | u64::from(flags.bits()) << 16;
        SUBMIT_PAGE_WRITE.enter([self.inode.ino.0, self.index, addrs, what])
    }
}

#[derive(Default)]
pub(crate) struct Growing {
    pub start: BlockAddr,
    pub blocks: u32,
    pub segments: Vec<Segment>,
    pub pages: Vec<Pages>,
    /// Functions to call at the bio's end.
    pub then: Vec<Then>,
    pub flags: BioFlags,
    /// The bio's number in the chain of warm nodes.
    pub seq: u64,
    /// The half of the bios in flight that counts the bio.
    pub half: usize,
    /// The bio has blocks that every checkpoint waits for: nodes, blocks of directories, pages that cleaning
    /// moves (`F2FS_WB_CP_DATA`).
    pub cp_data: bool,
}

impl Growing {
    pub(super) fn is_of_another(&self, inode: &Arc<Inode>) -> bool {
        self.pages.last().is_some_and(|p| !Arc::ptr_eq(&p.inode, inode))
    }
}
