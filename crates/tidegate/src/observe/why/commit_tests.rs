//! Recordings of commits, made by hand, with known causes.

use super::made::*;
use super::*;
use tidegate_rt::trace::Phase;

/// Transaction 7 is locked by thread 3 while the flusher holds a handle and waits for room in the queue.
fn commit() -> Made {
    commit_by(3)
}

/// The same commit, which the thread `last` ends.
fn commit_by(last: u32) -> Made {
    let mut m = Made::default();
    let tid = [("transaction", 7)];
    m.event(0, 8, "wb_start", Phase::Begin, &[("pages", 1024)]);
    m.event(0, 8, "writeback_single_inode", Phase::Begin, &[("ino", 12), ("dirty", 900)]);
    m.span(8, (20, 870), "blk_mq_get_tag", &[]);
    m.request(8, (0, 900), WRITE, 1000);
    let handle = |took: u64| [("transaction", 7), ("interval", took * MS / 10), ("requested_blocks", 8)];
    // Another handle that ended earlier, and a handle of the next transaction.
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
    // The recording does not say what the thread did before, between and after the writes of the log, nor
    // that the flusher ran for 1 ms.
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

/// Time without a known cause counts as such: a handle that sleeps in a span without a cause, a phase of
/// which nothing is known, and time that no phase covers.
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
    // Its thread ran for 40 of 80 ms, 2 of them perhaps before or after.
    let mut ran = commit();
    ran.0.retain(|e| e.name != "blk_mq_get_tag");
    ran.cpu(90, 8, 1000, Some(0)).cpu(890, 8, 1400, Some(0));
    assert_eq!(named(&mut ran), whole - 770.0 + 380.0);
    let mut silent = commit();
    silent.0.retain(|e| !e.name.starts_with("block_rq_"));
    assert_eq!(named(&mut silent), whole - 195.0, "the log");
}

/// Of 130 ns, a phase has 100, of which 60 are known. A handle of which no part is known only names an owner.
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

/// The thread that wrote the record waits for a processor before it wakes the threads that wait for the
/// commit. One of them only comes then.
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

/// An fsync begins to wait when the blocks are sent. From then on another thread runs the commit, and the thread that
/// sent the blocks waits for work.
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
