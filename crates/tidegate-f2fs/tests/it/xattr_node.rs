//! An xattr node that reached the log ahead of its inode: the flusher came between the two steps of setxattr,
//! and wrote the new node together with the old inode. The fsync that follows writes only the inode.

use crate::common::volume;
use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_f2fs::F2fsOptions;
use tidegate_f2fs::open::{load_checkpoint, load_superblock};
use tidegate_f2fs::raw::*;
use tidegate_vfs::*;
use volume::{Image, fsck, mount_with, template};

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const FLAG: usize = FOOTER_OFFSET + 8;
const NEXT: usize = FOOTER_OFFSET + 20;
const XATTR_NID: usize = std::mem::offset_of!(RawInode, i_xattr_nid);

fn open(device: Arc<MemoryDevice>) -> Arc<Vfs> {
    let mut options = F2fsOptions::default();
    options.parse("background_gc=off,nodiscard").unwrap();
    let mount = MountOptions { no_periodic_writeback: true, ..Default::default() };
    mount_with(device, MemoryLimits::default(), options, mount).unwrap().1
}

fn word(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(block[at..at + 4].try_into().unwrap())
}

/// The node blocks since the checkpoint, in the log's order.
fn chain(device: &Arc<MemoryDevice>) -> Vec<(u64, Vec<u8>)> {
    let queue = RequestQueue::new(device.clone(), QueueLimits::default());
    let sb = load_superblock(&queue).unwrap();
    let cp = load_checkpoint(&queue, &sb).unwrap().raw;
    let (segno, off) = (cp.cur_node_segno[1].get(), u32::from(cp.cur_node_blkoff[1].get()));
    let mut at = sb.main_blkaddr + segno * BLOCKS_PER_SEG + off;
    let mut out: Vec<(u64, Vec<u8>)> = Vec::new();
    loop {
        let mut b = vec![0; BLOCK_SIZE];
        let pos = u64::from(at) * BLOCK_SIZE as u64;
        device.read_at(pos, &mut b);
        if out.first().is_some_and(|f| f.1[FOOTER_OFFSET + 12..NEXT] != b[FOOTER_OFFSET + 12..NEXT]) {
            return out;
        }
        at = word(&b, NEXT);
        out.push((pos, b));
    }
}

/// A file that was fsynced, then got an attribute too long for its inode and was fsynced again.
fn crashed() -> Arc<MemoryDevice> {
    let device = template(64, "").device();
    let v = open(device.clone());
    let f = v.open_path(ROOT, b"/f", RW | OpenFlags::CREATE, 0o644).unwrap();
    v.sync().unwrap();
    v.setattr(ROOT, f.inode(), &SetAttr { mode: Some(0o600), ..Default::default() }).unwrap();
    f.fsync(false).unwrap();
    v.setxattr(ROOT, f.inode(), b"user.a", Some(&[7; 3000]), XattrFlags::empty()).unwrap();
    f.fsync(false).unwrap();
    let cut = Image::of(&device).device();
    drop(f);
    v.unmount().unwrap();
    cut
}

#[test]
fn an_xattr_node_ahead_of_its_inode_comes_back() {
    if ["mkfs.f2fs", "fsck.f2fs"].iter().any(|o| tidegate_testing::oracle::skip_or_fail(o)) {
        return;
    }
    let device = crashed();
    let nodes = chain(&device);
    let [(first, old), (second, xattrs), (_, new)] = &nodes[..] else { panic!("{} nodes", nodes.len()) };
    assert_eq!(word(xattrs, FLAG) >> OFFSET_BIT_SHIFT, XATTR_NODE_OFFSET);
    assert_eq!(word(old, XATTR_NID), 0);
    assert_eq!(word(new, XATTR_NID), word(xattrs, FOOTER_OFFSET));
    // The order is reversed, and the old inode is as the flusher writes it: without the mark.
    let (mut ahead, mut behind) = (xattrs.clone(), old.clone());
    ahead[NEXT..NEXT + 4].copy_from_slice(&old[NEXT..NEXT + 4]);
    behind[NEXT..NEXT + 4].copy_from_slice(&xattrs[NEXT..NEXT + 4]);
    let unmarked = word(old, FLAG) & !(FSYNC_BIT_MASK | DENT_BIT_MASK);
    behind[FLAG..FLAG + 4].copy_from_slice(&unmarked.to_le_bytes());
    device.write_at(*first, &ahead);
    device.write_at(*second, &behind);

    let v = open(device.clone());
    let inode = v.resolve(ROOT, b"/f", true).unwrap();
    assert_eq!(v.getxattr(ROOT, &inode, b"user.a").unwrap(), [7; 3000]);
    drop(inode);
    v.unmount().unwrap();
    fsck(&device).unwrap();
}
