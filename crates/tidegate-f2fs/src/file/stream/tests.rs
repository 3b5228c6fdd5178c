//! Streams and temperatures that programs choose.

use crate::file::stream::ChosenStreams;
use crate::format::raw::advise;
use crate::inode::fi;
use crate::segment::log::{Log, LogId};
use crate::testing::{Open, new_volume_of};
use crate::{F2fsOptions, offline::mkfs::MkfsOptions};
use std::sync::atomic::Ordering::Relaxed;
use tidegate_vfs::{Cred, ErrorKind, File, OpenFlags, WriteHint};

const SEGMENT: usize = 2 << 20;

fn volume(options: &str) -> Open {
    let open = new_volume_of(256 << 20, &MkfsOptions::default());
    let mut o = F2fsOptions { deterministic: true, ..Default::default() };
    o.parse(options).unwrap();
    open.fs.turn(&o);
    open
}

fn file(open: &Open, name: &str) -> File {
    let how = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    open.vfs.open_path(&Cred::ROOT, name.as_bytes(), how, 0o644).unwrap()
}

/// The log of a page of a file, among the logs that have a segment now.
fn log_of(open: &Open, f: &File, page: u64) -> Option<LogId> {
    let blk = open.fs.map_pages(f.inode(), page, 1).unwrap().blk;
    let seg = open.fs.sit.place(blk).0;
    open.fs.cursegs.all().find(|log| open.fs.cursegs.lock(*log).segno == seg)
}

#[test]
fn a_file_goes_to_the_stream_that_was_chosen_for_it() {
    for position in ["", ",writepages=submit_locked", ",writepages=unlocked"] {
        let open = volume(&format!("warm_streams=4,stream_policy=amfs{position}"));
        let stream = |stream| Some(LogId { kind: Log::WarmData, stream });
        for (name, chosen, expected) in [("a", 0, 0), ("b", 0b1000, 3), ("c", 0b10, 1), ("d", 1, 0)] {
            let f = file(&open, name);
            f.choose_streams(chosen).unwrap();
            assert_eq!(f.chosen_streams().unwrap(), chosen);
            for n in 0..3 {
                f.write_at(n * 8 * 4096, &[7; 8 * 4096]).unwrap();
                f.fsync(false).unwrap();
                assert_eq!(log_of(&open, &f, n * 8), stream(expected), "{name}{position}");
            }
        }
        open.vfs.unmount().unwrap();
    }
}

#[test]
fn streams_that_were_chosen_take_a_segment_in_turn() {
    let chosen = ChosenStreams::default();
    chosen.bits.store(0b1010, Relaxed);
    let taken: Vec<u8> = (0..6).map(|_| chosen.next(4, 256)).collect();
    assert_eq!(taken, [1, 1, 3, 3, 1, 1]);
    assert_eq!((chosen.next(4, 2048), chosen.next(4, 1)), (3, 1));
    // There are fewer streams than when the stream was chosen.
    assert_eq!((chosen.next(2, 1), chosen.only(2)), (1, Some(1)));
    assert_eq!((chosen.next(1, 1), chosen.only(1)), (0, Some(0)));

    let open = volume("warm_streams=4,stream_policy=amfs,writepages=unlocked");
    let (other, f) = (file(&open, "other"), file(&open, "f"));
    // The other file's pages shift the log, so that `f` does not fill a segment exactly.
    other.choose_streams(0b10).unwrap();
    other.write_at(0, &[7; 32768]).unwrap();
    other.fsync(false).unwrap();
    f.choose_streams(0b1010).unwrap();
    f.write_at(0, &vec![7; 2 * SEGMENT - 8192]).unwrap();
    f.fsync(false).unwrap();
    let streams = [511, 512].map(|page| log_of(&open, &f, page).unwrap().stream);
    assert_eq!(streams, [1, 3]);
    open.vfs.unmount().unwrap();
}

#[test]
fn a_stream_that_there_is_not_is_refused() {
    let open = volume("warm_streams=2,hot_streams=3,stream_policy=amfs");
    let f = file(&open, "f");
    let e = f.choose_streams(0b100).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert_eq!(e.what(), "streams 0x4, and data of its kind has 2");
    f.set_write_hint(WriteHint::Short).unwrap();
    f.choose_streams(0b100).unwrap();
    let (root, other) = (open.vfs.root().unwrap(), Cred { uid: 7, gid: 7, groups: Vec::new() });
    let e = open.vfs.choose_streams(&other, f.inode(), 1).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::PermissionDenied);
    let e = open.vfs.choose_streams(&Cred::ROOT, &root, 1).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    let reader = open.vfs.open_path(&Cred::ROOT, b"f", OpenFlags::READ, 0).unwrap();
    assert_eq!(reader.choose_streams(1).unwrap_err().kind(), ErrorKind::BadFile);
    assert_eq!(fi(f.inode()).chosen.get(), 0b100);
    drop((f, reader));
    open.vfs.unmount().unwrap();
}

/// A stream that a file has keeps precedence over one that its program names.
#[test]
fn data_that_lives_shortly_is_hot_and_for_ever_cold() {
    let open = volume("");
    let temperatures = [
        (0, WriteHint::NotSet, Log::WarmData),
        (0, WriteHint::Short, Log::HotData),
        (0, WriteHint::Medium, Log::WarmData),
        (0, WriteHint::Long, Log::WarmData),
        (0, WriteHint::Extreme, Log::ColdData),
        (0, WriteHint::None, Log::WarmData),
        (advise::COLD, WriteHint::Short, Log::ColdData),
        (advise::HOT, WriteHint::Extreme, Log::HotData),
    ];
    let f = file(&open, "f");
    for (kept, hint, log) in temperatures {
        fi(f.inode()).advise.store(kept, Relaxed);
        f.set_write_hint(hint).unwrap();
        assert_eq!(f.inode().write_hint(), hint);
        f.write_at(0, &[7; 32768]).unwrap();
        f.truncate(0).unwrap();
        f.write_at(0, &[8; 32768]).unwrap();
        f.fsync(false).unwrap();
        assert_eq!(log_of(&open, &f, 0), Some(log.into()), "{kept} {hint:?}");
    }
    drop(f);
    open.vfs.unmount().unwrap();
}
