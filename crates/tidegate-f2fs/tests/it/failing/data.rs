//! File data that cannot be written: the threads that get the error, the place where the data goes instead,
//! and the writes that may vouch for it.

use crate::common::watch::within;
use crate::failing::load::Rng;
use crate::failing::rig::*;
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::*;
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::*;

static SECTORS: LockClass = LockClass::new("test->sectors", 999);

const IO: Fault = Fault::Fail(Errno::IO);

/// Writes version `v` of the first `pages` pages.
fn write(f: &File, id: u64, pages: u64, v: u32) {
    let bytes: Vec<u8> = (0..pages).flat_map(|p| page(id, p, v)).collect();
    f.write_at(0, &bytes).unwrap();
}

/// A volume with one file of `pages` pages, version 1, durable.
fn with_file(pages: u64) -> (FailingVolume, File) {
    let rig = FailingVolume::new(64, "");
    let f = rig.file("/f");
    write(&f, 7, pages, 1);
    rig.vfs.sync().unwrap();
    (rig, f)
}

/// Checks the versions of every page of `/f` after a power cut.
fn after_cut(rig: &FailingVolume, pages: u64, allowed: &[u32], what: &str) {
    for image in rig.images() {
        reopen(image, true, what, |v| {
            let f = v.open_path(ROOT, b"/f", OpenFlags::READ, 0).unwrap();
            for p in 0..pages {
                let (a, b) = versions_of(7, p, &read_page(&f, p).unwrap(), what);
                assert!(a == b && allowed.contains(&a), "{what}: page {p}: version {a} to {b}");
            }
        });
    }
}

/// Lets the flusher do its work at once.
fn write_back(rig: &FailingVolume, f: &File) {
    rig.fs.writepages(f.inode(), &mut WritebackControl::background(u64::MAX)).unwrap();
    rig.vfs.bdi().submit_pending();
    f.inode().mapping.wait_writeback(0, u64::MAX);
}

/// Each open file gets the error once. The next try writes the pages to another address, whether they were to
/// stay in place (few) or to move (many). A file that is opened afterwards gets no error.
#[test]
fn each_open_file_is_told_once() {
    for (pages, errno, kind) in [
        (4, Errno::IO, ErrorKind::Io),
        (40, Errno::IO, ErrorKind::Io),
        (40, Errno::NOSPC, ErrorKind::NoSpace),
    ] {
        let (rig, f) = with_file(40);
        let other = rig.file("/f");
        let sectors = Arc::new(Mutex::new(&SECTORS, Vec::new()));
        let seen = sectors.clone();
        let areas = rig.areas;
        rig.faulty.set([Rule::new(Fault::Fail(errno))
            .when(move |rq| {
                let data = areas.class(rq) == Some(Class::Data);
                data.then(|| seen.lock().push((rq.sector.0, rq.end().0)));
                data
            })
            .which(0..1)]);
        write(&f, 7, pages, 2);
        let told = f.fsync(false).unwrap_err();
        assert_eq!(told.kind(), kind, "{told}");
        assert_eq!(told.errno(), Some(errno), "{told}");
        assert!(rig.why_stopped().is_none());
        f.fsync(false).unwrap();
        let later = rig.file("/f");
        assert_eq!(other.fsync(true).unwrap_err().kind(), kind);
        other.fsync(true).unwrap();
        later.fsync(false).unwrap();
        let sectors = sectors.lock().clone();
        let (failed, rest) = sectors.split_first().unwrap();
        assert!(!rest.is_empty());
        for s in rest {
            assert!(s.1 <= failed.0 || s.0 >= failed.1, "{s:?} was written again after {failed:?} failed");
        }
        after_cut(&rig, pages, &[2], "fsynced after a failure");
        rig.vfs.unmount().unwrap();
        judge(&rig.memory, true, "at the end");
    }
}

/// The write of pages to a new place fails, then another thread's checkpoint is written: it has the pages at
/// a third place.
#[test]
fn no_checkpoint_vouches_for_a_page_that_failed() {
    for fault in [IO, Fault::Short(4096, Errno::IO), Fault::Short(512, Errno::TIMEDOUT)] {
        let (rig, f) = with_file(40);
        write(&f, 7, 40, 2);
        rig.faulty.set([rig.rule(Class::Data, fault).which(0..1)]);
        write_back(&rig, &f);
        assert_eq!(rig.faulty.failed(), 1);
        after_cut(&rig, 40, &[1], "before the checkpoint");
        rig.fs.write_checkpoint(true).unwrap();
        after_cut(&rig, 40, &[2], "after the checkpoint");
        assert_eq!(f.fsync(false).unwrap_err().kind(), ErrorKind::Io);
        f.fsync(false).unwrap();
    }
}

