//! Several streams of data: the data that goes to each, and what the streams leave after an unmount and after
//! a power cut.

use crate::common::mounted::Mounted;
use crate::common::tree::assert_same;
use crate::common::tree::describe_image;
use crate::common::volume::{Image, fsck, smallest};
use crate::kernel::{kernel_reads, lacking};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_f2fs::F2fsOptions;
use tidegate_f2fs::info::VolumeInfo;
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::raw::Features;
use tidegate_testing::temp::TempDir;
use tidegate_vfs::{ErrorKind, FallocateFlags, File, FileSystem, VolumeOps, WritebackControl};

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

/// Each stream's segment becomes an ordinary one, whether checkpoints were made before the power cut or not.
#[test]
fn streams_leave_ordinary_segments() {
    for policy in ["srr", "spf", "auto"] {
        for streams in [1, 2, 4, 11] {
            let v = Mounted::new(128, "", &format!("warm_streams={streams},stream_policy={policy}"));
            write(&v, 0..12, 0);
            let now = info(&v);
            // Files that are written one after the other need only one log.
            let used = if policy == "auto" { 1 } else { streams };
            assert_eq!((now.streams.len(), now.by_log[1].1), (used as usize - 1, used), "{policy}");
            v.vfs.sync().unwrap();
            // With nothing to recover, owners of blocks are found only in the SSA.
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
            // There are fewer streams from now on: the next checkpoint closes the surplus.
            VolumeOps::remount(&*v.fs, "warm_data_streams=1").unwrap();
            v.vfs.sync().unwrap();
            assert!(info(&v).streams.is_empty());
            let device = v.device.clone();
            v.finish();
            fsck(&device).unwrap();
        }
    }
}

/// Writes pages one by one, each with an fsync; returns `(pieces, segments of warm data)`.
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
    // With one log, the pages of files written at once take turns in it.
    assert_eq!(pieces("", 1), (1, 1));
    assert_eq!(pieces("", 4), (16, 1));
    // A file that is pinned to a stream stays whole, beside three others with streams of their own.
    assert_eq!(pieces("warm_streams=4,stream_policy=spf", 1), (1, 1));
    assert_eq!(pieces("warm_streams=4,stream_policy=spf", 4), (1, 4));
    assert_eq!(pieces("warm_streams=2,stream_policy=spf", 4), (16, 2));
    // Files that are written beside each other leave the log that they began in, all but the last one.
    assert_eq!(pieces("warm_streams=4,stream_policy=auto", 1), (1, 1));
    assert_eq!(pieces("warm_streams=4,stream_policy=auto", 4), (2, 4));
    // Round robin scatters even one file.
    assert_eq!(pieces("warm_streams=4,stream_policy=srr", 1), (16, 4));
}

