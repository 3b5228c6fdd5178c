//! `bench writepages`: the effect of each position of `writepages=` on sixteen writers.

use std::time::Duration;

use anyhow::Result;

use super::cli::Plan;
use super::image::Image;
use super::series::{Case, Series, named, ratio, rounds};
use super::show::{Bar, Column, Outcome};
use super::workload::{Report, Workload, words};

const THREADS: u64 = 16;
const VOLUME: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
const POSITIONS: [&str; 4] = ["unlocked", "locked", "submit_locked", "extent"];
const BEFORE: &str = "locked";
const AFTER: &str = "submit_locked";
const OURS: &str = "extent";
/// The seconds that Linux published for fs_mark with 16 threads and files of 512 KiB, before and after the
/// change.
const PUBLISHED: (f64, f64) = (4.244, 3.822);
const FS_MARK: &str = "fs_mark";

const COLUMNS: &[Column] = &[
    Column { head: "write s", digits: 3, of: seconds },
    Column { head: "data bios", digits: 0, of: |r| r.count("data_bios") },
    Column { head: "KiB/bio", digits: 1, of: |r| Some(4.0 * r.per("data_blocks", "data_bios")?) },
    Column { head: "split bios", digits: 0, of: |r| r.count("split_bios") },
    Column { head: "pieces placed", digits: 0, of: |r| r.count("data_fragments") },
    Column { head: "pieces/file", digits: 2, of: pieces },
    Column { head: "read bios", digits: 0, of: |r| r.count("read_back_bios") },
    Column { head: "read MiB/s", digits: 0, of: read_speed },
];

fn seconds(r: &Report) -> Option<f64> {
    Some(r.seconds)
}

fn pieces(r: &Report) -> Option<f64> {
    Some(r.fragments? as f64 / r.files as f64)
}

fn read_speed(r: &Report) -> Option<f64> {
    Some(r.bytes as f64 / MIB as f64 / r.read_seconds.filter(|s| *s > 0.0)?)
}

/// Makes every regular file of fs_mark take the lock, as when its times were published. (Today's Linux lets
/// syncs of less than a segment pass without it.)
const ALWAYS: &str = ",min_seq_blocks=0";

/// The name, the files per thread, the bytes of each file, when files are made durable, and the options.
fn variants(plan: &Plan) -> [(&'static str, u64, u64, &'static str, &'static str); 3] {
    let large = plan.scaled(16) * MIB;
    [
        (FS_MARK, plan.scaled(64), 512 << 10, "each", ALWAYS),
        ("streams, one sync", 1, large, "end", ""),
        ("streams, fsync each", 1, large, "each", ""),
    ]
}

/// Measures and reports.
pub fn run(plan: &Plan) -> Result<()> {
    let workload = Workload::build(Duration::from_secs(120))?;
    let image = Image::new(&plan.dir, VOLUME)?;
    let variants = variants(plan);
    let mut cases = Vec::new();
    for (variant, files, size, sync, options) in variants {
        for position in POSITIONS {
            let args = words(&format!(
                "mark --threads {THREADS} --files {files} --size {size} --sync {sync} --read-back"
            ));
            let (workload, image) = (&workload, &image);
            let run = move || {
                image.mkfs_f2fs()?;
                let options = format!("writepages={position}{options}");
                let report = workload.on_image(image.path(), &options, &args)?;
                image.fsck()?;
                Ok(report)
            };
            cases.push(Case::new(format!("{variant} {position}"), run));
        }
    }
    let series = rounds(plan.runs, &cases);
    let sizes =
        variants.map(|(name, files, size, ..)| format!("{name}: {THREADS} x {files} x {} KiB", size >> 10));
    let title = format!("{}; {} rounds", sizes.join("; "), plan.runs);
    let notes = notes(&series, &image);
    let bars = bars(&series, &variants.map(|v| v.0));
    Outcome { title, columns: COLUMNS, series: &series, notes, bars }.print(plan.json)
}

fn notes(all: &[Series], image: &Image) -> Vec<String> {
    let time = |position: &str| {
        let before = named(all, &format!("{FS_MARK} {BEFORE}"));
        let value = ratio(named(all, &format!("{FS_MARK} {position}")), before, seconds);
        value.map_or_else(|| "-".into(), |v| format!("{v:.3}"))
    };
    let (before, after) = PUBLISHED;
    let backing = if image.takes_direct() { "with O_DIRECT" } else { "through the host's page cache" };
    vec![
        format!("image read and written {backing}; read back in a newly opened volume"),
        format!("{FS_MARK} with min_seq_blocks=0: who syncs less than a segment takes the lock, too"),
        format!(
            "{FS_MARK}, {AFTER} to {BEFORE}: Linux published {:.3} ({before} -> {after} s); here {}; \
             {OURS} {}, unlocked {}",
            after / before,
            time(AFTER),
            time(OURS),
            time("unlocked"),
        ),
    ]
}

fn bars(all: &[Series], variants: &[&str]) -> Vec<Bar> {
    let mut bars = Vec::new();
    for variant in variants {
        let of = |position: &str| named(all, &format!("{variant} {position}"));
        let to = |value: fn(&Report) -> Option<f64>| ratio(of(OURS), of(AFTER), value);
        let what = |what: &str| format!("{variant}: {what}, {OURS} to {AFTER}");
        bars.push(Bar::most(what("pieces/file"), 1.0, to(pieces)));
        bars.push(Bar::least(what("read-back"), 0.97, to(read_speed)));
        bars.push(Bar::below(what("write time"), 1.0, to(seconds)));
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_compare_extent_with_submit_locked() {
        let series = |position: &str, seconds, fragments, read| Series {
            name: format!("v {position}"),
            reports: vec![Report {
                seconds,
                files: 10,
                bytes: MIB,
                fragments: Some(fragments),
                read_seconds: Some(read),
                ..Report::default()
            }],
            failed: None,
        };
        let all = [series(AFTER, 2.0, 40, 0.5), series(OURS, 1.0, 10, 1.0)];
        let found: Vec<_> = bars(&all, &["v"]).into_iter().map(|b| (b.value, b.met)).collect();
        let want = [(Some(0.25), Some(true)), (Some(0.5), Some(false)), (Some(0.5), Some(true))];
        assert_eq!(found, want);
    }
}
