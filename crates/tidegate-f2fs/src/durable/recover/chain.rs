//! The chain of warm nodes behind the last checkpoint.

use super::Entry;
use crate::format::gate::NodeStamp;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::node::{flag_of, ino_of, is_dnode, nid_of, ofs_of};
use crate::volume::sbi::F2fs;
use tidegate_block::{BioFlags, PageBuf};
use tidegate_rt::hash::{HashMap, HashSet};
use tidegate_vfs::{Error, Result};

/// Blocks read at once: the blocks of a log mostly follow each other.
const READ_AHEAD: u32 = 32;

/// Walks the chain.
pub(super) struct Chain<'a> {
    fs: &'a F2fs,
    at: BlockAddr,
    stamp: NodeStamp,
    buf: Option<(BlockAddr, PageBuf)>,
    /// Brent's loop detection: a block that the walk has passed, the steps since then, and the number of
    /// steps after which another block replaces it.
    passed: BlockAddr,
    steps: u64,
    limit: u64,
}

impl<'a> Chain<'a> {
    pub(super) fn new(fs: &'a F2fs) -> Self {
        let state = fs.ckpt.lock();
        Chain {
            at: state.cp.chain_start(&fs.sb),
            stamp: state.cp.node_stamp(),
            fs,
            buf: None,
            passed: BlockAddr::NULL,
            steps: 0,
            limit: 1,
        }
    }

    /// The next node; `None` where the chain ends.
    ///
    /// # Errors
    /// `Corrupt` when it loops, those of the device.
    pub(super) fn next(&mut self) -> Result<Option<(BlockAddr, &[u8])>> {
        let at = self.at;
        if !self.fs.sb.in_main(at) || self.is_cut() {
            return Ok(None);
        }
        if at == self.passed {
            return Err(Error::corrupt("the chain of fsynced nodes comes back to it").at_block(at));
        }
        self.steps += 1;
        if self.steps == self.limit {
            (self.passed, self.steps, self.limit) = (at, 0, self.limit * 2);
        }
        let (start, buf) = match self.buf.take() {
            Some((start, buf)) if at >= start && at.0 - start.0 < buf.pages() as u32 => (start, buf),
            _ => self.read(at)?,
        };
        let i = (at.0 - start.0) as usize * BLOCK_SIZE;
        let page = &self.buf.insert((start, buf)).1[i..i + BLOCK_SIZE];
        let footer = RawNodeFooter::of(page);
        if !self.stamp.is_on(footer.cp_ver.get()) {
            return Ok(None);
        }
        self.at = BlockAddr(footer.next_blkaddr.get());
        Ok(Some((at, page)))
    }

    /// Whether the rest of the chain, if there is one, is in a zone that has lost its content.
    pub(super) fn is_cut(&self) -> bool {
        self.fs.sb.in_main(self.at) && self.fs.sit.is_lost(self.at)
    }

    fn read(&self, at: BlockAddr) -> Result<(BlockAddr, PageBuf)> {
        let in_segment = (at.0 - self.fs.sb.main_blkaddr) % BLOCKS_PER_SEG;
        let n = READ_AHEAD.min(BLOCKS_PER_SEG - in_segment) as usize;
        let buf = self
            .fs
            .queue
            .read_wait(at.sector(), n, BioFlags::META)
            .map_err(|e| Error::device_at(e, "reading node", at.place()))?;
        Ok((at, buf))
    }
}

/// The findings of a first walk.
pub(super) struct Found {
    pub entries: HashMap<u32, Entry>,
    /// A bit for each segment (least significant first): the chain is in the segment or leads to it.
    pub segments: Vec<u8>,
    /// Segments that the chain itself is in.
    pub nodes: HashSet<u32>,
    /// The rest of the chain is in a zone that has lost its content.
    pub is_cut: bool,
}

/// Learns which files were fsynced. The walk stops only at the end of the chain, so that the segments of
/// nodes that were written without fsync count, too.
pub(super) fn find(fs: &F2fs) -> Result<Found> {
    let segments = vec![0; fs.sb.main_segments.div_ceil(8) as usize];
    let mut f = Found { entries: HashMap::default(), segments, nodes: HashSet::default(), is_cut: false };
    let mut last_inode: HashMap<u32, BlockAddr> = HashMap::default();
    let mut chain = Chain::new(fs);
    while let Some((at, page)) = chain.next()? {
        let (ino, flag, is_inode) = (ino_of(page), flag_of(page), ofs_of(page) == 0);
        f.mark(fs, at);
        f.nodes.insert(fs.sit.place(at).0.0);
        f.mark_targets(fs, page);
        if ino == 0 || ino >= fs.sb.max_nid || is_inode && nid_of(page).0 != ino {
            continue;
        }
        if is_inode {
            last_inode.insert(ino, at);
        }
        if flag & FSYNC_BIT_MASK != 0 {
            let e = f.entries.entry(ino).or_default();
            e.last = at;
            e.inode = last_inode.get(&ino).copied();
            if is_inode && flag & DENT_BIT_MASK != 0 {
                e.dentry = Some(at);
            }
        }
    }
    f.is_cut = chain.is_cut();
    Ok(f)
}

/// Calls `f` with every block of the chain and every block of data that the chain leads to; with some blocks
/// more than once.
pub(super) fn each_block(fs: &F2fs, mut f: impl FnMut(BlockAddr) -> Result<()>) -> Result<()> {
    let mut chain = Chain::new(fs);
    while let Some((at, page)) = chain.next()? {
        f(at)?;
        for blk in targets(page).filter(|b| fs.sb.in_main(*b)) {
            f(blk)?;
        }
    }
    Ok(())
}

/// The blocks that the words of a node point to, if it holds addresses. Words of an inode that are no
/// addresses count, too: then a block too many is kept.
fn targets(page: &[u8]) -> impl Iterator<Item = BlockAddr> {
    let ofs = ofs_of(page);
    let words = match ofs {
        0 if page[3] & (inline::DATA | inline::DENTRY) != 0 => 0..0,
        0 => I_ADDR_OFFSET / 4..I_NID_OFFSET / 4,
        XATTR_NODE_OFFSET => 0..0,
        _ if is_dnode(ofs) => 0..ADDRS_PER_BLOCK,
        _ => 0..0,
    };
    words.map(|w| BlockAddr(word(page, w)))
}

impl Found {
    fn mark(&mut self, fs: &F2fs, at: BlockAddr) {
        if fs.sb.in_main(at) {
            set_bit_le(&mut self.segments, fs.sit.place(at).0.0 as usize, true);
        }
    }

    /// Marks the segments of the data a node points to.
    fn mark_targets(&mut self, fs: &F2fs, page: &[u8]) {
        for blk in targets(page) {
            self.mark(fs, blk);
        }
    }
}
