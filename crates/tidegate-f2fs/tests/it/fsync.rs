//! Fsynced content is there after a power cut: the device is copied at that moment, opened again, compared,
//! and judged by the reference checker.

use crate::common::mounted::{Mounted, ROOT, RW};
use crate::common::volume::{FEATURES, Image};
use std::sync::Arc;
use tidegate_f2fs::F2fsOptions;
use tidegate_rt::thread;
use tidegate_vfs::*;

const PAGE: usize = 4096;

/// Cuts the power now; the volume that opens is compared and judged, twice: recovery must change nothing more
/// the second time.
fn crash(rig: &Mounted, look: impl Fn(&Mounted)) {
    let up = rig.after_crash();
    look(&up);
    let again = up.after_crash();
    look(&again);
    again.finish();
    up.finish();
}

fn lacking() -> bool {
    ["mkfs.f2fs", "fsck.f2fs"].iter().any(|o| tidegate_testing::oracle::skip_or_fail(o))
}

fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 4096 * 7 + seed * 131) as u8).collect()
}

#[test]
fn a_new_file_comes_back_with_its_name() {
    if lacking() {
        return;
    }
    for features in ["", FEATURES] {
        let rig = Mounted::new(128, features, "");
        let before = rig.fs.stats().commits;
        for (i, len) in [0, 1, 3000, 5000, PAGE * 40 + 17, PAGE * 900].into_iter().enumerate() {
            let f = rig.file(&format!("/new{i}"));
            f.write_at(0, &bytes(i, len)).unwrap();
            f.fsync(i % 2 == 1).unwrap();
        }
        let unsynced = rig.file("/unsynced");
        unsynced.write_at(0, b"nothing was promised").unwrap();
        assert_eq!(rig.fs.stats().commits, before, "fsync wrote a checkpoint");
        crash(&rig, |up| {
            for (i, len) in [0, 1, 3000, 5000, PAGE * 40 + 17, PAGE * 900].into_iter().enumerate() {
                assert_eq!(up.read(&format!("/new{i}")), bytes(i, len), "new{i}");
            }
            assert!(!up.exists("/unsynced"));
        });
        assert_eq!(rig.after_crash().fs.recovered(), 6);
        rig.finish();
    }
}

#[test]
fn an_old_file_comes_back_as_it_was_fsynced() {
    if lacking() {
        return;
    }
    let rig = Mounted::new(128, FEATURES, "");
    let f = rig.file("/old");
    f.write_at(0, &bytes(1, PAGE * 3000)).unwrap();
    rig.vfs.sync().unwrap();
    let mut want = bytes(1, PAGE * 3000);
    // The file is overwritten here and there, gets a hole, and grows past an indirect node.
    for (at, len) in [(100, 50), (PAGE * 900, PAGE * 20), (PAGE * 2950 + 5, PAGE * 60)] {
        let new = bytes(at, len);
        f.write_at(at as u64, &new).unwrap();
        want.resize(want.len().max(at + len), 0);
        want[at..at + len].copy_from_slice(&new);
    }
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    f.fallocate(hole, (PAGE * 50) as u64, (PAGE * 1000) as u64).unwrap();
    want[PAGE * 50..PAGE * 1050].fill(0);
    f.fsync(false).unwrap();
    f.write_at(0, &bytes(9, PAGE * 30)).unwrap(); // not promised
    crash(&rig, |up| {
        let got = up.read("/old");
        assert_eq!(got.len(), want.len());
        assert!(got[PAGE * 30..] == want[PAGE * 30..]);
    });
    rig.finish();
}

