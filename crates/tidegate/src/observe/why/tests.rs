//! Recordings made by hand, of which the truth is known.

use super::*;
use tidegate_rt::Nanos;
use tidegate_rt::trace::causes::UNKNOWN;
use tidegate_rt::trace::{Event, Lasting, NO_ARGS, Phase};

const MS: u64 = 1_000_000;
const WRITE: u64 = 1;
const FLUSH: u64 = 2;
const DISCARD: u64 = 3;

/// Times are in tenths of milliseconds.
#[derive(Default)]
struct Made(Vec<Event>);

impl Made {
    fn event(
        &mut self,
        at: u64,
        thread: u32,
        name: &'static str,
        phase: Phase,
        args: &[(&'static str, u64)],
    ) {
        let mut all = NO_ARGS;
        all[..args.len()].copy_from_slice(args);
        self.0.push(Event { at: Nanos(at * MS / 10), thread, name, phase, args: all });
    }

    fn span(
        &mut self,
        thread: u32,
        (from, to): (u64, u64),
        name: &'static str,
        args: &[(&'static str, u64)],
    ) -> &mut Self {
        self.event(from, thread, name, Phase::Begin, args);
        self.event(to, thread, name, Phase::End, &[]);
        self
    }

    fn waits(&mut self, thread: u32, (from, to): (u64, u64), class: &'static str, lock: u64) -> &mut Self {
        self.event(from, thread, class, Phase::ContentionBegin, &[("x.rs", 1), ("lock", lock)]);
        self.event(to, thread, class, Phase::ContentionEnd, &[]);
        self
    }

    fn holds(&mut self, thread: u32, (from, to): (u64, u64), class: &'static str, lock: u64) -> &mut Self {
        let held = (to - from) * MS / 10;
        self.event(to, thread, class, Phase::Instant, &[("held", held), ("lock", lock)]);
        self
    }

    /// A request of 4 KiB at a block, which thread 90 completes.
    fn request(&mut self, thread: u32, (from, to): (u64, u64), op: u64, block: u64) -> &mut Self {
        self.request_by(thread, (from, to), 90, op, block)
    }

    fn request_by(
        &mut self,
        thread: u32,
        (from, to): (u64, u64),
        ends: u32,
        op: u64,
        block: u64,
    ) -> &mut Self {
        let args = [("sector", block * 8), ("bytes", 4096), ("op", op), ("flags", 0)];
        self.event(from, thread, "block_rq_issue", Phase::Instant, &args);
        self.event(to, ends, "block_rq_complete", Phase::Instant, &args);
        self
    }

    fn page(&mut self, at: u64, thread: u32, ino: u64, block: u64) -> &mut Self {
        let args = [("ino", ino), ("index", 0), ("addrs", block), ("what", 1)];
        self.event(at, thread, "f2fs_submit_page_write", Phase::Begin, &args);
        self.event(at, thread, "f2fs_submit_page_write", Phase::End, &[]);
        self
    }

    /// A thread sleeps at a queue.
    fn sleeps(&mut self, thread: u32, (from, to): (u64, u64), queue: u64) -> &mut Self {
        self.event(from, thread, "schedule", Phase::Begin, &[("/x/crates/y/src/z.rs", 12), ("queue", queue)]);
        self.event(to, thread, "schedule", Phase::End, &[]);
        self
    }

    fn wakes(&mut self, at: u64, thread: u32, queue: u64) -> &mut Self {
        self.event(at, thread, "sched_wakeup", Phase::Instant, &[("queue", queue)]);
        self
    }

    fn cpu(&mut self, at: u64, thread: u32, ran: u64, delayed: Option<u64>) -> &mut Self {
        let delayed = delayed.map_or(UNKNOWN, |d| d * MS / 10);
        let args = [("ran", ran * MS / 10), ("delayed", delayed)];
        self.event(at, thread, "thread_cpu", Phase::Instant, &args);
        self
    }

    fn explain(&mut self) -> Report {
        // As a recording has them: spans that begin at one time, the longest first, as they were made here.
        self.0.sort_by_key(|e| e.at);
        let mut o = Observed::default();
        o.recorded.events = std::mem::take(&mut self.0);
        for (thread, name) in [
            (1, "tg-fuse-0"),
            (2, "tg-fuse-1"),
            (3, "tg-jbd2"),
            (7, "tg-ckpt"),
            (8, "tg-flusher"),
            (9, "tg-f2fs-gc"),
        ] {
            o.recorded.threads.insert(thread, name.into());
        }
        explain(&o, 0, 10)
    }

    /// The parts of the only fsync: causes, and tenths of milliseconds.
    fn parts(&mut self) -> Vec<(Cause, u64)> {
        tenths(&self.explain().kinds[0].slowest[0].parts)
    }
}

fn tenths(parts: &[Part]) -> Vec<(Cause, u64)> {
    parts.iter().map(|p| (p.cause, p.ns * 10 / MS)).collect()
}

/// An fsync of inode 5 by thread 1 that is a wait called so, from end to end.
fn fsync(name: &'static str, until: u64, args: &[(&'static str, u64)]) -> Made {
    let mut m = Made::default();
    m.event(0, 1, "vfs_fsync_range", Phase::Begin, &[("ino", 5), ("datasync", 0)]);
    m.span(1, (0, until), name, args);
    m.event(until, 1, "vfs_fsync_range", Phase::End, &[]);
    m
}

#[test]
fn a_wait_for_pages_is_divided_by_what_was_at_the_device() {
    let mut m = fsync("folio_wait_writeback", 100, &[]);
    m.page(0, 1, 5, 1000).request(1, (10, 90), WRITE, 1000);
    // Another's write ends later: it is not waited for.
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
    // Nothing says why they were not sent at first.
    assert_eq!((s.ino, s.named, &*s.thread), (Some(5), 0.9, "tg-fuse-0"));
}

#[test]
fn time_in_the_elevator_is_not_the_devices() {
    let mut m = fsync("folio_wait_writeback", 100, &[]);
    let args = |block: u64, bytes| [("sector", block * 8), ("bytes", bytes), ("op", WRITE), ("flags", 0)];
    m.page(0, 1, 5, 1001);
    // The second joins the first in the elevator and is issued with it.
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

/// That the thread was ready to run at the end of a wait is known from the system.
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

/// A thread that had no processor while it waited would have waited anyway.
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

/// From a thread to the one that wakes it, to the request whose end wakes that.
#[test]
fn who_sleeps_waits_for_what_the_thread_does_that_wakes_it() {
    let mut m = Made::default();
    m.cpu(0, 1, 0, Some(0));
    m.event(0, 1, "vfs_fsync_range", Phase::Begin, &[("ino", 5)]);
    m.cpu(10, 1, 10, Some(0)).sleeps(1, (10, 100), 7).cpu(100, 1, 10, Some(5));
    m.event(100, 1, "vfs_fsync_range", Phase::End, &[]);
    // The flusher computes, sends its request, sleeps until thread 90 tells of its end, computes, and wakes
    // the first.
    m.cpu(0, 8, 0, Some(0)).cpu(30, 8, 20, Some(10)).request(8, (30, 70), WRITE, 1000);
    m.sleeps(8, (30, 71), 9).wakes(70, 90, 9).cpu(71, 8, 20, Some(11)).cpu(95, 8, 44, Some(11));
    m.wakes(95, 8, 7);
    // Others that wake others.
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

/// A sleep that nothing ends has no name, nor has one of a thread that nobody knows to have done anything.
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

#[test]
fn the_slowest_come_first_and_no_others() {
    let mut m = Made::default();
    for i in 0..30u64 {
        m.span(1, (i * 1000, i * 1000 + 100 + i * 7 % 30), "vfs_fsync_range", &[("ino", i)]);
    }
    m.0.sort_by_key(|e| e.at);
    let mut o = Observed::default();
    o.recorded.events = m.0;
    let report = explain(&o, 12 * MS, 5);
    let k = &report.kinds[0];
    let took: Vec<u64> = k.slowest.iter().map(|s| s.ns * 10 / MS).collect();
    assert_eq!((k.count, k.over, k.max_ns * 10 / MS, took), (30, 9, 129, vec![129, 128, 127, 126, 125]));
}

#[test]
fn the_page_says_what_to_do() {
    let mut m = fsync("folio_wait_writeback", 1000, &[]);
    m.page(0, 1, 5, 1000).request(1, (0, 1000), WRITE, 1000).request(9, (0, 900), DISCARD, 5000);
    let report = m.explain();
    assert_eq!(report.advice[0].cause, Cause::DeviceDiscard);
    let mut out = Vec::new();
    page::write(&report, "vol.img", &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    for want in [
        " 1. fsync of 100.0 ms: inode 5, at 0.000 s, by tg-fuse-0; 100.0 % named",
        "     90.0 %   90.0 ms  its own pages: at the device, as were discards of tg-f2fs-gc",
        "   90.0 %  discards: leave discard_io_aware on",
    ] {
        assert!(text.contains(want), "{want}\nin\n{text}");
    }
    assert!(text.lines().all(|l| l.chars().count() <= 120), "{text}");
    let json = serde_json::to_string(&report).unwrap();
    assert!(json.contains("\"cause\":\"device_discard\""), "{json}");
}

/// Transaction 7 is locked by thread 3 while the flusher holds a handle and waits for room in the queue.
fn commit() -> Made {
    commit_by(3)
}

/// Likewise; this thread ends it.
fn commit_by(last: u32) -> Made {
    let mut m = Made::default();
    let tid = [("transaction", 7)];
    m.event(0, 8, "wb_start", Phase::Begin, &[("pages", 1024)]);
    m.event(0, 8, "writeback_single_inode", Phase::Begin, &[("ino", 12), ("dirty", 900)]);
    m.span(8, (20, 870), "blk_mq_get_tag", &[]);
    m.request(8, (0, 900), WRITE, 1000);
    let handle = |took: u64| [("transaction", 7), ("interval", took * MS / 10), ("requested_blocks", 8)];
    // Another handle that ended earlier, and one of the next transaction.
    m.event(150, 2, "jbd2_handle_stats", Phase::Instant, &handle(140));
    m.event(880, 8, "jbd2_handle_stats", Phase::Instant, &handle(880));
    m.event(950, 2, "jbd2_handle_stats", Phase::Instant, &[("transaction", 8), ("interval", 1)]);
    m.event(885, 8, "writeback_single_inode", Phase::End, &[]);
    m.event(885, 8, "wb_start", Phase::End, &[]);
    m.event(100, 3, "jbd2_commit_locking", Phase::Instant, &tid);
    m.span(3, (100, 880), "jbd2_journal_wait_updates", &tid);
    m.event(880, 3, "jbd2_journal_commit_transaction", Phase::Begin, &tid);
    m.event(880, 3, "jbd2_commit_flushing", Phase::Instant, &tid);
    m.event(880, 3, "jbd2_commit_logging", Phase::Instant, &tid);
    m.log(3, (890, 900, 980), 5000);
    m.event(895, 3, "jbd2_journal_commit_transaction", Phase::End, &[]);
    m.log(3, (985, 990, 1090), 5001);
    m.event(1100, last, "jbd2_end_commit", Phase::Instant, &tid);
    m
}

impl Made {
    /// A write of the log: when an elevator gets it, when the device does, and when it ends.
    fn log(&mut self, thread: u32, (inserted, issued, done): (u64, u64, u64), block: u64) -> &mut Self {
        let flags = tidegate_block::BioFlags::META.bits().into();
        let args = [("sector", block * 8), ("bytes", 4096), ("op", WRITE), ("flags", flags)];
        for (at, name) in
            [(inserted, "block_rq_insert"), (issued, "block_rq_issue"), (done, "block_rq_complete")]
        {
            self.event(at, thread, name, Phase::Instant, &args);
        }
        self
    }
}

#[test]
fn a_commit_names_the_handle_that_it_waits_for_and_where_that_was() {
    let report = commit().explain();
    let kind = report.kinds.iter().find(|k| k.operation == Operation::Commit).unwrap();
    let s = &kind.slowest[0];
    assert_eq!((kind.count, s.transaction, s.ns, &*s.thread), (1, Some(7), 100 * MS, "tg-jbd2"));
    assert_eq!(tenths(&s.parts), [(Cause::Step, 780), (Cause::Step, 220)]);
    let [locked, logging] = &s.parts[..] else { panic!("{:?}", s.parts) };
    assert_eq!((&*locked.what, &*logging.what), ("locked", "logging"));
    let handle = &locked.parts[0];
    assert_eq!(handle.what, "a handle of tg-flusher (write-back of inode 12)");
    assert_eq!((handle.cause, handle.ns), (Cause::Handle, 78 * MS));
    assert_eq!((handle.parts[0].cause, handle.parts[0].ns), (Cause::Room, 77 * MS));
    let within: Vec<_> = logging.parts.iter().map(|p| (p.cause, p.ns * 10 / MS)).collect();
    let want = [(Cause::Device, 180), (Cause::Elevator, 15), (Cause::Unknown, 15), (Cause::Work, 10)];
    assert_eq!(within, want, "{:?}", logging.parts);
    // Before, between and after the writes of the log nothing says what the thread did, nor that the flusher
    // ran for 1 ms.
    assert_eq!((s.named * 1000.0).round(), 1000.0 - 25.0 - 10.0);
}

#[test]
fn a_handle_for_the_end_of_io_is_not_the_only_one() {
    let mut m = commit();
    // The flusher's handle ended at 70 ms; at 72 another one began in the locked transaction.
    m.0.retain(|e| e.name != "jbd2_handle_stats" && e.name != "blk_mq_get_tag");
    m.span(8, (20, 690), "blk_mq_get_tag", &[]);
    let handle = |took: u64| [("transaction", 7), ("interval", took * MS / 10), ("requested_blocks", 8)];
    m.event(700, 8, "jbd2_handle_stats", Phase::Instant, &handle(700));
    m.event(880, 2, "jbd2_handle_stats", Phase::Instant, &handle(160));
    let report = m.explain();
    let locked = &report.kinds.iter().find(|k| k.operation == Operation::Commit).unwrap().slowest[0].parts[0];
    let handles: Vec<_> =
        locked.parts.iter().filter(|p| p.cause == Cause::Handle).map(|p| (&*p.what, p.ns / MS)).collect();
    let want = [("a handle of tg-flusher (write-back of inode 12)", 60), ("a handle of tg-fuse-1", 16)];
    assert_eq!(handles, want, "{locked:?}");
}

/// Time that nobody can name counts as such: a handle that is kept asleep in a span that says nothing, a
/// phase of which nothing is known, and time that no phase covers.
#[test]
fn a_commit_has_no_name_where_only_a_span_goes_on() {
    let named = |made: &mut Made| {
        let report = made.explain();
        let kind = report.kinds.iter().find(|k| k.operation == Operation::Commit).unwrap();
        (kind.slowest[0].named * 1000.0).round()
    };
    let whole = 965.0;
    assert_eq!(named(&mut commit()), whole);
    let mut asleep = commit();
    asleep.0.retain(|e| e.name != "blk_mq_get_tag");
    assert_eq!(named(&mut asleep), whole - 770.0, "the handle");
    // A processor had its thread for 40 of 80 ms, 2 of them perhaps before or after.
    let mut ran = commit();
    ran.0.retain(|e| e.name != "blk_mq_get_tag");
    ran.cpu(90, 8, 1000, Some(0)).cpu(890, 8, 1400, Some(0));
    assert_eq!(named(&mut ran), whole - 770.0 + 380.0);
    let mut silent = commit();
    silent.0.retain(|e| !e.name.starts_with("block_rq_"));
    assert_eq!(named(&mut silent), whole - 195.0, "the log");
}

/// Of 130 ns, a phase of 100 is known for 60; a handle of which no part is known is only somebody's.
#[test]
fn what_no_part_covers_has_no_name() {
    let phase = Part::new(Cause::Step, "locked", 100).with(vec![Part::new(Cause::Device, "the log", 60)]);
    assert_eq!(part::unnamed(&[phase], 130), 40 + 30);
    let handle = Part::new(Cause::Handle, "a handle", 10);
    assert_eq!(part::unnamed(std::slice::from_ref(&handle), 10), 10);
    let room = handle.with(vec![Part::new(Cause::Room, "room", 10)]);
    assert_eq!(part::unnamed(&[room], 10), 0);
}

#[test]
fn who_waits_for_a_commit_is_told_what_that_waits_for() {
    let mut m = commit();
    m.event(500, 1, "vfs_fsync_range", Phase::Begin, &[("ino", 5)]);
    m.span(1, (500, 1100), "jbd2_log_wait_commit", &[("transaction", 7)]);
    m.event(1101, 1, "vfs_fsync_range", Phase::End, &[]);
    m.event(500, 2, "vfs_fsync_range", Phase::Begin, &[("ino", 6)]);
    m.span(2, (500, 880), "wait_transaction_locked", &[]);
    m.event(900, 2, "vfs_fsync_range", Phase::End, &[]);
    let report = m.explain();
    let [asked, shut_out] = &report.kinds[0].slowest[..] else { panic!("{report:?}") };
    assert_eq!(asked.parts[0].what, "the commit of transaction 7 by tg-jbd2");
    assert_eq!((asked.parts[0].cause, asked.parts[0].ns), (Cause::Commit, 60 * MS));
    assert_eq!(tenths(&asked.parts[0].parts), [(Cause::Step, 380), (Cause::Step, 220)]);
    assert_eq!(tenths(&shut_out.parts[0].parts), [(Cause::Step, 380)]);
    assert_eq!(shut_out.parts[0].parts[0].parts[0].what, "a handle of tg-flusher (write-back of inode 12)");
}

/// The thread that wrote the record waits for a processor before it wakes those that wait for the commit; one
/// of them only comes then.
#[test]
fn time_between_a_record_and_its_waiters_is_its_writers() {
    let mut m = commit();
    for (thread, from) in [(1, 500), (2, 1200)] {
        m.event(from, thread, "vfs_fsync_range", Phase::Begin, &[("ino", thread.into())]);
        m.span(thread, (from, 1500), "jbd2_log_wait_commit", &[("transaction", 7)]);
        m.event(1500, thread, "vfs_fsync_range", Phase::End, &[]);
    }
    m.cpu(1100, 3, 100, Some(0)).cpu(1500, 3, 110, Some(390));
    let report = m.explain();
    for (s, late) in report.kinds[0].slowest.iter().zip([400, 300]) {
        assert_eq!((s.parts[0].cause, s.parts[0].ns), (Cause::Commit, s.ns), "{s:?}");
        let told = s.parts[0].parts.iter().find(|p| p.what == "behind its record, until that was told");
        let told = told.unwrap_or_else(|| panic!("{s:?}"));
        assert_eq!(told.ns * 10 / MS, late, "{s:?}");
        assert_eq!((told.parts[0].cause, told.parts[0].ns * 40 / told.ns), (Cause::Processor, 39), "{s:?}");
    }
    assert_eq!(report.kinds[0].slowest.len(), 2);
}

/// Two threads flush at the same time, and the second is done first.
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

/// An fsync that begins to wait when the blocks are sent: from then on another thread has the commit, and the one that
/// sent them waits for work.
#[test]
fn a_commit_whose_blocks_are_sent_is_the_record_writers() {
    let mut m = commit_by(4);
    m.event(1050, 1, "vfs_fsync_range", Phase::Begin, &[("ino", 5)]);
    m.span(1, (1050, 1101), "jbd2_log_wait_commit", &[("transaction", 7)]);
    m.event(1101, 1, "vfs_fsync_range", Phase::End, &[]);
    m.sleeps(3, (1000, 1300), 5).wakes(1299, 1, 5);
    m.cpu(1085, 4, 0, Some(0)).cpu(1101, 4, 16, Some(0));
    let report = m.explain();
    let s = &report.kinds[0].slowest[0];
    assert!(!format!("{s:?}").contains("which wakes it"), "{s:?}");
    assert!(s.named > 0.99, "{s:?}");
}

/// A thread's oldest events were dropped: an operation from before is counted alone.
#[test]
fn operations_before_dropped_events_are_not_explained() {
    let mut m = Made::default();
    for (thread, from, to) in [(1, 0, 500), (2, 600, 700)] {
        m.event(from, thread, "vfs_fsync_range", Phase::Begin, &[("ino", thread.into())]);
        m.event(to, thread, "vfs_fsync_range", Phase::End, &[]);
    }
    m.0.sort_by_key(|e| e.at);
    let mut o = Observed::default();
    (o.recorded.events, o.recorded.dropped) = (m.0, 3);
    o.recorded.complete_from = Nanos(550 * MS / 10);
    let report = explain(&o, 0, 10);
    let fsyncs = &report.kinds[0];
    assert_eq!((fsyncs.count, fsyncs.over, fsyncs.slowest.len()), (2, 2, 1));
    assert_eq!((fsyncs.slowest[0].ino, report.explained_from_ns), (Some(2), 55 * MS));
    let mut page = Vec::new();
    page::write(&report, "x", &mut page).unwrap();
    assert!(String::from_utf8(page).unwrap().contains("the first 55.0 ms are counted alone"));
}

fn page_of(report: &Report) -> String {
    let mut page = Vec::new();
    page::write(report, "x", &mut page).unwrap();
    String::from_utf8(page).unwrap()
}

/// An operation that goes on is no fast one, nor is one whose events were dropped.
#[test]
fn what_has_not_ended_is_told() {
    let mut m = Made::default();
    m.span(1, (10, 20), "vfs_fsync_range", &[("ino", 5)]);
    m.event(100, 3, "jbd2_commit_locking", Phase::Instant, &[("transaction", 7)]);
    m.0.sort_by_key(|e| e.at);
    let mut o = Observed { until: Nanos(900 * MS / 10), ..Observed::default() };
    o.recorded.events = m.0;
    let lasting = |name, thread, since| Lasting { name, thread, since: Nanos(since * MS / 10) };
    o.recorded.lasting = vec![
        lasting("vfs_fsync_range", 1, 100),
        lasting("vfs_fsync_range", 2, 890),
        lasting("bio_wait", 2, 1),
    ];
    let report = explain(&o, 50 * MS, 10);
    let figures = |k: &Kind| (k.count, k.over, k.lasting, k.lasting_over, k.lasting_ns / MS);
    let found: Vec<_> = report.kinds.iter().map(figures).collect();
    assert_eq!(found, [(1, 0, 2, 1, 80), (0, 0, 0, 0, 0), (0, 0, 0, 0, 0), (0, 0, 1, 1, 80)]);
    let page = page_of(&report);
    for want in [
        "             2 had not ended, the longest after 80.0 ms; 1 over 50.0 ms",
        "  commit     none ended",
        "Of those that took longer than 50.0 ms, 2 had not ended at the end",
    ] {
        assert!(page.contains(want), "{want}\nin\n{page}");
    }
    assert!(!page.contains("Nothing"), "{page}");

    o.recorded.lasting.clear();
    o.recorded.events.truncate(2);
    o.recorded.complete_from = o.until;
    let page = |over| page_of(&explain(&o, over, 10));
    assert!(
        page(MS / 2).contains("longer than 500 us, 1 began before events that were dropped"),
        "{}",
        page(MS / 2)
    );
    assert!(page(MS).contains("Nothing that began meanwhile took longer than 1.0 ms"), "{}", page(MS));
}

/// Time for which nobody is known to have had a lock has no name, beyond the one that a switch of threads takes.
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

/// A flush within a flush of another's is one, and so is what two causes of one advice are about.
#[test]
fn advice_is_about_no_more_than_all_time() {
    let part = |cause, ns| Part::new(cause, "", ns);
    let flush = part(Cause::Flush, 60).with(vec![part(Cause::DeviceFlush, 50), part(Cause::Device, 10)]);
    let shared = part(Cause::DeviceShared, 40).with(vec![part(Cause::Room, 40)]);
    let mut report = Made::default().span(1, (0, 100), "vfs_fsync_range", &[]).explain();
    report.kinds[0].slowest[0].ns = 100;
    report.kinds[0].slowest[0].parts = vec![flush, shared];
    let found: Vec<_> =
        advice::of(&report.kinds).iter().map(|a| (a.cause, (a.share * 100.0).round())).collect();
    assert_eq!(found, [(Cause::Flush, 60.0), (Cause::DeviceShared, 40.0), (Cause::Device, 10.0)]);
}
