//! The block map: from a page of a file to the place that holds its address.
//!
//! An inode holds addresses itself, then two direct nodes, two indirect nodes, one double-indirect node.
//! Changes are made under the inode's `i_dnode` lock. A read needs no lock, since a node is read as a whole
//! and a new node exists before anything points to it. A page-in keeps the address from being freed:
//! `mapping->invalidate_lock` keeps truncation away, and the page's state "being read in" keeps the page from
//! getting a new place.

use crate::format::raw::*;
use crate::format::units::{BlockAddr, Nid};
use crate::inode::{NodeId, fi};
use crate::volume::sbi::F2fs;
use tidegate_vfs::{Error, ErrorKind, Inode, Result};

/// The way to an address: word indices in the nodes on the way, and the nodes' offsets in the file.
struct Path {
    /// Node ids on the way: for each, the index of the id's word in the node before, and the node's offset.
    steps: [(usize, u32); 3],
    depth: usize,
    /// Index of the address in the array of the last node.
    slot: usize,
}

const N: u64 = NIDS_PER_BLOCK as u64;
const A: u64 = ADDRS_PER_BLOCK as u64;

/// The way to page `index` of a file whose inode holds `in_inode` addresses; `None` past the largest page.
fn path(index: u64, in_inode: u64) -> Option<Path> {
    let nid_word = |i: usize| I_NID_OFFSET / 4 + i;
    let make = |steps: &[(usize, u64)], slot: u64| {
        let mut s = [(0, 0); 3];
        for (to, from) in s.iter_mut().zip(steps) {
            *to = (from.0, from.1 as u32);
        }
        Some(Path { steps: s, depth: steps.len(), slot: slot as usize })
    };
    if index < in_inode {
        return make(&[], index);
    }
    let mut i = index - in_inode;
    for k in 0..2 {
        if i < A {
            return make(&[(nid_word(k), 1 + k as u64)], i);
        }
        i -= A;
    }
    for k in 0..2u64 {
        if i < A * N {
            let ofs = 3 + k * (N + 1);
            let child = i / A;
            return make(&[(nid_word(2 + k as usize), ofs), (child as usize, ofs + 1 + child)], i % A);
        }
        i -= A * N;
    }
    if i < A * N * N {
        let ofs = 5 + 2 * N;
        let (outer, inner) = (i / (A * N), i / A % N);
        let mid = ofs + 1 + outer * (N + 1);
        return make(&[(nid_word(4), ofs), (outer as usize, mid), (inner as usize, mid + 1 + inner)], i % A);
    }
    None
}

/// Addresses in one node, beginning with a given page's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dnode {
    pub nid: Nid,
    /// Index of the first address in the node's array; summaries name it.
    pub slot: usize,
    /// Word of the block where the array begins.
    base: usize,
    /// Addresses from `slot` to the end of the array.
    pub room: usize,
}

impl Dnode {
    /// All addresses of direct node `nid`.
    pub(crate) fn whole(nid: Nid) -> Dnode {
        Dnode { nid, slot: 0, base: 0, room: ADDRS_PER_BLOCK }
    }

    /// The addresses from the `i`-th on.
    pub(crate) fn from(self, i: usize) -> Dnode {
        Dnode { slot: self.slot + i, room: self.room - i, ..self }
    }

    /// The `i`-th address alone.
    pub(crate) fn nth(self, i: usize) -> Dnode {
        Dnode { slot: self.slot + i, room: 1, ..self }
    }
}

/// The place of a page's address.
pub(crate) enum Found {
    At(Dnode),
    /// There is no node for the page: this many pages, beginning with it, are a hole.
    Hole(u64),
}

impl F2fs {
    /// Finds the node that holds the address of page `index`.
    pub(crate) fn find_dnode(&self, inode: &Inode, index: u64) -> Result<Found> {
        let p = self.path_of(inode, index)?;
        let mut nid = inode.nid();
        for (depth, (w, _)) in p.steps[..p.depth].iter().enumerate() {
            let page = self.node_of(nid, inode.ino.0)?;
            nid = Nid(word(page.bytes(), *w));
            if nid.0 == 0 {
                return Ok(Found::Hole(hole_from(&p, depth, index)));
            }
            self.check_nid(nid, inode.ino.0)?;
        }
        Ok(Found::At(self.dnode_at(inode, nid, &p)))
    }

    /// Finds the node that holds the address of page `index`, and makes the nodes that are missing. The
    /// caller holds `i_dnode` and `cp_rwsem`.
    ///
    /// # Errors
    /// `NoSpace`; nodes made so far stay, empty.
    pub(crate) fn make_dnode(&self, inode: &Inode, index: u64) -> Result<Dnode> {
        let p = self.path_of(inode, index)?;
        let ino = inode.nid().0;
        let mut nid = Nid(ino);
        for (w, ofs) in &p.steps[..p.depth] {
            let page = self.node_of(nid, inode.ino.0)?;
            let mut next = Nid(word(page.bytes(), *w));
            if next.0 == 0 {
                next = self.new_node(Some(ino), *ofs, !inode.is_dir(), |_| ())?;
                self.guard(self.modify_node(nid, |b| set_word(b, *w, next.0)))?;
                inode.attr().blocks += 8;
            } else {
                self.check_nid(next, inode.ino.0)?;
            }
            nid = next;
        }
        Ok(self.dnode_at(inode, nid, &p))
    }