/// A checkpoint that leaves file data in flight, as Linux's does, waits all the same for the pages that it writes anew.
#[test]
fn a_checkpoint_that_waits_for_no_data_waits_for_failed_pages() {
    let rig = FailingVolume::new(64, "checkpoint_data=linux");
    let f = rig.file("/f");
    write(&f, 7, 4, 1);
    rig.vfs.sync().unwrap();
    write(&f, 7, 4, 2);
    rig.faulty.set([rig.rule(Class::Data, IO).which(0..1)]);
    write_back(&rig, &f);
    assert_eq!(rig.faulty.failed(), 1);
    rig.faulty.set([rig.rule(Class::Data, Fault::Late(Duration::from_millis(20)))]);
    rig.fs.write_checkpoint(true).unwrap();
    after_cut(&rig, 4, &[2], "after the checkpoint");
    rig.faulty.set([]);
}

/// Several places are bad, one behind the other: the checkpoint goes on trying, in another segment.
#[test]
fn a_checkpoint_tries_several_places() {
    let (rig, f) = with_file(1);
    rig.faulty.set([rig.rule(Class::Data, IO).which(0..3)]);
    write(&f, 7, 1, 2);
    write_back(&rig, &f);
    rig.fs.write_checkpoint(true).unwrap();
    assert_eq!(rig.faulty.failed(), 3);
    after_cut(&rig, 1, &[2], "written at last");
}

/// The pages cannot be written anywhere: the checkpoint that would have to vouch for them stops the volume
/// with the reason. The content of the checkpoint before is still there.
#[test]
fn a_page_that_finds_no_place_stops_the_volume() {
    let (rig, f) = with_file(40);
    write(&f, 7, 40, 2);
    rig.faulty.set([rig.rule(Class::Data, IO)]);
    write_back(&rig, &f);
    assert!(rig.why_stopped().is_none());
    assert_eq!(rig.fs.write_checkpoint(true).unwrap_err().kind(), ErrorKind::Io);
    let why = rig.why_stopped().unwrap();
    assert!(why.what().starts_with("page 0 "), "{why}");
    assert_eq!(why.places().next(), Some(&At::Inode(f.inode().ino)), "{why}");
    rig.faulty.set([]);
    assert!(f.fsync(false).is_err() && f.fsync(false).is_err());
    assert!(rig.vfs.unmount().is_err());
    after_cut(&rig, 40, &[1], "after the volume stopped");
}

/// An fsync whose own pages are written must not write nodes that name other pages whose write failed
/// meanwhile.
#[test]
fn no_fsync_vouches_for_a_page_that_failed() {
    for ceases in [true, false] {
        let (rig, f) = with_file(40);
        // From here on an fsync needs no checkpoint.
        rig.file("/other").fsync(false).unwrap();
        write(&f, 7, 40, 2);
        rig.faulty.set([rig.rule(Class::Data, IO).which(0..if ceases { 1 } else { u64::MAX })]);
        write_back(&rig, &f);
        // Fsync does the same once the pages that it found are written.
        let r = rig.fs.fsync(f.inode(), false);
        assert_eq!(r.is_ok(), ceases, "{r:?}");
        after_cut(&rig, 40, &[if ceases { 2 } else { 1 }], "after the fsync");
    }
}

/// When pages are cut from the file, the error of their write goes with them.
#[test]
fn pages_that_were_cut_off_need_no_place() {
    type Cut = fn(&FailingVolume, &File);
    let cuts: [Cut; 4] = [
        |_, f| f.truncate(8 * PAGE as u64).unwrap(),
        |_, f| {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            f.fallocate(how, 8 * PAGE as u64, 32 * PAGE as u64).unwrap();
        },
        |rig, _| rig.vfs.unlink(ROOT, &rig.vfs.root().unwrap(), b"f").unwrap(),
        // A checkpoint comes between the operation's change of memory and its change of the volume.
        |rig, f| {
            f.inode().mapping.remove(8, u64::MAX);
            rig.fs.write_checkpoint(true).unwrap();
            assert_eq!(versions_of(7, 9, &read_page(f, 9).unwrap(), "dropped"), (0, 0));
        },
    ];
    for (i, cut) in cuts.into_iter().enumerate() {
        let (rig, f) = with_file(40);
        let bytes: Vec<u8> = (8..40).flat_map(|p| page(7, p, 2)).collect();
        f.write_at(8 * PAGE as u64, &bytes).unwrap();
        rig.faulty.set([rig.rule(Class::Data, IO)]);
        write_back(&rig, &f);
        cut(&rig, &f);
        drop(f);
        rig.fs.write_checkpoint(true).unwrap_or_else(|e| panic!("cut {i}: {e}"));
        rig.faulty.set([]);
        if i != 2 {
            after_cut(&rig, 8, &[1], "what was left of it");
        }
        rig.vfs.unmount().unwrap();
        judge(&rig.memory, true, "at the end");
    }
}

