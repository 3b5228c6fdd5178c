//! The newest checkpoint has correct checksums but impossible values: that is damage and not a power cut.
//! Nothing is written over it on the word of the older checkpoint, and the messages are about the right pack.

use crate::agree::rig::*;
use crate::common::volume::{FEATURES, Image, template};
use std::sync::Arc;
use tidegate_block::{Device, MemoryDevice};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::gate::Checkpoint;
use tidegate_f2fs::open::load_checkpoint;
use tidegate_f2fs::raw::*;
use tidegate_vfs::{At, Error, ReadOnly};

macro_rules! at {
    ($name:ident) => {
        std::mem::offset_of!(RawCheckpoint, $name)
    };
}

/// The volume's bounds: segments of the main area, node ids.
struct Limits {
    segments: u32,
    nids: u32,
}

type Damage = (&'static str, fn(&mut [u8], &Limits));

const DAMAGES: &[Damage] = &[
    ("a warm node log behind the main area", |b, l| put32(b, at!(cur_node_segno) + 4, l.segments)),
    ("a hot data log far behind the main area", |b, _| put32(b, at!(cur_data_segno), 0x7fff_ffff)),
    ("two logs in a segment", |b, _| {
        let hot = get32(b, at!(cur_data_segno));
        put32(b, at!(cur_data_segno) + 4, hot);
    }),
    ("a log behind its segment", |b, _| {
        b[at!(cur_node_blkoff)..][..2].copy_from_slice(&513u16.to_le_bytes())
    }),
    ("more free segments than there are", |b, l| put32(b, at!(free_segment_count), l.segments + 1)),
    ("the largest number of free segments", |b, _| put32(b, at!(free_segment_count), u32::MAX)),
    ("no blocks for users", |b, _| b[at!(user_block_count)..][..8].fill(0)),
    ("more blocks for users than there are", |b, l| {
        let n = u64::from(l.segments) * 512 + 1;
        b[at!(user_block_count)..][..8].copy_from_slice(&n.to_le_bytes());
    }),
    ("more valid blocks than blocks for users", |b, _| {
        let user = u64::from_le_bytes(b[at!(user_block_count)..][..8].try_into().unwrap());
        b[at!(valid_block_count)..][..8].copy_from_slice(&(user + 1).to_le_bytes());
    }),
    ("more nodes than blocks", |b, l| put32(b, at!(valid_node_count), l.segments * 512)),
    ("more inodes than nodes", |b, _| put32(b, at!(valid_inode_count), 0x10_0000)),
    ("a next node id behind the last", |b, l| put32(b, at!(next_free_nid), l.nids)),
    ("no reserved segments", |b, _| put32(b, at!(rsvd_segment_count), 0)),
    ("more reserved segments than there are", |b, l| put32(b, at!(rsvd_segment_count), l.segments + 1)),
    ("no overprovision", |b, _| put32(b, at!(overprov_segment_count), 0)),
    ("more overprovision than there are segments", |b, l| {
        put32(b, at!(overprov_segment_count), l.segments + 1)
    }),
    ("no bitmap of the SIT", |b, _| put32(b, at!(sit_ver_bitmap_bytesize), 0)),
    ("a bitmap of the SIT that is too small", |b, _| put32(b, at!(sit_ver_bitmap_bytesize), 1)),
    ("a bitmap of the SIT that is too large", |b, _| add(b, at!(sit_ver_bitmap_bytesize), 64)),
    ("a bitmap of the SIT behind the block", |b, _| put32(b, at!(sit_ver_bitmap_bytesize), 0x7fff_ffff)),
    ("a bitmap of the NAT that is too small", |b, _| put32(b, at!(nat_ver_bitmap_bytesize), 1)),
    ("a bitmap of the NAT that is too large", |b, _| add(b, at!(nat_ver_bitmap_bytesize), 64)),
    ("a bitmap of the NAT of the largest size", |b, _| put32(b, at!(nat_ver_bitmap_bytesize), u32::MAX)),
    ("summaries at the head", |b, _| put32(b, at!(cp_pack_start_sum), 0)),
    ("summaries behind the tail", |b, _| put32(b, at!(cp_pack_start_sum), 600)),
];

fn add(b: &mut [u8], at: usize, n: u32) {
    let was = get32(b, at);
    put32(b, at, was + n);
}

fn newest(device: &Arc<MemoryDevice>) -> Checkpoint {
    let sb = superblock(device);
    let device: Arc<dyn Device> = device.clone();
    load_checkpoint(&queue(&device), &sb).unwrap()
}

/// A volume whose two checkpoints differ: only the newer one has `/new`.
fn scene(features: &'static str) -> Arc<MemoryDevice> {
    let device = template(64, features).device();
    let v = mount(device.clone()).unwrap();
    let put = |path: &str| {
        let f = v.open_path(ROOT, path.as_bytes(), RW | tidegate_vfs::OpenFlags::CREATE, 0o644).unwrap();
        f.write_at(0, &[9; 9000]).unwrap();
    };
    put("/old");
    v.sync().unwrap();
    put("/new");
    v.sync().unwrap();
    let cut = Image::of(&device).device();
    v.unmount().unwrap();
    cut
}

/// Changes a pack's head and tail, and corrects their checksums.
fn change(device: &MemoryDevice, cp: &Checkpoint, damage: impl Fn(&mut [u8])) {
    for n in [cp.start, cp.start + cp.raw.cp_pack_total_block_count.get() - 1] {
        let mut b = block(device, n);
        damage(&mut b);
        let at = get32(&b, at!(checksum_offset)) as usize;
        let crc = checkpoint_crc(&b, at);
        put32(&mut b, at, crc);
        set_block(device, n, &b);
    }
}

/// Faults of the volume.
fn judge(device: &Arc<MemoryDevice>, pack: u32) -> Vec<String> {
    let mut bad = Vec::new();
    let names = |e: &Error| e.places().any(|at| *at == At::Part("checkpoint pack", pack.into()));
    let opened = caught("opening", || {
        let v = match mount(copy(device)) {
            Err(e) if names(&e) => return Ok(()),
            Err(e) => return Err(format!("the error of opening does not name pack {pack}: {e}")),
            Ok(v) => v,
        };
        let new = v.root().and_then(|r| v.lookup(&r, b"new")).is_ok();
        let why = v.fs().read_only();
        let _ = v.unmount();
        match why {
            None => Err(format!("it opens for writing (/new is there: {new})")),
            Some(ReadOnly::PassedOver(e)) if names(&e) => Ok(()),
            Some(why) => Err(format!("read-only does not name pack {pack}: {why}")),
        }
    });
    bad.extend(opened.err());
    let checked = caught("check", || {
        let device: Arc<dyn Device> = copy(device);
        let text = match check(&queue(&device), CheckOptions::default()) {
            Err(e) => e.to_string(),
            Ok(r) => {
                if let Some(note) = r.notes.iter().find(|n| n.contains("the older checkpoint")) {
                    return Err(format!("check notes: {note}"));
                }
                if r.is_clean() {
                    return Err("check calls it clean".into());
                }
                r.problems.iter().map(|p| p.text.clone()).collect::<Vec<_>>().join("; ")
            }
        };
        if text.contains("checkpoint") {
            Ok(())
        } else {
            Err(format!("check does not name the checkpoint: {text}"))
        }
    });
    bad.extend(checked.err());
    bad.extend(repair_and_follow(&copy(device)).err());
    bad
}

fn all(features: &'static str) {
    if crate::agree::skip() {
        return;
    }
    let base = scene(features);
    let (cp, sb) = (newest(&base), superblock(&base));
    let limits = Limits { segments: sb.main_segments, nids: sb.max_nid };
    let mut bad = Vec::new();
    for (name, damage) in DAMAGES {
        let device = copy(&base);
        change(&device, &cp, |b| damage(b, &limits));
        bad.extend(judge(&device, cp.pack).into_iter().map(|e| format!("{name}: {e}")));
    }
    assert!(bad.is_empty(), "pack {} is the newest; {} of them:\n{}", cp.pack, bad.len(), bad.join("\n"));
}

#[test]
fn a_newest_checkpoint_that_cannot_be_is_damage() {
    all("");
}

#[test]
fn a_newest_checkpoint_that_cannot_be_is_damage_with_features() {
    all(FEATURES);
}

/// A power cut leaves a checkpoint that was not written to its end: the older one counts.
#[test]
fn a_newest_checkpoint_without_an_end_is_none() {
    if crate::agree::skip() {
        return;
    }
    let device = scene("");
    let cp = newest(&device);
    set_block(&device, cp.start + cp.raw.cp_pack_total_block_count.get() - 1, &[0; BLOCK_SIZE]);
    match repair_and_follow(&device).unwrap() {
        End::Good(_, tree) => assert!(tree.contains_key("/old") && !tree.contains_key("/new"), "{tree:?}"),
        End::Refused(e) => panic!("refused: {e}"),
    }
}

/// If both checkpoints are impossible, nothing is done.
#[test]
fn two_checkpoints_that_cannot_be_are_refused() {
    if crate::agree::skip() {
        return;
    }
    let device = scene("");
    for _ in 0..2 {
        let cp = newest(&device);
        change(&device, &cp, |b| put32(b, at!(free_segment_count), u32::MAX));
    }
    let before = Image::of(&device);
    assert!(mount(device.clone()).is_err());
    assert!(matches!(repair_and_follow(&device), Ok(End::Refused(_))));
    assert!(Image::of(&device).parts == before.parts, "it was changed");
}
