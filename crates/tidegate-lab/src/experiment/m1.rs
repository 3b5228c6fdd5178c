//! M1: the code that keeps one file's placing and submission together.

use super::comparison::{Because, Comparison, Rule};
use super::outcome::{Position, Published};
use super::setting::{Metric, Setting, count, counter, counter_ratio, lock_wait_ms, per, ratio};
use super::{Experiment, Where};
use crate::workload::{FsMark, Spec, SyncMode};
use tidegate::Elevator;
use tidegate::detect::Format;
use tidegate_block::Preset;
use tidegate_rt::sim::Costs;
use tidegate_vfs::MemoryLimits;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "m1",
    title: "F2FS writepages: allocation and submission of one file stay together",
    mechanism: "Pages of files that are written at once join one growing bio. Whoever places a page that does not \
        continue it sends it off short. With sbi->writepages held while a file's pages are placed (locked), only the \
        last bio of each file is open to that; sent inside the lock (submit_locked), none is. extent takes no \
        volume-wide lock: each run of dirty pages reserves one extent and goes out in bios of its own.",
    settings,
    notes: &[
        "min_seq_blocks=0: every writer takes the lock, as when the change was published; since 4.19 those that \
         write less than a segment do not.",
        "In simulated time on a virtual machine, as published: a thread that lets sbi->writepages go first wakes \
         the thread that sleeps for it, through the hypervisor, and only then sends its bio (locked). Meanwhile a \
         thread that spins for the lock places a page in that bio.",
        "CPU time is charged for each page that is written to, each that is taken, each place and each bio; extent \
         pays for one place where the others pay for 128.",
        "The model copies in the thread that sends, as Linux's ramdisk did; in the three positions of Linux the \
         growing bio stays locked meanwhile, as there.",
    ],
    across: |_| {},
    kernel: None,
};

const POSITIONS: &[&str] =
    &["writepages=unlocked", "writepages=locked", "writepages=submit_locked", "writepages=extent"];

const KIB: &str = "KiB of a data bio";
const SPLIT: &str = "bios split by others";
const PIECES: &str = "pieces of a file";

fn settings(quick: bool) -> Vec<Setting> {
    let mark = |files, size, loops| FsMark {
        threads: 16,
        files,
        size,
        write_size: size.min(64 << 10),
        sync: SyncMode::Each,
        loops,
        interval_ms: 1,
        ..FsMark::default()
    };
    let setting = |name: &str, place, workload, published: Option<Published>, bars| Setting {
        name: name.into(),
        job: None,
        place,
        size: 2 << 30,
        shorter: 1,
        format: Format::F2fs,
        cpus: 4,
        costs: Costs::of_virtual_machine(),
        elevator: Elevator::None,
        memory: MemoryLimits { cache: 256 << 20, dirty: 128 << 20, background: 96 << 20, inodes: 1 << 16 },
        options: "min_seq_blocks=0",
        workload: Spec::FsMark(workload),
        metric: Metric::Elapsed,
        positions: POSITIONS,
        bios: published.is_some(),
        causes: false,
        published,
        counters: &[
            ("bios", |r| count(r, "fs.data_bios")),
            (KIB, |r| Some(per(r, "fs.data_blocks", "fs.data_bios")? * 4.0)),
            (SPLIT, |r| Some(count(r, "fs.split_bios").unwrap_or(0.0))),
            (PIECES, |r| {
                Some(count(r, "fs.data_fragments")? / r.ops.get("file").map(|o| o.latency.count as f64)?)
            }),
            ("waited for sbi->writepages, ms", |r| lock_wait_ms(r, "sbi->writepages")),
        ],
        bars,
    };
    let published = Published {
        source: "commit bb96a8d5".into(),
        what: "fs_mark, 16 threads, 512 KiB, s".into(),
        before: 4.244,
        after: 3.822,
    };
    let loops = if quick { 1 } else { 4 };
    let (simulated, real) = (Where::Preset(Preset::Ramdisk), Where::Real(Preset::Ramdisk));
    let files = mark(8, 512 << 10, loops);
    vec![
        setting("16 threads, files of 512 KiB", simulated, files.clone(), Some(published.clone()), bars),
        Setting {
            job: Some("16 threads, files of 512 KiB"),
            ..setting("the same in real time", real.clone(), files, Some(published), bars)
        },
        // The cost of the lock: no thread gains by it, and all wait for one.
        setting("16 threads, files of 4 KiB", real, mark(100, 4 << 10, loops), None, |_| Vec::new()),
    ]
}

/// The published ratio of the change.
const SAVED: f64 = 4.244 / 3.822;

fn bars(p: &[Position]) -> Vec<Comparison> {
    let because = Because::default();
    let pieces = counter_ratio(p, PIECES, "extent", "submit_locked");
    let split = |who| counter(p, who, SPLIT);
    vec![
        Comparison::reproduces(
            "locked / submit_locked",
            SAVED,
            &ratio(p, "locked", "submit_locked"),
            because,
        )
        .since(&a_split_would_take(p)),
        Comparison::figure("bios split with locked", Rule::AtLeast(1.0), &split("locked")),
        Comparison::figure("bios split with submit_locked", Rule::AtMost(0.0), &split("submit_locked")),
        Comparison::figure(
            "KiB of a bio, submit_locked",
            Rule::AtLeast(508.0),
            &counter(p, "submit_locked", KIB),
        ),
        Comparison::ratio("extent / submit_locked", Rule::AtMost(1.0), &ratio(p, "extent", "submit_locked")),
        Comparison::ratio("extent / locked", Rule::AtMost(1.0), &ratio(p, "extent", "locked")),
        Comparison::ratio("pieces, extent / submit_locked", Rule::AtMost(1.0), &pieces),
    ]
}

/// The cost of each split that would explain the published ratio: the change saves one bio for each split.
fn a_split_would_take(p: &[Position]) -> String {
    let mean = |of: Vec<f64>| Some(of.iter().sum::<f64>() / of.len() as f64).filter(|m| *m > 0.0);
    let elapsed = p.iter().find(|p| p.name.ends_with("=locked")).map(|p| p.values.iter().flatten().copied());
    let known = elapsed.and_then(|e| mean(e.collect())).zip(mean(counter(p, "locked", SPLIT)));
    known.map_or(String::new(), |(elapsed, split)| {
        let each = elapsed * (1.0 - 1.0 / SAVED) / split * 1e6;
        format!(
            "what is saved is one bio for each that was split, {split:.0} in {elapsed:.3} s; for the published ratio \
             each would have to take {each:.0} µs"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::outcome::Counted;

    #[test]
    fn a_ratio_that_is_missed_says_what_a_split_would_have_to_cost() {
        let position = |name: &str, elapsed: [f64; 3], split: f64| Position {
            name: format!("writepages={name}"),
            values: elapsed.map(Some).to_vec(),
            counters: vec![Counted {
                name: SPLIT.into(),
                values: vec![Some(split); 3],
                ..Counted::default()
            }],
            ..Position::default()
        };
        let p =
            [position("locked", [1.0, 1.01, 0.99], 100.0), position("submit_locked", [1.0, 0.99, 1.01], 0.0)];
        let why = &bars(&p)[0].why;
        assert!(why.contains("100 in 1.000 s") && why.contains("994 µs"), "{why}");
    }
}
