//! Recordings of waits, made by hand, with known causes.

use super::made::*;
use super::*;
use tidegate_rt::trace::Phase;

#[test]
fn a_wait_for_pages_is_divided_by_what_was_at_the_device() {
    let mut m = fsync("folio_wait_writeback", 100, &[]);
    m.page(0, 1, 5, 1000).request(1, (10, 90), WRITE, 1000);
    // The write of another thread ends later: it is not waited for.
    m.page(0, 8, 6, 2000).request(8, (70, 99), WRITE, 2000);
    m.request(9, (20, 60), DISCARD, 5000);
    let want = [
        (Cause::DeviceDiscard, 40),
        (Cause::Device, 20),
        (Cause::DeviceShared, 20),
        (Cause::Unsent, 10),
        (Cause::Processor, 10),
    ];
    let report = m.explain();
    let s = &report.kinds[0].slowest[0];
    assert_eq!(tenths(&s.parts), want);
    assert_eq!(s.parts[0].what, "its own pages: at the device, as were discards of tg-f2fs-gc");
    // It is not known why the pages were not sent at first.
    assert_eq!((s.ino, s.named, &*s.thread), (Some(5), 0.9, "tg-fuse-0"));
}

#[test]
fn time_in_the_elevator_is_not_the_devices() {
    let mut m = fsync("folio_wait_writeback", 100, &[]);
    let args = |block: u64, bytes| [("sector", block * 8), ("bytes", bytes), ("op", WRITE), ("flags", 0)];
    m.page(0, 1, 5, 1001);
    // The second request is merged into the first in the elevator and is issued with it.
    m.event(0, 8, "block_rq_insert", Phase::Instant, &args(1000, 4096));
    m.event(0, 1, "block_rq_insert", Phase::Instant, &args(1001, 4096));
    m.event(70, 8, "block_rq_issue", Phase::Instant, &args(1000, 8192));
    m.event(100, 90, "block_rq_complete", Phase::Instant, &args(1000, 8192));
    assert_eq!(m.parts(), [(Cause::Elevator, 70), (Cause::Device, 30)]);
}

#[test]
fn a_lock_is_theirs_who_had_it_and_no_other_of_its_class() {
    let mut m = Made::default();
    m.event(0, 1, "vfs_fsync_range", Phase::Begin, &[("ino", 5)]);
    m.waits(1, (0, 100), "inode->i_rwsem", 33);
    m.event(100, 1, "vfs_fsync_range", Phase::End, &[]);
    m.span(2, (0, 60), "vfs_write", &[("ino", 5)]).holds(2, (0, 60), "inode->i_rwsem", 33);
    m.holds(8, (0, 100), "inode->i_rwsem", 44);
    let report = m.explain();
    let parts = &report.kinds[0].slowest[0].parts;
    assert_eq!(tenths(parts), [(Cause::Lock, 60), (Cause::Lock, 40)]);
    assert_eq!(parts[0].what, "lock inode->i_rwsem, which tg-fuse-1 (a write to inode 5) had");
    assert_eq!(tenths(&parts[0].parts), [(Cause::Work, 60)]);
}

#[test]
fn a_freeze_says_which_step_of_the_checkpoint_it_was() {
    let mut m = Made::default();
    m.event(0, 1, "vfs_fsync_range", Phase::Begin, &[("ino", 5)]);
    m.waits(1, (20, 100), "sbi->cp_rwsem", 3);
    m.event(100, 1, "vfs_fsync_range", Phase::End, &[]);
    m.event(0, 2, "vfs_fsync_range", Phase::Begin, &[("ino", 4)]);
    m.event(0, 2, "f2fs_fsync_checkpoint", Phase::Instant, &[("ino", 4), ("reason", 1)]);
    m.span(2, (0, 110), "f2fs_issue_checkpoint", &[]);
    m.event(111, 2, "vfs_fsync_range", Phase::End, &[]);
    m.event(5, 7, "f2fs_write_checkpoint", Phase::Begin, &[("reason", 0)]);
    m.event(10, 7, "f2fs_block_operations", Phase::Begin, &[("frozen", 1)]);
    m.event(10, 7, "f2fs_sync_node_pages", Phase::Begin, &[("frozen", 1)]);
    m.span(7, (10, 70), "folio_wait_writeback", &[]).request(7, (10, 70), WRITE, 7);
    m.event(70, 7, "f2fs_sync_node_pages", Phase::End, &[]);
    m.event(95, 7, "f2fs_block_operations", Phase::End, &[]);
    m.holds(7, (10, 95), "sbi->cp_rwsem", 3);
    m.event(100, 7, "f2fs_write_checkpoint", Phase::End, &[]);
    let report = m.explain();
    let [asked, frozen] = &report.kinds[0].slowest[..] else { panic!("{report:?}") };
    assert_eq!(tenths(&frozen.parts), [(Cause::Freeze, 75), (Cause::Work, 20), (Cause::Lock, 5)]);
    let steps = &frozen.parts[0].parts;
    assert_eq!(tenths(steps), [(Cause::Step, 50), (Cause::Work, 25)]);
    assert_eq!(steps[0].what, "f2fs_sync_node_pages, operations frozen");
    assert_eq!(tenths(&steps[0].parts), [(Cause::Device, 50)]);
    assert_eq!(asked.parts[0].what, "a checkpoint (non regular) by tg-ckpt");
    let checkpoint = &report.kinds[2].slowest[0];
    assert_eq!(checkpoint.asked_by, ["tg-fuse-1 (an fsync of inode 4: non regular)"]);
    assert_eq!(tenths(&checkpoint.parts), [(Cause::Step, 60), (Cause::Work, 25), (Cause::Work, 10)]);
}