/// No process has the file open any more: sync returns the error of its write, and so does unmount.
#[test]
fn sync_and_unmount_tell_what_nobody_else_is_told() {
    for unmount in [false, true] {
        let (rig, f) = with_file(4);
        write(&f, 7, 4, 2);
        drop(f);
        rig.faulty.set([rig.rule(Class::Data, IO)]);
        let r = if unmount { rig.vfs.unmount() } else { rig.vfs.sync() };
        assert_eq!(r.unwrap_err().kind(), ErrorKind::Io);
        after_cut(&rig, 4, &[1], "never written");
    }
    // Once the pages can be written, both succeed.
    let (rig, f) = with_file(4);
    write(&f, 7, 4, 2);
    drop(f);
    rig.faulty.set([rig.rule(Class::Data, IO).which(0..1)]);
    rig.vfs.sync().unwrap();
    after_cut(&rig, 4, &[2], "written at the second try");
    rig.vfs.unmount().unwrap();
}

/// Nothing can be written for a while: memory stays within its bounds and writers get errors. Later
/// everything is written after all.
#[test]
fn memory_is_bounded_while_nothing_can_be_written() {
    within(LIMIT, "a writer", || {
        let rig = FailingVolume::open(FailingVolume::make(256, &Default::default()), TIGHT, "");
        let f = rig.file("/big");
        rig.faulty.set([rig.rule(Class::Data, IO)]);
        let mut taken = 0;
        let mut errors = 0;
        while errors < 3 {
            match f.write_at(taken * PAGE as u64, &page(9, taken, 1)) {
                Ok(_) => taken += 1,
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Io, "{e}");
                    errors += 1;
                }
            }
            let bytes = rig.vfs.bdi().dirty_bytes() + rig.vfs.bdi().writeback_bytes();
            assert!(bytes <= TIGHT.dirty + (1 << 20), "{bytes} bytes after {taken} pages");
        }
        assert!(rig.why_stopped().is_none());
        rig.faulty.set([]);
        let f2 = rig.file("/more");
        (0..3000).for_each(|p| _ = f2.write_at(p * PAGE as u64, &page(10, p, 1)).unwrap());
        assert!(f.fsync(false).is_err());
        f.fsync(false).unwrap();
        (0..taken).for_each(|p| assert_eq!(read_page(&f, p).unwrap(), page(9, p, 1)));
        drop((f, f2));
        rig.vfs.unmount().unwrap();
        judge(&rig.memory, true, "at the end");
    });
}

/// A full volume of fragmented pages, so that cleaning has to move them; with the version of each.
fn in_pieces() -> (FailingVolume, Vec<Vec<u32>>) {
    let rig = FailingVolume::new(64, "background_gc=off");
    let mut versions = Vec::new();
    let mut r = Rng(3);
    let pages = 900;
    for i in 0..3 {
        let f = rig.file(&format!("/g{i}"));
        (0..pages).for_each(|p| _ = f.write_at(p * PAGE as u64, &page(i, p, 1)).unwrap());
        f.fsync(false).unwrap();
        versions.push(vec![1; pages as usize]);
    }
    for _ in 0..6 {
        for i in 0..3 {
            let f = rig.file(&format!("/g{i}"));
            for _ in 0..120 {
                let p = r.below(pages);
                let v = &mut versions[i as usize][p as usize];
                *v += 1;
                f.write_at(p * PAGE as u64, &page(i, p, *v)).unwrap();
            }
        }
        rig.vfs.sync().unwrap();
    }
    (rig, versions)
}

/// Cleaning moves pages that are durable in their old place: a failed move loses none, whether it is repeated
/// or not.
#[test]
fn cleaning_loses_no_page_it_cannot_move() {
    for which in [0..1, 1..2, 2..6, 0..u64::MAX] {
        let (rig, versions) = in_pieces();
        rig.faulty.set([rig.rule(Class::Data, IO).which(which.clone())]);
        let what = format!("cleaning while {which:?} fail");
        let mut result = Ok(true);
        for _ in 0..4 {
            result = result.and_then(|_| rig.fs.garbage_collect(true));
        }
        assert!(rig.faulty.failed() > 0, "{what}: nothing was moved");
        assert_eq!(result.is_err(), which.end == u64::MAX, "{what}: {result:?}");
        assert_eq!(rig.why_stopped().is_some(), which.end == u64::MAX, "{what}");
        for image in rig.images() {
            reopen(image, true, &what, |v| {
                for (i, of) in versions.iter().enumerate() {
                    let f = v.open_path(ROOT, format!("/g{i}").as_bytes(), OpenFlags::READ, 0).unwrap();
                    for (p, version) in of.iter().enumerate() {
                        let bytes = read_page(&f, p as u64).unwrap();
                        assert_eq!(versions_of(i as u64, p as u64, &bytes, &what), (*version, *version));
                    }
                }
            });
        }
    }
}
