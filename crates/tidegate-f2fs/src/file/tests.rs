//! File data on its way to a busy device: the locks that are held meanwhile, in each position of the switch.

use crate::testing::Open;
use crate::testing::hold::{Hold, a_while, held_volume, nothing_is_held};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use tidegate_rt::{sim, thread};
use tidegate_vfs::{Cred, File, OpenFlags, VolumeOps};

/// More bytes than the queue takes.
const SIZE: usize = 1 << 20;

/// A volume in a position of `writepages`, with a file whose pages were written and are dirty again.
fn dirty_again(position: &str) -> (Arc<Hold>, Open, Arc<File>) {
    let (device, open) = held_volume();
    open.fs.remount(&format!("writepages={position}")).unwrap();
    let how = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let f = Arc::new(open.vfs.open_path(&Cred::ROOT, b"/f", how, 0o644).unwrap());
    f.write_at(0, &vec![1; SIZE]).unwrap();
    open.fs.commit(true).unwrap();
    open.vfs.sync().unwrap();
    f.write_at(0, &vec![2; SIZE]).unwrap();
    (device, open, f)
}

/// Writes a file's pages with `write` while the device ends no bio, and inspects the locks with `look`.
/// Returns the nanoseconds that threads waited in the queue with such locks held.
fn while_congested(
    position: &str,
    write: impl FnOnce(&Open, &File) + Send + 'static,
    look: impl FnOnce(&Open),
) -> u64 {
    let (device, open, f) = dirty_again(position);
    device.holds.store(true, SeqCst);
    let open = Arc::new(open);
    let theirs = open.clone();
    let writer = thread::spawn("writer", move || write(&theirs, &f)).unwrap();
    a_while();
    assert!(open.fs.queue.stats().congested > 0);
    look(&open);
    device.let_go();
    writer.join();
    let ns = open.fs.queue.stats().congested_holding_ns;
    open.vfs.unmount().unwrap();
    ns
}

fn sync(open: &Open, _: &File) {
    open.vfs.sync().unwrap();
}

#[test]
fn extents_are_sent_with_no_lock_held() {
    sim::run(1, 2, || {
        let ns = while_congested("extent", sync, |open| {
            nothing_is_held(open);
            assert!(open.fs.writepages.try_lock().is_some(), "another file may be written");
        });
        assert_eq!(ns, 0);
    });
}

/// Linux's `f2fs_do_write_data_page` does this with pages that get new places.
#[test]
fn positions_of_linux_send_with_cp_rwsem_held() {
    for position in ["unlocked", "locked", "submit_locked"] {
        sim::run(1, 2, move || {
            let ns = while_congested(position, sync, |open| {
                assert!(open.fs.cp_rwsem.try_write().is_none(), "{position}: a checkpoint waits");
                let locked = open.fs.writepages.try_lock().is_none();
                assert_eq!(locked, position != "unlocked", "{position}");
                assert!(open.fs.node_write.try_lock().is_some(), "{position}");
            });
            assert!(ns > 0, "{position}");
        });
    }
}

/// Linux releases `cp_rwsem` before it sends pages that stay where they are.
#[test]
fn what_is_written_in_place_is_sent_without_cp_rwsem_as_in_linux() {
    sim::run(1, 2, || {
        let ns = while_congested(
            "submit_locked",
            |_, f| f.fsync(true).unwrap(),
            |open| {
                assert!(open.fs.stats.in_place.load(SeqCst) > 0);
                assert!(open.fs.cp_rwsem.try_write().is_some(), "a checkpoint may begin");
            },
        );
        assert!(ns > 0, "the log's bio is locked");
    });
}
