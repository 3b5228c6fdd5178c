//! M1 as commit bb96a8d5 shows it: bios in the order in which they were sent, and the time of fs_mark.

use super::{Block, Case, NONE, time};
use crate::cpu::CpuTime;
use crate::experiment::outcome::Position;
use tidegate::observe::bios::SentBio;

/// Before the change: thread, processor, microseconds, sector, bytes; whether it is of data, and whether it
/// was split.
const BIOS: [(u32, u32, u64, u64, u64, bool, bool); 4] = [
    (6535, 2, 2_242_270_230, 5_766_152, 524_288, true, false),
    (6536, 0, 2_242_270_361, 5_767_176, 4096, true, true),
    (6536, 0, 2_242_270_370, 8_138_112, 4096, false, false),
    (6535, 2, 2_242_270_776, 5_767_184, 516_096, true, false),
];

/// Before and after, in milliseconds: real, user, sys.
const TIMES: [(&str, [u64; 3]); 2] = [("before", [4244, 88, 12_336]), ("after", [3822, 72, 10_760])];

pub(super) fn blocks(case: &Case) -> Vec<Block> {
    vec![bios(case), times(case)]
}

fn bios(case: &Case) -> Block {
    let mut b = Block::new("Bios around one that was split").note(
        "Marked < is a bio that another thread's page cut short: the next part of its file follows at its end. Of a \
         position without one, bios from the middle of the recorded run.",
    );
    let published = BIOS.iter().map(|(tid, cpu, us, sector, size, data, split)| SentBio {
        thread: "fs_mark".into(),
        tid: *tid,
        cpu: Some(*cpu),
        at_ns: us * 1000,
        device: (1, 0),
        rw: "WRITE_SYNC".into(),
        what: if *data { "DATA".into() } else { "NODE".into() },
        sector: *sector,
        size: *size,
        split: *split,
    });
    b.pane("published, before", lines(published));
    for p in &case.positions {
        let (whose, text) = match &p.excerpt {
            None => (p.name.clone(), "no events were recorded".into()),
            Some(e) => {
                let lost = if e.dropped > 0 { ", of those that were kept" } else { "" };
                let whose = format!("{}: {} of {} data bios split{lost}", p.name, e.split, e.bios);
                (whose, lines(e.lines.iter().cloned()))
            }
        };
        b.pane(whose, text);
    }
    b
}

fn lines(bios: impl Iterator<Item = SentBio>) -> String {
    bios.map(|b| format!("{b}{}\n", if b.split { "  <" } else { "" })).collect()
}

fn times(case: &Case) -> Block {
    let cpu = |p: &Position| p.drawn_run().and_then(|r| r.cpu);
    let simulated = case.positions.iter().filter_map(cpu).all(|c| c.user_ns.is_none());
    let mut b = Block::new("time fs_mark").note(time::notes(simulated));
    let ms = |n: u64| n * 1_000_000;
    for (when, [real, user, sys]) in TIMES {
        let cpu = CpuTime { user_ns: Some(ms(user)), sys_ns: ms(sys) };
        b.pane(format!("published, {when}"), time::text(ms(real), Some(cpu)));
    }
    for p in &case.positions {
        let text = p.drawn_run().map_or(NONE.into(), |r| time::text(r.elapsed_ns, r.cpu));
        b.pane(&p.name, text);
    }
    b
}
