//! Contents that only their reader looks at: attributes, ACLs, targets of symbolic links, the root.

use crate::agree::rig::*;
use crate::common::volume::{FEATURES, Image, template};
use std::sync::Arc;
use tidegate_block::{Device, MemoryDevice};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::gate::Superblock;
use tidegate_f2fs::raw::*;
use tidegate_vfs::*;

const SIZE: usize = std::mem::offset_of!(RawInode, i_size);
const NAME: usize = std::mem::offset_of!(RawInode, i_name);
const LONG: &str = "target/that/is/long/enough";

/// A volume with attributes in inodes and in nodes, ACLs, and links of both kinds.
struct Scene {
    device: Arc<MemoryDevice>,
    sb: Superblock,
}

fn acl(perm: u8) -> Vec<u8> {
    let mut v = 2u32.to_le_bytes().to_vec();
    for (tag, id) in [(1u16, u32::MAX), (2, 1000), (4, u32::MAX), (0x10, u32::MAX), (0x20, u32::MAX)] {
        v.extend(tag.to_le_bytes());
        v.extend(u16::from(perm).to_le_bytes());
        v.extend(id.to_le_bytes());
    }
    v
}

fn scene(features: &'static str) -> Scene {
    let device = template(64, features).device();
    let v = mount(device.clone()).unwrap();
    let top = v.root().unwrap();
    let set = |inode: &Arc<Inode>, name: &[u8], value: &[u8]| {
        v.setxattr(ROOT, inode, name, Some(value), XattrFlags::empty()).unwrap()
    };
    let file = |name: &str| {
        let inode = v.create(ROOT, &top, name.as_bytes(), 0o644).unwrap();
        v.open(ROOT, &inode, RW).unwrap().write_at(0, &[5; 6000]).unwrap();
        inode
    };
    let f = file("in-inode");
    set(&f, b"user.first", b"one");
    set(&f, b"user.second", b"two");
    let f = file("in-node");
    set(&f, b"user.big", &[7; 3000]);
    set(&f, b"user.second", b"two");
    let f = file("guarded");
    set(&f, b"system.posix_acl_access", &acl(6));
    let d = v.mkdir(ROOT, &top, b"guarded-dir", 0o755).unwrap();
    set(&d, b"system.posix_acl_default", &acl(7));
    v.symlink(ROOT, &top, b"short-link", LONG.as_bytes()).unwrap();
    v.symlink(ROOT, &top, b"long-link", &LONG.repeat(150).as_bytes()[..3801]).unwrap();
    v.unmount().unwrap();
    let device = Image::of(&device).device();
    let sb = superblock(&device);
    Scene { device, sb }
}

