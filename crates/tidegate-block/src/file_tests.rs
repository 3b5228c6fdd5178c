use super::*;
use crate::{Bio, PageBuf, QueueLimits, RequestQueue, Sector, Segment};
use tidegate_rt::{LockClass, Mutex};

fn exercise(backend: Backend) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let o = OpenOptions { backend, create: Some(8 << 20), ..Default::default() };
    let q = RequestQueue::new(open(&path, o).unwrap(), QueueLimits { nr_requests: 2, ..Default::default() });
    let mut plug = crate::Plug::new(&q);
    for i in 0..1000u64 {
        let mut b = PageBuf::zeroed(1);
        b[..8].copy_from_slice(&i.to_le_bytes());
        let seg = Segment::pages(Arc::new(b), 0, 1);
        plug.add(Bio::write(Sector(i * 8), vec![seg], BioFlags::empty()));
    }
    drop(plug);
    q.drain();
    q.flush().unwrap();
    assert!(q.stats().write_requests < 20, "{:?}", q.stats());
    for i in [0u64, 1, 500, 999] {
        let b = q.read_wait(Sector(i * 8), 1, BioFlags::empty()).unwrap();
        assert_eq!(b[..8], i.to_le_bytes());
    }
    q.submit_wait(Bio::write_zeroes(Sector(8), 4096)).unwrap();
    assert!(q.read_wait(Sector(8), 1, BioFlags::empty()).unwrap().iter().all(|&b| b == 0));
    assert_eq!(q.read_wait(Sector(8 << 20), 1, BioFlags::empty()).unwrap_err(), Errno::IO);
    let busy = open(&path, OpenOptions::default()).err().unwrap().to_string();
    assert!(busy.contains("in use"), "{busy}");
}

#[test]
fn threads_backend_does_io() {
    exercise(Backend::Threads);
}

#[test]
fn a_refused_ring_falls_back_to_threads() {
    let dir = tempfile::tempdir().unwrap();
    let open =
        |name| FileIo::open(&dir.path().join(name), OpenOptions { create: Some(4096), ..Default::default() });
    let device = choose(open("a").unwrap(), Backend::Auto, true).unwrap();
    assert_eq!(device.backend(), "threads");
    let e = choose(open("b").unwrap(), Backend::Uring, true).err().unwrap();
    assert!(matches!(e, NotOpened::Uring(_)), "{e}");
}

#[test]
fn what_holds_no_blocks_is_refused_without_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    let make = rustix::fs::mknodat;
    make(rustix::fs::CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    for read_only in [true, false] {
        let o = OpenOptions { read_only, ..Default::default() };
        let e = open(&path, o).err().unwrap();
        assert!(matches!(e.why, NotOpened::NotAnImage(NoImage::Fifo)), "{e}");
        let e = open(Path::new("/dev/null"), o).err().unwrap();
        assert!(matches!(e.why, NotOpened::NotAnImage(NoImage::CharacterDevice)), "{e}");
    }
    let o = OpenOptions { create: Some(4096), ..Default::default() };
    let io = FileIo::open(&dir.path().join("image"), o).unwrap();
    assert!(!rustix::fs::fcntl_getfl(&io.fd).unwrap().contains(OFlags::NONBLOCK));
}

#[test]
fn small_writes_after_a_large_one_go_around_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let o = OpenOptions { create: Some(1 << 20), ..Default::default() };
    let io = FileIo::open(&dir.path().join("image"), o).unwrap();
    let rq = |pages, flags| {
        let segment = Segment::pages(Arc::new(PageBuf::zeroed(pages)), 0, pages);
        Request::new(Bio::write(Sector(0), vec![segment], flags))
    };
    let (small, large) = (rq(1, BioFlags::empty()), rq(32, BioFlags::empty()));
    assert!(io.takes_cache(&small) && !io.takes_cache(&large));
    io.note(&large);
    assert!((0..AFTER_LARGE).all(|_| !io.takes_cache(&small)));
    io.note(&small);
    io.note(&rq(32, BioFlags::META));
    assert!(io.takes_cache(&small));
}

/// A disk with blocks of 4 KiB refuses such requests where they go around the cache. Here, what goes around it is lost.
#[test]
fn what_is_not_aligned_goes_through_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let o = OpenOptions { create: Some(1 << 20), ..Default::default() };
    let mut io = FileIo::open(&dir.path().join("image"), o).unwrap();
    let Some(cached) = &io.cached else { return };
    rustix::io::pwrite(cached, &[7; 4096], 1024).unwrap();
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
    io.fd = null.into();
    let at = |block: u64| Sector::from_bytes(block * 1024);
    let read = |io: &FileIo, from| {
        let mut rq = Request::new(Bio::read(at(from), vec![PageBuf::zeroed(1)], BioFlags::empty()));
        io.execute(&mut rq).map(|()| {
            let BioData::Read(bufs) = &rq.bios[0].data else { panic!() };
            bufs[0][0]
        })
    };
    assert_eq!((read(&io, 0), read(&io, 1)), (Err(Errno::IO), Ok(7)));
    let pages = 64;
    let mut bytes = PageBuf::zeroed(pages);
    bytes.fill(9);
    let segment = Segment::pages(Arc::new(bytes), 0, pages);
    io.execute(&mut Request::new(Bio::write(at(5), vec![segment], BioFlags::empty()))).unwrap();
    assert_eq!(read(&io, 5), Ok(9));
}