/// `auto` opens streams for writers that meet, and later writers go on in these streams.
#[test]
fn streams_follow_writers() {
    let v = Mounted::new(128, "", "warm_streams=4,stream_policy=auto");
    write(&v, 0..20, 0);
    assert!(info(&v).streams.is_empty(), "one after the other");
    let open: Vec<_> = (0..3).map(|n| v.file(&format!("/g{n}"))).collect();
    let write = |pages: Range<u64>, files: &[File]| {
        for at in pages {
            for f in files {
                f.write_at(at * PAGE as u64, &[at as u8; PAGE]).unwrap();
                f.fsync(false).unwrap();
            }
        }
    };
    write(0..8, &open);
    let streams = |v: &Mounted| info(v).streams.iter().map(|s| s.1).collect::<Vec<_>>();
    assert_eq!(streams(&v), [1, 2]);
    // The first file goes on alone. The stream of the other file stays open for the next.
    v.vfs.sync().unwrap();
    write(8..12, &open[..1]);
    v.vfs.sync().unwrap();
    assert_eq!(streams(&v), [1, 2]);
    // Two writers come back: one to its stream, the other meets a third in the log where files begin.
    write(12..20, &open);
    assert_eq!(streams(&v), [1, 2]);
    for f in &open {
        assert!(VolumeOps::fragments(&*v.fs, f.inode()).unwrap() <= 4);
    }
    v.finish();
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
        // The stream goes on when there is room again.
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

/// The smallest volumes have one log of each kind, and report that.
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

/// A new volume with sections of four segments.
fn sectioned(mib: u64, options: &str) -> Mounted {
    let device = Arc::new(MemoryDevice::new(mib << 20));
    let queue = RequestQueue::new(device.clone(), QueueLimits::default());
    mkfs(&queue, &MkfsOptions { segs_per_sec: 4, ..Default::default() }).unwrap();
    let mut o = F2fsOptions::default();
    o.parse(options).unwrap();
    Mounted::open(device, o)
}

/// The sections that streams are in, by kind and stream; no other log is in them.
fn sections(v: &Mounted) -> Vec<(u8, u32)> {
    let now = info(v);
    let of_logs = now.logs.iter().map(|l| l.1 / 4);
    let streams: Vec<(u8, u32)> = now.streams.iter().map(|s| (s.1, s.2 / 4)).collect();
    let all: Vec<u32> = of_logs.chain(streams.iter().map(|s| s.1)).collect();
    let distinct: BTreeSet<u32> = all.iter().copied().collect();
    assert_eq!(all.len(), distinct.len(), "{now:?}");
    streams
}

#[test]
fn each_stream_writes_sections_of_its_own() {
    let v = sectioned(320, "warm_streams=4,stream_policy=spf");
    let open: Vec<_> = (0..4).map(|n| v.file(&format!("/f{n}"))).collect();
    let write = |blocks: Range<u64>| {
        for at in blocks {
            for (n, f) in open.iter().enumerate() {
                f.write_at(at << 18, &vec![n as u8; 1 << 18]).unwrap();
                f.fsync(false).unwrap();
            }
        }
    };
    write(0..12);
    let before = sections(&v);
    assert_eq!(before.len(), 3);
    // After they were closed for a while, the streams go on where they were.
    VolumeOps::remount(&*v.fs, "warm_streams=1").unwrap();
    v.vfs.sync().unwrap();
    assert!(info(&v).streams.is_empty());
    VolumeOps::remount(&*v.fs, "warm_streams=4").unwrap();
    write(12..13);
    assert_eq!(sections(&v), before);
    v.finish();
    // Each file fills a section, though all were written at once.
    let v = sectioned(320, "warm_streams=4,stream_policy=spf");
    let open: Vec<_> = (0..4).map(|n| v.file(&format!("/f{n}"))).collect();
    for at in 0..32 {
        for f in &open {
            f.write_at(at << 18, &[7; 1 << 18]).unwrap();
            f.fsync(false).unwrap();
        }
    }
    let pieces = open.iter().map(|f| VolumeOps::fragments(&*v.fs, f.inode()).unwrap());
    assert_eq!(pieces.collect::<Vec<_>>(), [1; 4]);
    v.finish();
}

#[test]
fn as_many_streams_are_opened_as_sections_are_to_spare() {
    let v = sectioned(160, "warm_streams=11,stream_policy=srr");
    let room = info(&v).streams_to_spare as usize;
    assert!((1..10).contains(&room), "{room}");
    write(&v, 0..12, 0);
    assert_eq!(sections(&v).len(), room);
    assert!(count(&v, "streams_refused") > 0);
    v.finish();
}

/// Small files whose streams were refused share bios, as with one log.
#[test]
fn files_of_refused_streams_share_bios() {
    let bios = |options: &str| {
        let mut o = F2fsOptions::default();
        o.parse(options).unwrap();
        let v = Mounted::open(smallest(Features::empty()), o);
        let files: Vec<_> = (0..12).map(|n| v.file(&format!("/f{n}"))).collect();
        v.vfs.sync().unwrap();
        let before = v.fs.stats().data;
        files.iter().for_each(|f| f.write_at(0, &[7; PAGE]).map(drop).unwrap());
        v.vfs.sync().unwrap();
        let (now, refused) = (v.fs.stats().data, count(&v, "streams_refused"));
        v.finish();
        (now.blocks - before.blocks, now.bios - before.bios, refused)
    };
    let (one, many) = (bios(""), bios("warm_streams=4,stream_policy=srr"));
    assert_eq!((one.0, one.2), (12, 0));
    assert_eq!((one.0, one.1), (many.0, many.1));
    assert!(many.2 > 0);
}

/// A thread that waits for a file has those bios sent that hold pages of the file; growing bios of other logs
/// are left alone.
#[test]
fn an_fsync_sends_the_streams_of_its_file_alone() {
    let sent = |options: &str, then: &str| {
        let v = Mounted::new(128, "", options);
        let (a, b) = (v.file("/a"), v.file("/b"));
        v.vfs.sync().unwrap();
        a.write_at(0, &[7; 4 * PAGE]).unwrap();
        b.write_at(0, &[7; 4 * PAGE]).unwrap();
        let before = count(&v, "streams_sent");
        v.fs.writepages(b.inode(), &mut WritebackControl::background(u64::MAX)).unwrap();
        VolumeOps::remount(&*v.fs, then).unwrap();
        a.fsync(false).unwrap();
        let (sent, waiting) = (count(&v, "streams_sent") - before, b.inode().mapping.nr_writeback());
        b.fsync(false).unwrap();
        assert_eq!(b.inode().mapping.nr_writeback(), 0);
        let all = count(&v, "streams_sent") - before;
        v.finish();
        (sent, waiting, all)
    };
    // The bios are sent when the thread begins to wait, or at the end of its pass.
    for then in ["writepages=extent", "writepages=locked", "writepages=submit_locked"] {
        assert_eq!(sent("warm_streams=2,stream_policy=spf", then), (1, 4, 2), "{then}");
        assert_eq!(sent("warm_streams=2,stream_policy=spf,stream_flush=all", then).0, 2, "{then}");
        // In one log, the pages of both form one bio.
        assert_eq!(sent("", then).0, 1, "{then}");
    }
}

/// Streams take turns by runs also where pages are taken one by one, as Linux does.
#[test]
fn round_robin_turns_by_runs_of_blocks() {
    for position in ["extent", "unlocked", "locked", "submit_locked"] {
        let v = Mounted::new(
            128,
            "",
            &format!("warm_streams=4,stream_policy=srr,writepages={position},min_seq_blocks=0"),
        );
        let f = v.file("/f");
        for at in [0, 32, 48] {
            f.write_at(at * PAGE as u64, &[7; 16 * PAGE]).unwrap();
        }
        f.fsync(false).unwrap();
        // There are two runs.
        assert_eq!(VolumeOps::fragments(&*v.fs, f.inode()).unwrap(), 2, "{position}");
        assert_eq!(info(&v).streams.len(), 1, "{position}");
        v.finish();
    }
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

/// With more logs, a checkpoint also writes the summaries of the extra logs, and no other additional block.
#[test]
fn the_blocks_of_checkpoints_are_counted_by_area() {
    let areas = ["pack_blocks", "sit_blocks", "nat_blocks", "ssa_blocks"];
    let of = |options: &str| {
        let v = Mounted::new(128, "", options);
        write(&v, 0..4, 0);
        v.vfs.sync().unwrap();
        let s = VolumeOps::stats(&*v.fs);
        let by_area = areas.map(|a| s.own[a]);
        assert_eq!(by_area.iter().sum::<u64>(), s.log.blocks, "{options}");
        v.finish();
        by_area
    };
    let (one, four) = (of("warm_streams=1"), of("warm_streams=4,stream_policy=spf"));
    assert_eq!(four[3], one[3] + 3, "one for each extra stream: {one:?} {four:?}");
    // The journal in the pack has room for six entries of segments.
    assert_eq!((four[0], four[2], four[1] <= 1), (one[0], one[2], true), "{one:?} {four:?}");
}