#[test]
fn a_file_that_was_cut_and_grew_again_has_no_old_bytes() {
    if lacking() {
        return;
    }
    let rig = Mounted::new(128, FEATURES, "");
    let f = rig.file("/cut");
    f.write_at(0, &bytes(1, PAGE * 3500)).unwrap();
    rig.vfs.sync().unwrap();
    f.truncate(0).unwrap();
    f.fsync(false).unwrap();
    crash(&rig, |up| assert_eq!(up.read("/cut"), b""));
    f.truncate((PAGE * 3500) as u64).unwrap();
    f.write_at((PAGE * 3400) as u64, b"end").unwrap();
    f.fsync(false).unwrap();
    crash(&rig, |up| {
        let got = up.read("/cut");
        assert_eq!(got.len(), PAGE * 3500);
        assert_eq!(&got[PAGE * 3400..PAGE * 3400 + 3], b"end");
        assert!(got[..PAGE * 3400].iter().all(|&b| b == 0));
    });
    // While the file fits the inode's own addresses, no checkpoint is needed.
    let g = rig.file("/small");
    g.write_at(0, &bytes(2, PAGE * 20)).unwrap();
    rig.vfs.sync().unwrap();
    let before = rig.fs.stats().commits;
    g.truncate(PAGE as u64 * 3 + 1).unwrap();
    g.truncate(PAGE as u64 * 30).unwrap();
    g.fsync(true).unwrap();
    assert_eq!(rig.fs.stats().commits, before);
    crash(&rig, |up| {
        let mut want = bytes(2, PAGE * 3 + 1);
        want.resize(PAGE * 30, 0);
        assert!(up.read("/small") == want);
    });
    rig.finish();
}

#[test]
fn inline_data_becomes_blocks_and_attributes_follow() {
    if lacking() {
        return;
    }
    let rig = Mounted::new(128, FEATURES, "");
    let f = rig.file("/inline");
    f.write_at(0, b"short").unwrap();
    let inode = rig.vfs.resolve(ROOT, b"/inline", true).unwrap();
    rig.vfs.setxattr(ROOT, &inode, b"user.gone", Some(&[1; 2000]), XattrFlags::empty()).unwrap();
    rig.vfs.sync().unwrap();
    f.write_at(5, &bytes(3, 9000)).unwrap();
    rig.vfs.setxattr(ROOT, &inode, b"user.gone", None, XattrFlags::empty()).unwrap();
    rig.vfs.setxattr(ROOT, &inode, b"user.small", Some(b"v"), XattrFlags::empty()).unwrap();
    let mode = SetAttr { mode: Some(0o4711), ..Default::default() };
    rig.vfs.setattr(ROOT, &inode, &mode).unwrap();
    f.fsync(false).unwrap();
    let look = |up: &Mounted| {
        let i = up.vfs.resolve(ROOT, b"/inline", true).unwrap();
        assert_eq!(up.read("/inline"), [&b"short"[..], &bytes(3, 9000)].concat());
        assert_eq!(i.attr().mode, 0o4711);
        assert_eq!(up.vfs.listxattr(ROOT, &i).unwrap(), [b"user.small".to_vec()]);
    };
    crash(&rig, look);
    // The file also gets an xattr node that no checkpoint has.
    rig.vfs.setxattr(ROOT, &inode, b"user.long", Some(&[7; 3000]), XattrFlags::empty()).unwrap();
    f.fsync(false).unwrap();
    crash(&rig, |up| {
        let i = up.vfs.resolve(ROOT, b"/inline", true).unwrap();
        assert_eq!(up.vfs.getxattr(ROOT, &i, b"user.long").unwrap(), [7; 3000]);
    });
    rig.finish();
}

/// The node of the pages is new, the inode is not.
#[test]
fn a_new_node_of_an_old_file_comes_back() {
    if lacking() {
        return;
    }
    let rig = Mounted::new(128, "", "");
    rig.vfs.mkdir(ROOT, &rig.root(), b"e", 0o755).unwrap();
    let f = rig.file("/e/c");
    f.fsync(false).unwrap();
    f.write_at(3_754_317, &bytes(5, PAGE)).unwrap();
    f.fsync(false).unwrap();
    crash(&rig, |up| {
        let got = up.read("/e/c");
        assert!(got[..3_754_317].iter().all(|&b| b == 0));
        assert!(got[3_754_317..] == bytes(5, PAGE));
    });
    rig.finish();
}

