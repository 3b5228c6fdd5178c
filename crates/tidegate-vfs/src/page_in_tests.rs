//! Readers wait for the device while other threads change their pages: no later read finds the old content of a page.

use crate::slow_fs::{MS, PAGES, SlowDevice, TAKES, Takes, What, mount, open};
use crate::{FallocateFlags, SyncWait, Vfs};
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::PAGE_SIZE;
use tidegate_rt::{Nanos, clock, sim, thread};

const INO: u64 = 7;
const PAGE: u64 = PAGE_SIZE as u64;
const LEN: u64 = PAGES * PAGE;

/// Reads take so long that a page is written, and dropped from memory, while another read of it is under way.
const SLOW_READS: Takes = Takes { read: Duration::from_millis(30), ..TAKES };

/// Runs a volume with one file full of ones in a simulated world, for several seeds.
fn each_seed(f: impl Fn(Arc<Vfs>, Arc<SlowDevice>) + Copy + Send + 'static) {
    for seed in 0..4 {
        println!("seed {seed}");
        sim::run(seed, 3, move || {
            let (vfs, device) = mount(SyncWait::Caller, SLOW_READS);
            (0..PAGES).for_each(|i| device.put(INO, i, 1));
            f(vfs, device);
        });
    }
}

/// Reads one page. Returns its first byte, `None` past the end, and the time.
fn read(vfs: &Arc<Vfs>, index: u64) -> (Option<u8>, Nanos) {
    let mut page = [0xff; PAGE_SIZE];
    let n = open(vfs, INO).read_at(index * PAGE, &mut page).unwrap();
    assert!(page[..n].iter().all(|b| *b == page[0]), "a page in pieces");
    ((n > 0).then_some(page[0]), clock::now())
}

/// Starts a thread that reads one page. The read has begun when this returns.
fn reading(vfs: &Arc<Vfs>, index: u64) -> thread::JoinHandle<(Option<u8>, Nanos)> {
    let v = vfs.clone();
    let reader = thread::spawn("reader", move || read(&v, index)).unwrap();
    thread::sleep(MS);
    reader
}

#[test]
fn a_write_waits_for_a_read_of_its_page() {
    each_seed(|vfs, _| {
        let reader = reading(&vfs, 3);
        let f = open(&vfs, INO);
        f.write_at(3 * PAGE, &[2; PAGE_SIZE]).unwrap();
        f.fsync(false).unwrap();
        f.inode().mapping.reclaim(false);
        reader.join();
        assert_eq!(read(&vfs, 3).0, Some(2));
    });
}

#[test]
fn a_write_waits_for_no_read_of_another_page() {
    each_seed(|vfs, _| {
        let (began, reader) = (clock::now(), reading(&vfs, 3));
        open(&vfs, INO).write_at(5 * PAGE, &[2; PAGE_SIZE]).unwrap();
        let wrote = clock::now();
        let (seen, read) = reader.join();
        assert_eq!(seen, Some(1));
        assert!(wrote.since(began).duration() < 2 * MS && read.since(began).duration() >= SLOW_READS.read);
    });
}

#[test]
fn a_page_is_read_once_for_all_who_want_it() {
    each_seed(|vfs, device| {
        let readers = [3, 3, 3].map(|i| reading(&vfs, i));
        for r in readers {
            assert_eq!(r.join().0, Some(1));
        }
        let reads = device.log().iter().filter(|e| e.1 == What::Read { ino: INO }).count();
        assert_eq!(reads, 1);
    });
}

/// The blocks are being freed: a page that is read from them would come back when the file grows again.
#[test]
fn no_read_begins_while_a_file_is_cut() {
    each_seed(|vfs, _| {
        let v = vfs.clone();
        let cutting = thread::spawn("cuts", move || open(&v, INO).truncate(0).unwrap()).unwrap();
        thread::sleep(MS);
        let reader = reading(&vfs, 3);
        cutting.join();
        assert_eq!(reader.join().0, None);
        open(&vfs, INO).truncate(LEN).unwrap();
        assert_eq!(read(&vfs, 3).0, Some(0));
    });
}

#[test]
fn no_read_begins_while_a_hole_is_punched() {
    each_seed(|vfs, _| {
        let v = vfs.clone();
        let punch = move || {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            open(&v, INO).fallocate(how, 2 * PAGE, 4 * PAGE).unwrap();
        };
        let punching = thread::spawn("punches", punch).unwrap();
        thread::sleep(MS);
        let reader = reading(&vfs, 3);
        punching.join();
        assert_eq!(reader.join().0, Some(0));
        assert_eq!((read(&vfs, 1).0, read(&vfs, 3).0, read(&vfs, 6).0), (Some(1), Some(0), Some(1)));
    });
}

/// The next window of a sequential reader is read without a thread waiting for it, and with no lock held.
#[test]
fn what_is_read_ahead_is_waited_for_before_it_goes() {
    for punch in [false, true] {
        each_seed(move |vfs, _| {
            let f = open(&vfs, INO);
            vfs.start_fill(f.inode(), 0, PAGES);
            thread::sleep(MS);
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match punch {
                true => f.fallocate(how, 0, LEN).unwrap(),
                false => [0, LEN].into_iter().for_each(|size| f.truncate(size).unwrap()),
            }
            thread::sleep(SLOW_READS.read);
            assert_eq!(read(&vfs, 3).0, Some(0));
        });
    }
}
