//! Files that give or take fewer bytes than asked for: a request that is done in part never counts as done,
//! with either backend.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tidegate_block::*;

const BACKENDS: [Backend; 2] = [Backend::Uring, Backend::Threads];
const MIB: u64 = 1 << 20;

/// A file system in memory that holds `size` bytes. `None` for a user who may not mount one.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new(size: u64) -> Option<Tmpfs> {
        let dir = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tidegate"])
            .arg(dir.path())
            .output();
        if !mount.is_ok_and(|m| m.status.success()) {
            eprintln!("skipped: no tmpfs can be mounted here");
            return None;
        }
        Some(Tmpfs(dir))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("image")
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

/// A queue on the file; `None` where the backend is refused.
fn open(path: &Path, backend: Backend, create: Option<u64>) -> Option<RequestQueue> {
    match file::open(path, OpenOptions { backend, create, ..Default::default() }) {
        Ok(d) => Some(RequestQueue::new(d, QueueLimits::default())),
        Err(e) if backend == Backend::Uring => {
            eprintln!("skipped: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// Starts a bio asynchronously and waits for its end, so that the backend's own code executes it.
fn through(q: &RequestQueue, bio: Bio) -> (std::result::Result<(), Errno>, BioData) {
    let (send, done) = std::sync::mpsc::channel();
    q.submit(bio.on_end(move |r, data| send.send((r, data)).unwrap()));
    done.recv_timeout(std::time::Duration::from_secs(60)).expect("the request never ended")
}

fn write(at: u64, byte: u8) -> Bio {
    let mut buf = PageBuf::zeroed(256);
    buf.fill(byte);
    let segment = Segment::pages(Arc::new(buf), 0, 256);
    Bio::write(Sector::from_bytes(at), vec![segment], BioFlags::empty())
}

fn read(at: u64) -> Bio {
    Bio::read(Sector::from_bytes(at), vec![PageBuf::zeroed(256)], BioFlags::empty())
}

/// A sparse image outgrows its file system. A write that does not fit whole is ENOSPC, and so is the next.
/// Once there is room again, such a write succeeds.
#[test]
fn a_write_that_fits_in_part_is_no_space() {
    for backend in BACKENDS {
        let Some(fs) = Tmpfs::new(4 * MIB + MIB / 2) else { return };
        let filler = fs.0.path().join("filler");
        std::fs::write(&filler, vec![1; MIB as usize]).unwrap();
        let Some(q) = open(&fs.path(), backend, Some(16 * MIB)) else { continue };
        let results: Vec<_> = (0..5).map(|i| through(&q, write(i * MIB, i as u8 + 1)).0).collect();
        let none = Err(Errno::NOSPC);
        assert_eq!(results, [Ok(()), Ok(()), Ok(()), none, none], "{backend:?}");
        std::fs::remove_file(&filler).unwrap();
        assert_eq!(through(&q, write(3 * MIB, 9)).0, Ok(()), "{backend:?}");
        for (i, byte) in [1, 2, 3, 9].into_iter().enumerate() {
            let (r, BioData::Read(bufs)) = through(&q, read(i as u64 * MIB)) else { panic!() };
            assert_eq!((r, bufs[0].iter().all(|b| *b == byte)), (Ok(()), true), "{backend:?}, MiB {i}");
        }
    }
}

/// An image is truncated while it is open: a request that ends past the new end is an error, in either way
/// and with either backend.
#[test]
fn a_read_that_ends_early_is_an_error() {
    for backend in BACKENDS {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let Some(q) = open(&path, backend, Some(4 * MIB)) else { continue };
        (0..4).for_each(|i| assert_eq!(through(&q, write(i * MIB, 5)).0, Ok(())));
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_len(MIB + MIB / 2).unwrap();
        let results: Vec<_> = (0..3).map(|i| through(&q, read(i * MIB)).0).collect();
        assert_eq!(results, [Ok(()), Err(Errno::IO), Err(Errno::IO)], "{backend:?}");
        assert_eq!(q.submit_wait(read(MIB)).err(), Some(Errno::IO), "{backend:?}");
    }
}