#[test]
fn names_are_recovered_or_left_alone() {
    if lacking() {
        return;
    }
    let rig = Mounted::new(128, "", "");
    rig.file("/kept").write_at(0, b"kept").unwrap();
    rig.file("/moved").write_at(0, b"moved").unwrap();
    rig.file("/gone").write_at(0, b"gone").unwrap();
    rig.vfs.sync().unwrap();
    // A removed file had its name before.
    rig.vfs.unlink(ROOT, &rig.root(), b"gone").unwrap();
    let f = rig.file("/gone");
    f.write_at(0, b"another").unwrap();
    f.fsync(false).unwrap();
    crash(&rig, |up| assert_eq!(up.read("/gone"), b"another"));
    // A file that lives on elsewhere had its name before.
    rig.rename("moved", "elsewhere");
    let f = rig.file("/moved");
    f.write_at(0, b"new").unwrap();
    f.fsync(false).unwrap();
    crash(&rig, |up| {
        assert_eq!(up.read("/moved"), b"new");
        assert_eq!(up.read("/elsewhere"), b"moved");
    });
    // Programs usually replace a file in this way.
    let before = rig.fs.stats().commits;
    let f = rig.file("/kept.tmp");
    f.write_at(0, b"replaced").unwrap();
    f.fsync(false).unwrap();
    assert_eq!(rig.fs.stats().commits, before);
    rig.rename("kept.tmp", "kept");
    crash(&rig, |up| {
        let now = up.read("/kept");
        assert!(now == b"kept" && up.read("/kept.tmp") == b"replaced" || now == b"replaced");
    });
    f.fsync(false).unwrap();
    crash(&rig, |up| {
        assert_eq!(up.read("/kept"), b"replaced");
        assert!(!up.exists("/kept.tmp"));
    });
    // The file is in a directory that no checkpoint has.
    rig.vfs.mkdir(ROOT, &rig.root(), b"dir", 0o755).unwrap();
    rig.file("/dir/x").fsync(false).unwrap();
    crash(&rig, |up| assert!(up.exists("/dir/x")));
    rig.finish();
}

#[test]
fn what_is_there_already_costs_nothing() {
    if lacking() {
        return;
    }
    let rig = Mounted::new(128, "", "");
    let f = rig.file("/f");
    f.write_at(0, &bytes(0, PAGE * 4)).unwrap();
    f.fsync(false).unwrap();
    let written = rig.fs.stats();
    f.fsync(false).unwrap();
    f.fsync(true).unwrap();
    let now = rig.fs.stats();
    assert_eq!((now.metadata.blocks, now.commits), (written.metadata.blocks, written.commits));
    // An overwrite in place needs a flush but no node.
    let flushes = rig.fs.queue_stats().flushes;
    f.write_at(PAGE as u64, &[9; PAGE]).unwrap();
    f.fsync(true).unwrap();
    assert_eq!(rig.fs.stats().metadata.blocks, written.metadata.blocks);
    assert_eq!(rig.fs.queue_stats().flushes, flushes + 1);
    crash(&rig, |up| assert_eq!(up.read("/f")[PAGE..PAGE * 2], [9; PAGE]));
    rig.finish();
}

#[test]
fn many_files_in_turn_make_one_chain() {
    if lacking() {
        return;
    }
    let rig = Mounted::new(128, FEATURES, "");
    let files: Vec<File> = (0..30).map(|i| rig.file(&format!("/f{i}"))).collect();
    for round in 0..40usize {
        for (i, f) in files.iter().enumerate() {
            f.write_at((round * 5000) as u64, &bytes(i + round, 5000)).unwrap();
            f.fsync(round % 3 == 0).unwrap();
        }
    }
    let up = rig.after_crash();
    for i in 0..30 {
        let want: Vec<u8> = (0..40).flat_map(|round| bytes(i + round, 5000)).collect();
        assert!(up.read(&format!("/f{i}")) == want, "f{i}");
    }
    assert_eq!(up.fs.recovered(), 30);
    up.finish();
    rig.finish();
}

#[test]
fn recovery_can_be_declined() {
    if lacking() {
        return;
    }
    let rig = Mounted::new(128, "", "");
    rig.file("/f").fsync(false).unwrap();
    let options = |list: &str| {
        let mut o = F2fsOptions::default();
        o.parse(list).unwrap();
        o
    };
    let seen = |list: &str| Mounted::open(Image::of(&rig.device).device(), options(list)).exists("/f");
    assert!(seen(""));
    assert!(seen("ro"), "read-only, it is recovered in memory");
    assert!(!seen("norecovery"));
    assert!(!seen("disable_roll_forward"));
    rig.finish();
}