impl Scene {
    /// Blocks of the main area for which the predicate is true.
    fn find(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<u32> {
        let end = self.sb.main_blkaddr + self.sb.main_segments * BLOCKS_PER_SEG;
        (self.sb.main_blkaddr..end).filter(|n| wanted(&block(&self.device, *n))).collect()
    }

    /// All blocks that were the inode of a file called `name`; `""` is the root.
    fn inodes(&self, name: &str) -> Vec<u32> {
        let named = |b: &[u8]| {
            let own = get32(b, FOOTER_OFFSET) == get32(b, FOOTER_OFFSET + 4);
            own && match name {
                "" => get32(b, FOOTER_OFFSET) == 3,
                n => &b[NAME..NAME + n.len()] == n.as_bytes() && b[NAME + n.len()] == 0,
            }
        };
        let found = self.find(named);
        assert!(!found.is_empty(), "no inode \"{name}\"");
        found
    }

    fn on(&self) -> Scene {
        Scene { device: copy(&self.device), sb: self.sb.clone() }
    }

    /// Changes an inode, and corrects its checksum.
    fn inode(&self, name: &str, change: impl Fn(&mut [u8])) {
        for n in self.inodes(name) {
            let mut b = block(&self.device, n);
            change(&mut b);
            sign(&self.sb, &mut b);
            set_block(&self.device, n, &b);
        }
    }

    /// Changes the blocks that contain `needle`.
    fn holding(&self, needle: &[u8], change: impl Fn(&mut [u8], usize)) {
        let at = |b: &[u8]| b.windows(needle.len()).position(|w| w == needle);
        let found = self.find(|b| at(b).is_some());
        assert!(!found.is_empty(), "nothing holds {}", needle.escape_ascii());
        for n in found {
            let mut b = block(&self.device, n);
            let place = at(&b).unwrap();
            change(&mut b, place);
            if get32(&b, FOOTER_OFFSET) == get32(&b, FOOTER_OFFSET + 4) && get32(&b, FOOTER_OFFSET) != 0 {
                sign(&self.sb, &mut b);
            }
            set_block(&self.device, n, &b);
        }
    }

    /// The first address of a symbolic link that is not inline.
    fn target(&self) -> u32 {
        let b = block(&self.device, self.inodes("long-link")[0]);
        assert_eq!(b[3] & inline::DATA, 0, "the link is inline");
        get32(&b, addrs_at(&b))
    }
}

type Damage = (&'static str, fn(&Scene));

/// The beginning of the ACL on disk, behind the entry's head: version 1, then tag and permissions.
const ACL_HEAD: [u8; 4] = [1, 0, 0, 0];

fn acl_value(s: &Scene, name: &str, change: fn(&mut [u8])) {
    s.inode(name, |b| {
        let start = I_NID_OFFSET - 4 * DEFAULT_INLINE_XATTR_ADDRS;
        let at = b[start..I_NID_OFFSET].windows(4).rposition(|w| w == ACL_HEAD);
        change(&mut b[start + at.expect("an ACL")..I_NID_OFFSET]);
    });
}

const ATTRIBUTES: &[Damage] = &[
    ("none", |_| ()),
    // The entry's head: index, length of the name, length of the value; the name follows.
    ("empty name in the inode, first", |s| s.holding(b"firstone", |b, at| b[at - 3] = 0)),
    ("empty name in the inode, last", |s| {
        s.inode("in-inode", |b| {
            let at = b.windows(9).position(|w| w == b"secondtwo").unwrap();
            b[at - 3] = 0;
        })
    }),
    ("an entry of nothing but an index", |s| {
        s.inode("in-inode", |b| {
            let at = b.windows(9).position(|w| w == b"secondtwo").unwrap();
            b[at - 4..at].copy_from_slice(&[1, 0, 0, 0]);
            b[at..at + 12].fill(0);
        })
    }),
    ("empty name across the node", |s| {
        s.inode("in-node", |b| {
            let at = b.windows(6).position(|w| w == b"big\x07\x07\x07").unwrap();
            b[at - 3] = 0;
        })
    }),
    ("an index that there is none of", |s| s.holding(b"firstone", |b, at| b[at - 4] = 99)),
    ("one name twice", |s| {
        s.inode("in-inode", |b| {
            let at = b.windows(9).position(|w| w == b"secondtwo").unwrap();
            b[at - 3] = 5;
            b[at - 2] = 4;
            b[at..at + 9].copy_from_slice(b"firstntwo");
        })
    }),
    ("access ACL of another version", |s| acl_value(s, "guarded", |v| v[0] = 7)),
    ("access ACL with a tag that there is none of", |s| acl_value(s, "guarded", |v| v[4] = 0x77)),
    ("access ACL with permissions above 7", |s| acl_value(s, "guarded", |v| v[6] = 0xff)),
    ("access ACL without its owner's entry", |s| acl_value(s, "guarded", |v| v[4] = 0x10)),
    ("access ACL that ends in an entry", |s| {
        acl_value(s, "guarded", |_| ());
        s.inode("guarded", |b| {
            let start = I_NID_OFFSET - 4 * DEFAULT_INLINE_XATTR_ADDRS;
            let at = start + b[start..I_NID_OFFSET].windows(4).rposition(|w| w == ACL_HEAD).unwrap();
            // The value's length is before it; the name is empty.
            b[at - 2] -= 3;
        });
    }),
    ("default ACL of another version", |s| acl_value(s, "guarded-dir", |v| v[0] = 7)),
    ("default ACL of zeros", |s| acl_value(s, "guarded-dir", |v| v[..28].fill(0))),
];

const LINKS: &[Damage] = &[
    ("none", |_| ()),
    ("inline: size 0", |s| s.inode("short-link", |b| put32(b, SIZE, 0))),
    ("inline: size 1 too large", |s| s.inode("short-link", |b| b[SIZE] += 1)),
    ("inline: size 5 too small", |s| s.inode("short-link", |b| b[SIZE] -= 5)),
    ("inline: size beyond the inode", |s| s.inode("short-link", |b| put32(b, SIZE, 4096))),
    ("inline: size of more than a block", |s| s.inode("short-link", |b| put32(b, SIZE, 70_000))),
    ("inline: a zero in the target", |s| s.holding(LONG.as_bytes(), |b, at| b[at + 6] = 0)),
    ("inline: a target of zeros", |s| {
        s.inode("short-link", |b| {
            let at = b.windows(LONG.len()).position(|w| w == LONG.as_bytes()).unwrap();
            b[at..at + LONG.len()].fill(0);
        })
    }),
    ("inline: no data", |s| s.inode("short-link", |b| b[3] &= !inline::DATA_EXIST)),
    ("block: size 0", |s| s.inode("long-link", |b| put32(b, SIZE, 0))),
    ("block: size 1 too large", |s| s.inode("long-link", |b| put32(b, SIZE, 3802))),
    ("block: size 5 too small", |s| s.inode("long-link", |b| put32(b, SIZE, 3796))),
    ("block: size of more than a block", |s| s.inode("long-link", |b| put32(b, SIZE, 5000))),
    ("block: size of terabytes", |s| s.inode("long-link", |b| put32(b, SIZE + 4, 1000))),
    ("block: target of zeros", |s| set_block(&s.device, s.target(), &[0; BLOCK_SIZE])),
    ("block: a zero in the target", |s| {
        let mut b = block(&s.device, s.target());
        b[100] = 0;
        set_block(&s.device, s.target(), &b);
    }),
    ("block: address 0", |s| s.inode("long-link", |b| put32(b, addrs_at(b), 0))),
    ("block: new address", |s| s.inode("long-link", |b| put32(b, addrs_at(b), u32::MAX))),
    ("block: address outside the volume", |s| s.inode("long-link", |b| put32(b, addrs_at(b), 0x0fff_0000))),
    ("block: address in the metadata", |s| s.inode("long-link", |b| put32(b, addrs_at(b), 600))),
];

const ROOTS: &[Damage] = &[
    ("a regular file", |s| mode(s, 0x81)),
    ("a link", |s| mode(s, 0xa1)),
    ("a device", |s| mode(s, 0x61)),
    ("a fifo", |s| mode(s, 0x11)),
    ("of no type", |s| mode(s, 0x01)),
];

fn mode(s: &Scene, high: u8) {
    s.inode("", |b| b[1] = high);
}

fn all(features: &'static str, damages: &[Damage]) {
    if crate::agree::skip() {
        return;
    }
    let scene = scene(features);
    let mut bad = Vec::new();
    for (name, damage) in damages {
        let s = scene.on();
        damage(&s);
        match repair_and_follow(&s.device) {
            Ok(End::Good(report, _)) => println!("{name}: {:?}, {} changes", report.outcome, report.changes),
            Ok(End::Refused(e)) => println!("{name}: refused: {e}"),
            Err(e) => bad.push(format!("{name}: {e}")),
        }
    }
    assert!(bad.is_empty(), "features \"{features}\", {} of them:\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn attributes_that_a_repair_leaves_can_be_read() {
    all("", ATTRIBUTES);
}

#[test]
fn attributes_that_a_repair_leaves_can_be_read_with_features() {
    all(FEATURES, ATTRIBUTES);
}

#[test]
fn links_that_a_repair_leaves_can_be_followed() {
    all("", LINKS);
}

#[test]
fn links_that_a_repair_leaves_can_be_followed_with_features() {
    all(FEATURES, LINKS);
}

/// Nothing can replace the root: such a volume is not opened for writing, and is repaired or refused.
#[test]
fn a_root_that_is_no_directory_is_refused() {
    if crate::agree::skip() {
        return;
    }
    let mut bad = Vec::new();
    for features in ["", FEATURES] {
        let scene = scene(features);
        for (name, damage) in ROOTS {
            let s = scene.on();
            damage(&s);
            let device: Arc<dyn Device> = copy(&s.device);
            match check(&queue(&device), CheckOptions::default()) {
                Ok(r) if r.is_clean() => bad.push(format!("{name}: check calls it clean")),
                _ => {}
            }
            let opened = caught("opening", || match mount(copy(&s.device)) {
                Err(_) => Ok(()),
                Ok(v) => {
                    let only_read = v.fs().read_only();
                    let root = v.root().map(|r| r.attr().file_type);
                    let _ = v.unmount();
                    only_read.map(drop).ok_or_else(|| format!("it opens for writing, root {root:?}"))
                }
            });
            bad.extend(opened.err().map(|e| format!("{name}: {e}")));
            bad.extend(repair_and_follow(&s.device).err().map(|e| format!("{name}: {e}")));
        }
    }
    assert!(bad.is_empty(), "{} of them:\n{}", bad.len(), bad.join("\n"));
}
