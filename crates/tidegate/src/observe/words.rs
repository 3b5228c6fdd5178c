//! The meaning of events' numbers, in the kernel's words.

use tidegate_block::{BioFlags, Op};
use tidegate_rt::trace::{Event, NO_ARGS};

/// The number of that name.
pub(super) fn arg(e: &Event, name: &str) -> Option<u64> {
    e.args.iter().find(|a| a.0 == name).map(|a| a.1)
}

fn op(n: u64) -> Option<Op> {
    let all = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes, Op::ZoneReset, Op::ZoneFinish];
    all.into_iter().find(|o| *o as u64 == n)
}

fn flags(n: u64) -> BioFlags {
    BioFlags::from_bits_truncate(n as u16)
}

/// The kind of a request, in the spelling of block events (`rwbs`).
pub(super) fn rwbs(e: &Event) -> String {
    let f = flags(arg(e, "flags").unwrap_or(0));
    let mut s = String::new();
    if f.contains(BioFlags::PREFLUSH) {
        s.push('F');
    }
    s.push(match arg(e, "op").and_then(op) {
        Some(Op::Read) => 'R',
        Some(Op::Write | Op::WriteZeroes) => 'W',
        Some(Op::Flush) => 'F',
        Some(Op::Discard) => 'D',
        Some(Op::ZoneReset | Op::ZoneFinish) | None => 'N',
    });
    for (flag, letter) in
        [(BioFlags::FUA, 'F'), (BioFlags::RAHEAD, 'A'), (BioFlags::SYNC, 'S'), (BioFlags::META, 'M')]
    {
        if f.contains(flag) {
            s.push(letter);
        }
    }
    s
}

/// The old and the new address of `f2fs_submit_page_write`.
pub(super) fn addresses(e: &Event) -> (u32, u32) {
    let addrs = arg(e, "addrs").unwrap_or(0);
    ((addrs >> 32) as u32, addrs as u32)
}

/// For `f2fs_submit_page_write`: the number of pages, and an event with the `log` and the `flags` of their
/// bio.
pub(super) fn page_write(e: &Event) -> (u64, Event) {
    let what = arg(e, "what").unwrap_or(0);
    let mut bio = Event { args: NO_ARGS, ..*e };
    (bio.args[0], bio.args[1]) = (("log", what >> 12 & 0xF), ("flags", what >> 16));
    (what & 0xFFF, bio)
}

/// The processor of `f2fs_submit_write_bio`, if it is known.
pub(super) fn cpu(e: &Event) -> Option<u32> {
    let one_more = if e.name == "f2fs_submit_write_bio" { arg(e, "flags")? >> 16 } else { 0 };
    one_more.checked_sub(1).map(|n| n as u32)
}

/// The kind of a bio's write, in the spelling of F2FS events.
pub(super) fn rw(e: &Event) -> String {
    let f = flags(arg(e, "flags").unwrap_or(0));
    let durable = BioFlags::PREFLUSH | BioFlags::FUA;
    let base = match f {
        f if f.contains(durable) => "WRITE_FLUSH_FUA",
        f if f.contains(BioFlags::FUA) => "WRITE_FUA",
        f if f.contains(BioFlags::SYNC) => "WRITE_SYNC",
        _ => "WRITE",
    };
    let hints: String = [(BioFlags::META, 'M'), (BioFlags::PRIO, 'P')]
        .into_iter()
        .filter_map(|(flag, letter)| f.contains(flag).then_some(letter))
        .collect();
    if hints.is_empty() { base.to_string() } else { format!("{base}({hints})") }
}

/// The blocks of a log: hot, warm and cold data, then nodes.
pub(super) fn block_type(e: &Event) -> &'static str {
    match arg(e, "log") {
        Some(0..3) => "DATA",
        Some(3..6) => "NODE",
        _ => "META",
    }
}

/// The reason why an fsync became a checkpoint. The numbers are those of the engine.
pub(super) fn cp_reason(n: u64) -> &'static str {
    match n {
        1 => "non regular",
        2 => "hardlink",
        3 => "wrong pino",
        4 => "renamed",
        5 => "cut nodes",
        6 => "new parent",
        7 => "no chain",
        8 => "no space roll forward",
        9 => "unsettled",
        10 => "name vacated",
        11 => "parent renamed",
        12 => "failed pages",
        _ => "no needed",
    }
}

/// The reason for a checkpoint.
pub(super) fn cp_for(n: u64) -> &'static str {
    match n {
        0 => "Sync",
        1 => "Forced",
        _ => "Umount",
    }
}