/// Threads fsync one file at the same time, beside the flusher: each finds its own bytes durable, whichever
/// thread wrote the nodes that lead to them.
#[test]
fn who_shares_a_file_shares_no_promise() {
    if lacking() {
        return;
    }
    let rig = Mounted::new(128, FEATURES, "");
    let len = PAGE * 1200;
    rig.file("/shared").write_at(0, &bytes(0, len)).unwrap();
    rig.vfs.sync().unwrap();
    let mut want = bytes(0, len);
    for round in 1..=30usize {
        let spots: Vec<usize> = (0..4).map(|i| (i * 331 + round * 17) % 1180 * PAGE).collect();
        let writer = |at: usize| {
            let (vfs, data) = (rig.vfs.clone(), bytes(round * 7 + at, PAGE * 10));
            let body = move || {
                let f = vfs.open_path(ROOT, b"/shared", RW, 0).unwrap();
                f.write_at(at as u64, &data).unwrap();
                f.fsync((at / PAGE).is_multiple_of(2)).unwrap();
            };
            thread::spawn("writer", body).unwrap()
        };
        let threads: Vec<_> = spots.iter().map(|at| writer(*at)).collect();
        threads.into_iter().for_each(|t| t.join());
        for at in &spots {
            want[*at..*at + PAGE * 10].copy_from_slice(&bytes(round * 7 + at, PAGE * 10));
        }
        let up = rig.after_crash();
        assert!(up.read("/shared") == want, "round {round}");
        drop(up.vfs);
    }
    rig.after_crash().finish();
    rig.finish();
}

#[test]
fn bytes_that_were_cut_off_do_not_come_back() {
    if lacking() {
        return;
    }
    type Grow = fn(&File) -> Result<()>;
    let ways: [(&str, Grow); 3] = [
        ("truncate", |f| f.truncate(8192)),
        ("write", |f| f.write_at(20_000, b"far").map(drop)),
        ("fallocate", |f| f.fallocate(FallocateFlags::empty(), 6000, 3000)),
    ];
    for (way, grow) in ways {
        let rig = Mounted::new(128, FEATURES, "");
        let f = rig.file("/f");
        f.write_at(0, &[b'A'; 2 * PAGE]).unwrap();
        f.fsync(false).unwrap();
        f.truncate(5000).unwrap();
        // The size becomes durable, but not the zeros behind it.
        rig.fs.write_checkpoint(true).unwrap();
        let up = rig.after_crash();
        grow(&up.file("/f")).unwrap();
        up.vfs.sync().unwrap();
        crash(&up, |up| {
            let found = up.read("/f");
            assert!(found[..5000].iter().all(|b| *b == b'A'), "{way}");
            assert!(found[5000..8192].iter().all(|b| *b == 0), "{way}");
        });
        rig.finish();
    }
}

#[test]
fn a_volume_that_cannot_be_recovered_says_so() {
    /// Offsets of the superblocks' feature words, and the bit of "quota".
    const FEATURE: [u64; 2] = [1024 + 2180, 4096 + 1024 + 2180];
    const QUOTA: u32 = 0x80;
    let rig = Mounted::new(128, "", "");
    for (name, lost) in [(None, false), (Some("/fsynced"), true)] {
        name.iter().for_each(|n| rig.file(n).fsync(false).unwrap());
        let device = Arc::new(rig.device.copy());
        for at in FEATURE {
            let mut word = [0; 4];
            device.read_at(at, &mut word);
            device.write_at(at, &(u32::from_le_bytes(word) | QUOTA).to_le_bytes());
        }
        let why = FileSystem::read_only(&*Mounted::open(device, F2fsOptions::default()).fs).unwrap();
        // A checkpoint served the fsync of the rig's first file.
        let (why, without) = match why {
            ReadOnly::Without(why, Unseen::Fsynced) => (*why, true),
            why => (why, false),
        };
        assert_eq!(without, lost, "{why}");
        assert!(matches!(&why, ReadOnly::Features { features, .. } if features.contains("quota")), "{why}");
    }
    rig.finish();
}