#[test]
fn chosen_backend_does_io() {
    exercise(Backend::Auto);
}

#[test]
fn who_waited_gets_the_file_that_took_the_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let old = FileIo::open(&path, OpenOptions { create: Some(4096), ..Default::default() }).unwrap();
    let to = path.clone();
    let waits = tidegate_rt::thread::spawn("waits", move || FileIo::open(&to, OpenOptions::default()));
    // The thread has opened the old file by then, or opens the new one at once. Both must succeed.
    tidegate_rt::thread::sleep(std::time::Duration::from_millis(100));
    std::fs::write(dir.path().join("new"), [0; 8192]).unwrap();
    std::fs::rename(dir.path().join("new"), &path).unwrap();
    drop(old);
    assert_eq!(waits.unwrap().join().unwrap().size, 8192);
}

#[test]
fn what_cannot_have_the_size_keeps_what_it_holds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, "content").unwrap();
    let o = OpenOptions { create: Some(u64::MAX), ..Default::default() };
    assert!(FileIo::open(&path, o).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"content");
    let o = OpenOptions { create: Some(4096), ..Default::default() };
    assert_eq!(FileIo::open(&path, o).unwrap().size, 4096);
    assert_eq!(std::fs::read(&path).unwrap(), [0; 4096]);
}

/// The kernel's workers belong to the submitting thread: a request that waits for a worker may be cancelled
/// when that thread ends.
#[test]
fn requests_outlive_the_thread_that_submitted_them() {
    static FAILED: LockClass = LockClass::new("test->failed", 1000);
    // A file system on which every request goes to a worker, if there is one.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let o = OpenOptions { create: Some(64 << 20), ..Default::default() };
    let device = open(&dir.path().join("image"), o).unwrap();
    let q = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let failed = Arc::new(Mutex::new(&FAILED, Vec::new()));
    for round in 0..300u64 {
        let threads: Vec<_> = (0..8u64)
            .map(|t| {
                let (queue, told) = (q.clone(), failed.clone());
                let body = move || {
                    for i in 0..4 {
                        let seg = Segment::pages(Arc::new(PageBuf::zeroed(16)), 0, 16);
                        let at = Sector::from_bytes((t * 4 + i) << 16);
                        let bio = Bio::write(at, vec![seg], BioFlags::empty());
                        let failed = told.clone();
                        queue.submit(bio.on_end(move |r, _| failed.lock().extend(r.err())));
                    }
                };
                tidegate_rt::thread::spawn("short", body).unwrap()
            })
            .collect();
        threads.into_iter().for_each(|t| t.join());
        q.drain();
        assert_eq!(*failed.lock(), [], "round {round}");
    }
}

static SEEN: LockClass = LockClass::new("test->seen", 1000);

/// A device of 8 pages, and the first byte of its page 1 at the start of each fdatasync.
fn watched(backend: Backend) -> (Arc<dyn Device>, Arc<Mutex<Vec<u8>>>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let mut io = FileIo::open(&path, OpenOptions { create: Some(8 << 12), ..Default::default() }).unwrap();
    let seen = Arc::new(Mutex::new(&SEEN, Vec::new()));
    let (told, page) = (seen.clone(), std::fs::File::open(&path).unwrap());
    io.sync = Box::new(move |fd| {
        let mut byte = [0];
        std::os::unix::fs::FileExt::read_exact_at(&page, &mut byte, 4096).unwrap();
        told.lock().push(byte[0]);
        rustix::fs::fdatasync(fd)
    });
    (choose(io, backend, false).unwrap(), seen, dir)
}

/// Each flush that a request asks for reaches the host, before the write or after it.
fn syncs(backend: Backend) {
    let (device, seen, _dir) = watched(backend);
    let q = RequestQueue::new(device, QueueLimits::default());
    let syncs_of = |flags, byte| {
        let mut page = PageBuf::zeroed(1);
        page.fill(byte);
        q.submit_wait(Bio::write(Sector(8), vec![Segment::pages(Arc::new(page), 0, 1)], flags)).unwrap();
        std::mem::take(&mut *seen.lock())
    };
    let (none, before, behind) = (BioFlags::empty(), BioFlags::PREFLUSH, BioFlags::FUA);
    assert_eq!(syncs_of(none, 1), []);
    assert_eq!(syncs_of(before, 2), [1]);
    assert_eq!(syncs_of(behind, 3), [3]);
    assert_eq!(syncs_of(before | behind, 4), [3, 4]);
    q.flush().unwrap();
    assert_eq!(*seen.lock(), [4]);
}

#[test]
fn a_flush_reaches_the_host_by_threads() {
    syncs(Backend::Threads);
}

/// Tests only where the host permits io_uring.
#[test]
fn a_flush_reaches_the_host_by_io_uring() {
    syncs(Backend::Auto);
}
