//! `/proc/lock_stat`: the part in the notes on F2FS's locks (M6), and ours.

use super::{Block, Case};
use crate::result::LockStat;
use tidegate::observe::lockstat::{CallPoint, Class, Row, Times, write_table};

/// Classes shown of each position: those with the longest waits, then those held longest.
const CLASSES: usize = 8;

/// Hundredths of a microsecond: least, longest, sum, mean.
type Micros = [u64; 4];
/// Letter, con-bounces, contentions, times waited; acq-bounces, acquisitions, times held.
type Figures = (&'static str, [u64; 2], Micros, [u64; 2], Micros);
/// Count, an address without meaning here, function.
type Point = (u64, &'static str, &'static str);

/// A class, its rows, the functions that waited, the functions that held it.
type Published = (&'static str, &'static [Figures], &'static [Point], &'static [Point]);

/// The figures of the notes, for one writer on a kernel with its checks on.
const PUBLISHED: [Published; 5] = [
    (
        "&sit_i->sentry_lock",
        &[
            (
                "-W",
                [4644, 4846],
                [34, 117_980, 967_918, 200],
                [57_326, 5_920_627],
                [104, 29_425_176, 6_112_114_504, 1032],
            ),
            (
                "-R",
                [56_802, 56_991],
                [42, 108_025, 183_978_499, 3228],
                [57_247, 18_361_436],
                [21, 675_812, 1_150_250_677, 63],
            ),
        ],
        &[
            (56_991, "0000000025468521", "check_valid_map+0x48/0xd0"),
            (4846, "000000000ad77fab", "f2fs_allocate_data_block+0x16b/0x1470"),
        ],
        &[
            (56_721, "000000000ad77fab", "f2fs_allocate_data_block+0x16b/0x1470"),
            (5116, "0000000025468521", "check_valid_map+0x48/0xd0"),
        ],
    ),
    (
        "&nm_i->nat_list_lock",
        &[(
            "",
            [4331, 4379],
            [36, 62_416, 484_038, 111],
            [93_982, 13_225_060],
            [29, 213_067, 872_271_554, 66],
        )],
        &[(4379, "0000000092ecb2b0", "__lookup_nat_cache+0x62/0x110")],
        &[(4379, "0000000092ecb2b0", "__lookup_nat_cache+0x62/0x110")],
    ),
    (
        "&nm_i->nat_tree_lock",
        &[
            ("-W", [0, 0], [0; 4], [4, 13_311], [261, 1_169_963, 23_014_152, 1729]),
            ("-R", [0, 0], [0; 4], [94_083, 15_101_090], [67, 25_494_371, 2_385_233_299, 158]),
        ],
        &[],
        &[],
    ),
    (
        "&sbi->cp_rwsem",
        &[
            ("-W", [0, 0], [0; 4], [4, 28], [226, 12_521_294, 147_886_986, 5_281_678]),
            ("-R", [0, 0], [0; 4], [3, 5_911_958], [525, 29_512_933, 19_355_961_141, 3274]),
        ],
        &[],
        &[],
    ),
    (
        "&sbi->writepages",
        &[("", [0, 0], [0; 4], [39, 535], [3_324_283, 495_486_385, 24_258_787_771, 45_343_529])],
        &[],
        &[],
    ),
];

/// None if no locks were counted.
pub(super) fn block(case: &Case) -> Option<Block> {
    let mut b = Block::new("lock_stat").note(
        "Times in microseconds. Below a class the places that waited for it, then those that had it. Published is of \
         the notes on F2FS's locks: one writer on a kernel with its debugging on.",
    );
    b.wide = true;
    b.pane("published, of the notes on locks", text(&PUBLISHED.map(class)));
    for p in &case.positions {
        let mut locks: Vec<&LockStat> = p.drawn_run().map(|r| r.locks.iter().collect()).unwrap_or_default();
        // Results of older versions have no rows.
        locks.retain(|l| !l.table.rows.is_empty());
        let times = |l: &LockStat| std::cmp::Reverse((l.wait_total_ns, l.hold_total_ns));
        locks.sort_by(|a, b| (times(a), &a.table.class).cmp(&(times(b), &b.table.class)));
        let classes: Vec<Class> = locks.iter().take(CLASSES).map(|l| l.table.clone()).collect();
        let more = if locks.len() > CLASSES {
            format!(", {CLASSES} of {} classes", locks.len())
        } else {
            String::new()
        };
        if !classes.is_empty() {
            b.pane(format!("{}{more}", p.name), text(&classes));
        }
    }
    (b.panes.len() > 1).then_some(b)
}

fn text(classes: &[Class]) -> String {
    let mut text = Vec::new();
    // A write to memory cannot fail.
    let _ = write_table(classes, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

fn class((name, rows, waiting, holding): Published) -> Class {
    let times = |t: &Micros| {
        let [min_ns, max_ns, total_ns, avg_ns] = t.map(|hundredths| hundredths * 10);
        Times { min_ns, max_ns, total_ns, avg_ns }
    };
    let row = |(letter, [con_bounces, contentions], wait, [acq_bounces, acquisitions], hold): &Figures| Row {
        name: format!("{name}{letter}"),
        con_bounces: *con_bounces,
        contentions: *contentions,
        wait: times(wait),
        acq_bounces: *acq_bounces,
        acquisitions: *acquisitions,
        hold: times(hold),
    };
    let point = |(count, place, function): &Point| CallPoint {
        count: *count,
        function: (*function).into(),
        place: (*place).into(),
    };
    Class {
        class: name.into(),
        rows: rows.iter().map(row).collect(),
        waiting: waiting.iter().map(point).collect(),
        holding: holding.iter().map(point).collect(),
    }
}
