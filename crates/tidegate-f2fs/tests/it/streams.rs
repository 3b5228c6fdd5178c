//! Several streams of data: what goes to each, and what they leave, after unmount and after a power cut.

use crate::common::mounted::Mounted;
use crate::common::tree::assert_same;
use crate::common::tree::describe_image;
use crate::common::volume::{Image, fsck, smallest};
use crate::kernel::{kernel_reads, lacking};
use std::ops::Range;
use tidegate_f2fs::F2fsOptions;
use tidegate_f2fs::info::VolumeInfo;
use tidegate_f2fs::raw::Features;
use tidegate_testing::temp::TempDir;
use tidegate_vfs::{ErrorKind, FallocateFlags, VolumeOps};

const PAGE: usize = 4096;

fn bytes(file: usize, round: usize) -> Vec<u8> {
    (0..24 * PAGE).map(|i| (i / 7 + file * 31 + round * 101) as u8).collect()
}

fn info(v: &Mounted) -> VolumeInfo {
    v.fs.info().unwrap()
}

fn count(v: &Mounted, what: &str) -> u64 {
    VolumeOps::stats(&*v.fs).own[what]
}

fn write(v: &Mounted, files: Range<usize>, round: usize) {
    for n in files {
        let f = v.file(&format!("/f{n}"));
        f.write_at(0, &bytes(n, round)).unwrap();
        f.fsync(false).unwrap();
    }
}

fn holds(v: &Mounted, files: Range<usize>, round: usize) {
    for n in files {
        assert!(v.read(&format!("/f{n}")) == bytes(n, round), "file {n}");
    }
}

/// Whether checkpoints were made before the power cut or not, each stream's segment is one like others.
#[test]
fn streams_leave_ordinary_segments() {
    for policy in ["srr", "spf"] {
        for streams in [1, 2, 4, 11] {
            let v = Mounted::new(128, "", &format!("warm_streams={streams},stream_policy={policy}"));
            write(&v, 0..12, 0);
            let now = info(&v);
            assert_eq!((now.streams.len(), now.by_log[1].1), (streams as usize - 1, streams), "{policy}");
            v.vfs.sync().unwrap();
            // As it is now, with nothing to recover: owners of blocks are looked for in the SSA alone.
            fsck(&v.device).unwrap();
            write(&v, 6..12, 1);
            v.fs.trim(0..u64::MAX, 0).unwrap();
            let again = v.after_crash();
            holds(&again, 0..6, 0);
            holds(&again, 6..12, 1);
            assert!(info(&again).streams.is_empty());
            again.finish();
            holds(&v, 6..12, 1);
            write(&v, 0..3, 2);
            // Fewer from now on: the next checkpoint closes what is too much.
            VolumeOps::remount(&*v.fs, "warm_data_streams=1").unwrap();
            v.vfs.sync().unwrap();
            assert!(info(&v).streams.is_empty());
            let device = v.device.clone();
            v.finish();
            fsck(&device).unwrap();
        }
    }
}

/// What a file's pages written one by one, each with an fsync, become: `(pieces, segments of warm data)`.
fn pieces(options: &str, files: usize) -> (u64, u32) {
    let v = Mounted::new(128, "", options);
    let open: Vec<_> = (0..files).map(|n| v.file(&format!("/f{n}"))).collect();
    for page in 0..16 {
        for f in &open {
            f.write_at(page * PAGE as u64, &[page as u8; PAGE]).unwrap();
            f.fsync(false).unwrap();
        }
    }
    let most = open.iter().map(|f| VolumeOps::fragments(&*v.fs, f.inode()).unwrap()).max().unwrap();
    let used = info(&v).by_log[1].1;
    v.finish();
    (most, used)
}