#[test]
fn somebodys_flush_is_named_after_them() {
    let mut m = fsync("f2fs_wait_for_flush", 100, &[("thread", 2)]);
    m.event(0, 2, "vfs_fsync_range", Phase::Begin, &[("ino", 4)]);
    m.span(2, (0, 100), "f2fs_issue_flush", &[]).request_by(2, (30, 100), 2, FLUSH, 0);
    m.span(2, (0, 30), "f2fs_wait_for_fsyncs", &[]);
    m.event(110, 2, "vfs_fsync_range", Phase::End, &[]);
    // The wait for company is within the flush.
    m.0.sort_by_key(|e| (e.at, e.thread));
    let report = m.explain();
    let part = &report.kinds[0].slowest[1].parts[0];
    assert_eq!(part.what, "a flush that tg-fuse-1 (an fsync of inode 4) issued");
    assert_eq!(tenths(&part.parts), [(Cause::Flush, 70), (Cause::Company, 30)]);
}

/// The system tells that the thread was ready to run at the end of a wait.
#[test]
fn the_end_of_a_wait_may_be_one_for_a_processor() {
    let mut m = Made::default();
    m.cpu(0, 1, 0, Some(0));
    m.event(0, 1, "vfs_fsync_range", Phase::Begin, &[("ino", 5)]);
    m.span(1, (10, 100), "f2fs_issue_flush", &[]).request_by(1, (10, 100), 1, FLUSH, 0);
    m.cpu(100, 1, 10, Some(40));
    m.event(110, 1, "vfs_fsync_range", Phase::End, &[]);
    m.cpu(110, 1, 20, Some(40));
    assert_eq!(m.parts(), [(Cause::Flush, 50), (Cause::Processor, 40), (Cause::Running, 20)]);
}

/// A thread that had no processor before the event would have waited anyway.
#[test]
fn a_delay_counts_from_when_what_was_waited_for_was_done() {
    let mut m = Made::default();
    m.cpu(0, 1, 0, Some(0));
    m.event(0, 1, "vfs_fsync_range", Phase::Begin, &[("ino", 5)]);
    m.span(1, (0, 100), "f2fs_issue_checkpoint", &[]);
    m.event(100, 1, "vfs_fsync_range", Phase::End, &[]);
    m.cpu(100, 1, 0, Some(95)).span(7, (0, 70), "f2fs_write_checkpoint", &[("reason", 0)]);
    assert_eq!(m.parts(), [(Cause::Checkpoint, 70), (Cause::Processor, 30)]);
}

/// Time without a name is divided by the system's accounts of the thread.
#[test]
fn what_is_left_ran_or_waited_for_a_processor_or_has_no_name() {
    let split = |delayed: Option<u64>| {
        let mut m = Made::default();
        m.cpu(0, 1, 1000, delayed.map(|_| 500)).span(1, (0, 100), "vfs_fsync_range", &[("ino", 5)]);
        m.cpu(100, 1, 1030, delayed.map(|d| 500 + d));
        let slow = m.explain().kinds[0].slowest[0].clone();
        (tenths(&slow.parts), slow.named)
    };
    let (running, waiting) = ((Cause::Running, 30), Cause::Processor);
    assert_eq!(split(None), (vec![(waiting, 70), running], 1.0));
    assert_eq!(split(Some(70)), (vec![(waiting, 70), running], 1.0));
    assert_eq!(split(Some(50)), (vec![(waiting, 50), running, (Cause::Unknown, 20)], 0.8));
}

