//! Events as the kernel's `trace_pipe` prints them.
//!
//! A span prints a line at its beginning and one at its end; the latter says how long it took. Spans for which the
//! kernel has other names (`f2fs_sync_file_enter`, states of `f2fs_write_checkpoint`) get these. The processor is known
//! only for `f2fs_submit_write_bio`; elsewhere `[000]` means that it is not known.

use super::Observed;
use super::words::{addresses, arg, block_type, cp_for, cp_reason, cpu, page_write, rw, rwbs};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use tidegate_rt::trace::{Event, Phase};

/// Writes the events.
///
/// # Errors
/// Those of writing.
pub fn write(observed: &Observed, to: &mut impl Write) -> io::Result<()> {
    let r = &observed.recorded;
    let kept = r.events.iter().filter(|e| has_line(e)).count() as u64;
    let written = kept + r.dropped;
    writeln!(to, "# tracer: nop\n#")?;
    writeln!(to, "# entries-in-buffer/entries-written: {kept}/{written}   #dropped: {}", r.dropped)?;
    writeln!(to, "#\n#           TASK-TID     CPU#  |||||  TIMESTAMP  FUNCTION")?;
    writeln!(to, "#              | |         |   |||||     |         |")?;
    let mut open: HashMap<u32, Vec<&Event>> = HashMap::new();
    for e in &r.events {
        let spans = open.entry(e.thread).or_default();
        let begun = match e.phase {
            Phase::Begin | Phase::ContentionBegin => {
                spans.push(e);
                None
            }
            // In a simulated world the beginning may have been dropped.
            Phase::End | Phase::ContentionEnd => spans.pop_if(|b| b.name == e.name),
            Phase::Instant => None,
        };
        let name = r.threads.get(&e.thread).map_or("thread", String::as_str);
        // Readers of these files expect a number, so an unknown one is 0.
        let head = head(name, e.thread, Some(cpu(e).unwrap_or(0)), e.at.0);
        if has_line(e) {
            writeln!(to, "{head}{}", words(e, begun, observed.device, name))?;
        }
    }
    Ok(())
}

/// Whether an event has a line. For a span that is a point in the kernel's traces, only the beginning has
/// one.
fn has_line(e: &Event) -> bool {
    e.name != "f2fs_submit_page_write" || e.phase != Phase::End
}

/// The head of an event's line. `at` is in nanoseconds.
pub(super) fn head(thread: &str, tid: u32, cpu: Option<u32>, at_ns: u64) -> String {
    let (secs, micros) = (at_ns / 1_000_000_000, at_ns / 1000 % 1_000_000);
    let cpu = cpu.map_or("---".into(), |cpu| format!("{cpu:03}"));
    format!("{:>16}-{tid:<7} [{cpu}] ..... {secs:>5}.{micros:06}: ", short(thread))
}

/// `f2fs_submit_write_bio` with its sector and size.
pub(super) fn submit_write_bio(
    device: (u32, u32),
    rw: &str,
    what: &str,
    (sector, size): (u64, u64),
) -> String {
    let dev = dev(device);
    format!("f2fs_submit_write_bio: {dev}, rw = {rw}, {what}, sector = {sector}, size = {size}")
}

fn dev((major, minor): (u32, u32)) -> String {
    format!("dev = ({major},{minor})")
}

/// A name cut to the length of a task's name.
fn short(name: &str) -> &str {
    name.char_indices().nth(15).map_or(name, |(i, _)| &name[..i])
}

fn words(e: &Event, begun: Option<&Event>, device: (u32, u32), task: &str) -> String {
    let dev = dev(device);
    let took = begun.map(|b| e.at.since(b.at).0);
    let n = |name| arg(begun.unwrap_or(e), name).unwrap_or(0);
    match (e.name, e.phase) {
        (class, Phase::ContentionBegin) => {
            format!("contention_begin: {class} ({}:{})", e.args[0].0, e.args[0].1)
        }
        (class, Phase::ContentionEnd) => format!("contention_end: {class}{}", waited(took)),
        ("f2fs_submit_write_bio", _) => {
            submit_write_bio(device, &rw(e), block_type(e), (n("sector"), n("size")))
        }
        ("f2fs_submit_page_write", _) => {
            let ((old, new), (pages, bio)) = (addresses(e), page_write(e));
            format!(
                "{}: {dev}, ino = {}, page_index = 0x{:x}, oldaddr = 0x{old:x}, newaddr = 0x{new:x}, rw = {}, type = {}, \
                 pages = {pages}",
                e.name,
                n("ino"),
                n("index"),
                rw(&bio),
                block_type(&bio),
            )
        }
        ("block_rq_insert" | "block_rq_issue", _) => block(e, device, &format!(" {} ()", n("bytes")), task),
        ("block_rq_complete", _) => block(e, device, " ()", "0"),
        ("f2fs_sync_file", Phase::Begin) => format!("f2fs_sync_file_enter: {dev}{}", fields(e)),
        ("f2fs_sync_file", _) => {
            format!("f2fs_sync_file_exit: {dev}{}{}", fields(begun.unwrap_or(e)), after(took))
        }
        ("f2fs_fsync_checkpoint", _) => {
            format!("{}: {dev}, ino = {}, cp_reason = {}", e.name, n("ino"), cp_reason(n("reason")))
        }
        ("f2fs_write_checkpoint", Phase::Begin) => {
            checkpoint(&dev, cp_for(n("reason")), "start block_ops", None)
        }
        ("f2fs_write_checkpoint", _) => checkpoint(&dev, cp_for(n("reason")), "finish checkpoint", took),
        (name, Phase::Begin) => format!("{name}_enter: {dev}{}", fields(e)),
        (name, Phase::End) => {
            format!("{name}_exit: {dev}{}{}", begun.map(fields).unwrap_or_default(), after(took))
        }
        (name, Phase::Instant) => format!("{name}: {dev}{}", fields(e)),
    }
}