#[test]
fn a_policy_says_what_goes_to_a_stream() {
    // One log: the pages of files written at once take turns in it.
    assert_eq!(pieces("", 1), (1, 1));
    assert_eq!(pieces("", 4), (16, 1));
    // A file that is pinned to a stream stays whole, beside three others with streams of their own.
    assert_eq!(pieces("warm_streams=4,stream_policy=spf", 1), (1, 1));
    assert_eq!(pieces("warm_streams=4,stream_policy=spf", 4), (1, 4));
    assert_eq!(pieces("warm_streams=2,stream_policy=spf", 4), (16, 2));
    // Round robin scatters even one file.
    assert_eq!(pieces("warm_streams=4,stream_policy=srr", 1), (16, 4));
}

#[test]
fn a_volume_takes_as_much_with_many_streams_as_with_one_log() {
    let filled = |options: &str| {
        let v = Mounted::new(80, "", options);
        let mut n = 0;
        let full = loop {
            let f = v.file(&format!("/f{n}"));
            match f.write_at(0, &bytes(n, 0)).and_then(|_| f.fsync(false)) {
                Ok(()) => n += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(full.kind(), ErrorKind::NoSpace);
        holds(&v.after_crash(), 0..n, 0);
        // And goes on when there is room again.
        (0..n).step_by(2).for_each(|n| v.unlink(&format!("f{n}")));
        v.unlink(&format!("f{n}"));
        write(&v, n + 1..n + n / 3, 1);
        let opened = count(&v, "streams_opened");
        v.finish();
        (n, opened)
    };
    let (one, none) = filled("background_gc=off");
    let (many, some) = filled("background_gc=off,warm_streams=11,stream_policy=srr");
    assert_eq!((one, none), (many, 0));
    assert!(some > 0);
}

/// The smallest volumes have one log of each kind, and say so.
#[test]
fn small_volumes_open_fewer_streams() {
    let mut options = F2fsOptions::default();
    options.parse("warm_streams=11,stream_policy=srr").unwrap();
    let v = Mounted::open(smallest(Features::empty()), options);
    assert_eq!(info(&v).streams_to_spare, 0);
    write(&v, 0..4, 0);
    assert!(info(&v).streams.is_empty());
    assert!(count(&v, "streams_refused") > 0);
    v.finish();
    let v = Mounted::new(64, "", "warm_streams=11,stream_policy=srr");
    let room = info(&v).streams_to_spare as usize;
    assert!((1..10).contains(&room), "{room}");
    write(&v, 0..12, 0);
    assert!((1..=room).contains(&info(&v).streams.len()));
    v.finish();
}

#[test]
fn linux_reads_and_recovers_what_streams_left() {
    if lacking() {
        return;
    }
    let v = Mounted::new(256, "", "hot_streams=2,warm_streams=8,cold_streams=3,stream_policy=srr");
    write(&v, 0..20, 0);
    let large = v.file("/large.mp4");
    v.vfs.sync().unwrap();
    // Streams that were open at the checkpoint go on in their segments, and then in fresh ones.
    large.fallocate(FallocateFlags::empty(), 0, 1 << 20).unwrap();
    for n in 0..9u64 {
        large.write_at(n << 20, &vec![n as u8; 1 << 20]).unwrap();
        large.fsync(false).unwrap();
    }
    write(&v, 10..20, 1);
    assert!(info(&v).streams.len() > 7, "{:?}", info(&v).streams);
    let killed = Image::of(&v.device);
    let device = v.device.clone();
    v.finish();
    for (what, image) in [("killed", killed), ("unmounted", Image::of(&device))] {
        let dir = TempDir::new("streams").unwrap();
        let (path, copy) = (dir.path().join("a.img"), dir.path().join("b.img"));
        image.save(&path);
        image.save(&copy);
        let theirs = kernel_reads(&path, &dir);
        assert!(theirs.entries.len() > 20);
        assert_same(what, &theirs, &describe_image(&copy));
        let again = Mounted::open(Image::load(&path).device(), Default::default());
        holds(&again, 0..10, 0);
        holds(&again, 10..20, 1);
        again.finish();
    }
}