/// The causes lead from a thread to its waker, and to the request whose end wakes the waker.
#[test]
fn who_sleeps_waits_for_what_the_thread_does_that_wakes_it() {
    let mut m = Made::default();
    m.cpu(0, 1, 0, Some(0));
    m.event(0, 1, "vfs_fsync_range", Phase::Begin, &[("ino", 5)]);
    m.cpu(10, 1, 10, Some(0)).sleeps(1, (10, 100), 7).cpu(100, 1, 10, Some(5));
    m.event(100, 1, "vfs_fsync_range", Phase::End, &[]);
    // The flusher computes, sends its request, sleeps until thread 90 reports its end, computes, and wakes
    // the first thread.
    m.cpu(0, 8, 0, Some(0)).cpu(30, 8, 20, Some(10)).request(8, (30, 70), WRITE, 1000);
    m.sleeps(8, (30, 71), 9).wakes(70, 90, 9).cpu(71, 8, 20, Some(11)).cpu(95, 8, 44, Some(11));
    m.wakes(95, 8, 7);
    // Other wake-ups, which do not count.
    m.wakes(90, 2, 9).wakes(101, 2, 7);
    let report = m.explain();
    let s = &report.kinds[0].slowest[0];
    let want = [(Cause::Thread, 85), (Cause::Running, 10), (Cause::Processor, 5)];
    assert_eq!(tenths(&s.parts), want, "{:#?}", s.parts);
    assert_eq!(s.parts[0].what, "tg-flusher, which wakes it at y/src/z.rs:12");
    let of =
        |cause| s.parts[0].parts.iter().filter(|p| p.cause == cause).map(|p| p.ns * 10 / MS).sum::<u64>();
    assert_eq!([Cause::Device, Cause::Running].map(of), [40, 37], "{:#?}", s.parts[0].parts);
    assert!(s.named > 0.99, "{s:#?}");
}

/// A sleep that nothing ends has no name, and neither has a sleep that a thread without recorded work ends.
#[test]
fn a_sleep_without_an_end_has_no_name() {
    let slept = |woken: bool| {
        let mut m = Made::default();
        m.event(0, 1, "vfs_fsync_range", Phase::Begin, &[("ino", 5)]);
        m.sleeps(1, (0, 100), 7);
        m.event(100, 1, "vfs_fsync_range", Phase::End, &[]);
        if woken {
            m.wakes(100, 2, 7);
        }
        m.explain().kinds[0].slowest[0].clone()
    };
    let [alone, woken] = [false, true].map(slept);
    assert_eq!((tenths(&alone.parts), alone.named), (vec![(Cause::Unknown, 100)], 0.0));
    assert_eq!((tenths(&woken.parts), woken.named), (vec![(Cause::Thread, 100)], 0.0));
}

/// Two threads flush at one time, and the second flush ends first.
#[test]
fn flushes_that_overlap_are_each_their_own() {
    let mut m = Made::default();
    for (thread, from, to) in [(1, 0, 500), (2, 100, 300)] {
        m.event(from, thread, "vfs_fsync_range", Phase::Begin, &[("ino", thread.into())]);
        m.request_by(thread, (from, to), thread, FLUSH, 0);
        m.event(to, thread, "vfs_fsync_range", Phase::End, &[]);
    }
    let report = m.explain();
    let parts: Vec<_> = report.kinds[0].slowest.iter().map(|s| tenths(&s.parts)).collect();
    assert_eq!(parts, [[(Cause::Flush, 500)], [(Cause::Flush, 200)]]);
}

/// Time in which no thread is known to have held a lock has no name, except for the time of a switch of threads.
#[test]
fn a_wait_for_a_lock_without_a_holder_has_no_name() {
    let named = |held: u64| {
        let mut m = Made::default();
        m.event(0, 1, "vfs_fsync_range", Phase::Begin, &[("ino", 5)]);
        m.waits(1, (0, 100), "inode->i_rwsem", 33);
        m.event(100, 1, "vfs_fsync_range", Phase::End, &[]);
        if held > 0 {
            m.span(2, (0, held), "f2fs_issue_flush", &[]).request_by(2, (0, held), 2, FLUSH, 0);
            m.holds(2, (0, held), "inode->i_rwsem", 33);
        }
        let s = m.explain().kinds[0].slowest[0].clone();
        assert!(s.parts.iter().all(|p| p.cause == Cause::Lock), "{s:?}");
        s.named
    };
    assert_eq!([0, 40, 99].map(named), [0.0, 0.4, 1.0]);
}