    fn path_of(&self, inode: &Inode, index: u64) -> Result<Path> {
        path(index, fi(inode).addrs_per_inode() as u64)
            .ok_or_else(|| Error::new(ErrorKind::FileTooBig, format!("page {index}")).in_inode(inode.ino))
    }

    fn dnode_at(&self, inode: &Inode, nid: Nid, p: &Path) -> Dnode {
        let f = fi(inode);
        let (base, end) =
            if p.depth == 0 { (f.addr_base(), f.addrs_per_inode()) } else { (0, ADDRS_PER_BLOCK) };
        Dnode { nid, slot: p.slot, base, room: end - p.slot }
    }

    /// The addresses of `n` pages, beginning with the page of `d`.
    pub(crate) fn addresses(&self, inode: &Inode, d: &Dnode, n: usize) -> Result<Vec<BlockAddr>> {
        let page = self.node_of(d.nid, inode.ino.0)?;
        let n = n.min(d.room);
        Ok((0..n).map(|i| BlockAddr(word(page.bytes(), d.base + d.slot + i))).collect())
    }

    /// Sets the addresses of pages, beginning with the page of `d`; `f` gets each index and old address and
    /// returns the new address. All of them are one change of the node.
    pub(crate) fn update_addresses(
        &self,
        inode: &Inode,
        d: &Dnode,
        n: usize,
        mut f: impl FnMut(usize, BlockAddr) -> BlockAddr,
    ) -> Result<()> {
        let n = n.min(d.room);
        self.modify_node(d.nid, |page| {
            // The note is made with the page locked: an fsync that does not see the note does not see the
            // change either.
            if d.nid.0 as u64 != inode.ino.0 {
                fi(inode).fsync.dnode_changed(d.nid);
            } else {
                fi(inode).fsync.inode_changed();
            }
            for i in 0..n {
                let w = d.base + d.slot + i;
                let old = BlockAddr(word(page, w));
                let new = f(i, old);
                if new != old {
                    set_word(page, w, new.0);
                }
            }
        })
    }

    /// Whether the inode has nodes for addresses beside the addresses in itself.
    pub(crate) fn has_dnodes(&self, inode: &Inode) -> Result<bool> {
        let page = self.node_of(inode.nid(), inode.ino.0)?;
        Ok(RawInodeBlock::nids(page.bytes()).iter().any(|nid| nid.get() != 0))
    }
}

/// The first page whose address is in the node at offset `ofs` of a file whose inode holds `in_inode`
/// addresses; `None` when that node holds none.
pub(crate) fn start_of_node(ofs: u32, in_inode: u64) -> Option<u64> {
    let (n, ofs) = (N, ofs as u64);
    let after = |nodes: u64| Some(in_inode + nodes * A);
    if ofs == 0 {
        Some(0)
    } else if !crate::node::is_dnode(ofs as u32) {
        None
    } else if ofs < 3 {
        after(ofs - 1)
    } else if ofs < 4 + n {
        after(2 + ofs - 4)
    } else if ofs < 5 + 2 * n {
        after(2 + ofs - 5)
    } else {
        let rel = ofs - (6 + 2 * n);
        let (outer, inner) = (rel / (n + 1), rel % (n + 1) - 1);
        (outer < n).then(|| in_inode + (2 + 2 * n + outer * n + inner) * A)
    }
}

/// The number of pages from `index` on that have no node when the id at step `depth` of their way is missing.
fn hole_from(p: &Path, depth: usize, index: u64) -> u64 {
    // The number of pages below the missing node, and the position of this page among them.
    let mut span = A;
    let mut at = p.slot as u64;
    for d in (depth + 1..p.depth).rev() {
        at += p.steps[d].0 as u64 * span;
        span *= N;
    }
    debug_assert!(at < span && index >= at);
    span - at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_the_format() {
        let p = |i| path(i, 873).map(|p| (p.steps[..p.depth].to_vec(), p.slot));
        let w = I_NID_OFFSET / 4;
        assert_eq!(p(872), Some((vec![], 872)));
        assert_eq!(p(873), Some((vec![(w, 1)], 0)));
        assert_eq!(p(873 + 1018), Some((vec![(w + 1, 2)], 0)));
        assert_eq!(p(873 + 2036), Some((vec![(w + 2, 3), (0, 4)], 0)));
        assert_eq!(p(873 + 2036 + A * N), Some((vec![(w + 3, 4 + 1018), (0, 5 + 1018)], 0)));
        let dbl = 873 + 2036 + 2 * A * N;
        assert_eq!(p(dbl), Some((vec![(w + 4, 5 + 2036), (0, 6 + 2036), (0, 7 + 2036)], 0)));
        assert_eq!(p(dbl + A * N).map(|x| x.0[1]), Some((1, 6 + 2036 + 1019)));
        assert!(p(dbl + A * N * N).is_none());
    }

    #[test]
    fn nodes_know_their_first_page() {
        let dbl = 2036 + 2 * A * N;
        for index in [0, 1017, 1018, 2036, 2036 + A * 5, 2036 + A * N, dbl, dbl + A * N * 7 + A * 3] {
            let p = path(873 + index, 873).unwrap();
            let ofs = p.steps[p.depth - 1].1;
            assert_eq!(start_of_node(ofs, 873), Some(873 + index - p.slot as u64));
        }
        assert_eq!(start_of_node(0, 873), Some(0));
        assert_eq!((start_of_node(3, 873), start_of_node(XATTR_NODE_OFFSET, 873)), (None, None));
    }
}
