//! The operations that are reported, and the words for them.

use super::made::*;
use super::*;
use tidegate_rt::Nanos;
use tidegate_rt::trace::{Lasting, Phase};

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

/// A thread's oldest events were dropped: an earlier operation is only counted.
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

/// An operation that has not ended does not count as fast, and neither does one whose events were dropped.
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

/// A flush within another thread's flush counts once, and so does time with two causes of one advice.
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

/// An operation that was running when the recording began took longer than is known.
#[test]
fn what_began_before_is_not_told() {
    let mut o = Observed { since: Nanos(11 * MS / 10), until: Nanos(900 * MS / 10), ..Observed::default() };
    let mut m = Made::default();
    m.span(1, (10, 700), "vfs_fsync_range", &[]).span(2, (11, 20), "vfs_fsync_range", &[]);
    m.0.sort_by_key(|e| e.at);
    o.recorded.events = m.0;
    let fsyncs = &explain(&o, 0, 10).kinds[0];
    assert_eq!((fsyncs.count, fsyncs.max_ns, fsyncs.slowest.len()), (1, 9 * MS / 10, 1));
}