fn checkpoint(dev: &str, reason: &str, state: &str, took: Option<u64>) -> String {
    format!("f2fs_write_checkpoint: {dev}, checkpoint for {reason}, state = {state}{}", after(took))
}

/// `block_rq_issue: 8,0 WS 4096 () 10240 + 8 [task]`
fn block(e: &Event, device: (u32, u32), middle: &str, end: &str) -> String {
    let n = |name| arg(e, name).unwrap_or(0);
    let (sector, sectors) = (n("sector"), n("bytes") / tidegate_block::SECTOR_SIZE);
    format!("{}: {},{} {}{middle} {sector} + {sectors} [{end}]", e.name, device.0, device.1, rwbs(e))
}

fn fields(e: &Event) -> String {
    e.args.iter().filter(|a| !a.0.is_empty()).fold(String::new(), |mut s, (name, n)| {
        let _ = write!(s, ", {name} = {n}");
        s
    })
}

fn after(took: Option<u64>) -> String {
    took.map(|ns| format!(", took = {}.{:03} us", ns / 1000, ns % 1000)).unwrap_or_default()
}

fn waited(took: Option<u64>) -> String {
    took.map(|ns| format!(", waited = {}.{:03} us", ns / 1000, ns % 1000)).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tidegate_rt::Nanos;
    use tidegate_rt::trace::NO_ARGS;

    pub fn event(
        at: u64,
        thread: u32,
        name: &'static str,
        phase: Phase,
        args: &[(&'static str, u64)],
    ) -> Event {
        let mut all = NO_ARGS;
        all[..args.len()].copy_from_slice(args);
        Event { at: Nanos(at), thread, name, phase, args: all }
    }

    pub fn observed(events: Vec<Event>, dropped: u64) -> Observed {
        let mut o = Observed { device: (8, 1), ..Observed::default() };
        o.recorded.threads.insert(3, "tg-flusher".into());
        (o.recorded.events, o.recorded.dropped) = (events, dropped);
        o
    }

    #[test]
    fn lines_are_the_kernels() {
        use Phase::*;
        let sync = 1;
        let events = vec![
            event(900, 3, "dropped its beginning", End, &[]),
            event(1_000_000, 3, "f2fs_sync_file", Begin, &[("ino", 5), ("datasync", 0)]),
            event(1_001_000, 3, "sbi->cp_rwsem", ContentionBegin, &[("fsync.rs", 12)]),
            event(1_501_000, 3, "sbi->cp_rwsem", ContentionEnd, &[]),
            event(
                1_600_000,
                3,
                "f2fs_submit_write_bio",
                Instant,
                &[("sector", 4096), ("size", 8192), ("log", 4), ("flags", sync | 3 << 16)],
            ),
            event(
                1_700_000,
                9,
                "block_rq_issue",
                Instant,
                &[("sector", 8), ("bytes", 4096), ("op", 1), ("flags", sync)],
            ),
            event(1_800_000, 9, "f2fs_submit_page_write", Begin, &[("ino", 5), ("addrs", 7), ("what", 2)]),
            event(1_900_000, 9, "f2fs_submit_page_write", End, &[]),
            event(2_000_000, 3, "f2fs_sync_file", End, &[]),
        ];
        let mut out = Vec::new();
        write(&observed(events, 2), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for line in [
            "# entries-in-buffer/entries-written: 8/10   #dropped: 2",
            "      tg-flusher-3       [000] .....     0.001000: f2fs_sync_file_enter: dev = (8,1), ino = 5, datasync = 0",
            "      tg-flusher-3       [000] .....     0.001001: contention_begin: sbi->cp_rwsem (fsync.rs:12)",
            "      tg-flusher-3       [000] .....     0.001501: contention_end: sbi->cp_rwsem, waited = 500.000 us",
            "      tg-flusher-3       [002] .....     0.001600: f2fs_submit_write_bio: dev = (8,1), rw = WRITE_SYNC, NODE, sector = 4096, size = 8192",
            "          thread-9       [000] .....     0.001700: block_rq_issue: 8,1 WS 4096 () 8 + 8 [thread]",
            "          thread-9       [000] .....     0.001800: f2fs_submit_page_write: dev = (8,1), ino = 5, page_index = 0x0, oldaddr = 0x0, newaddr = 0x7, rw = WRITE, type = DATA, pages = 2",
            "      tg-flusher-3       [000] .....     0.002000: f2fs_sync_file_exit: dev = (8,1), ino = 5, datasync = 0, took = 1000.000 us",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nin\n{text}");
        }
    }
}
