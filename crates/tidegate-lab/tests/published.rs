//! The published tables with a short simulated run beside them: the figures shown were measured.

use tidegate::observe::graph::Graph;
use tidegate::observe::lockstat::CallPoint;
use tidegate_lab::experiment::{Experiment, Outcome, Plan};
use tidegate_lab::report::{self, Extras};

/// The parts of a pass over a file's pages.
const PARTS: [&str; 5] = [
    "f2fs_allocate_data_block",
    "f2fs_get_dnode_of_data",
    "f2fs_update_data_blkaddr",
    "set_page_writeback",
    "f2fs_submit_page_write",
];

fn outcome(name: &str, device: &str) -> Outcome {
    println!("seed 1");
    let device = Some(device.parse().unwrap());
    let plan = Plan { quick: true, device, seed: 1, runs: 1, ..Plan::default() };
    let nobody = |_: &str| {};
    let ran = Experiment::named(name).unwrap().run(&plan, &nobody);
    assert!(ran.failed.is_empty(), "{:?}", ran.failed);
    ran.outcome
}

/// The lines below a heading, up to the next line that is as little indented.
fn below<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let lines = text.lines().skip_while(|l| !l.trim_start().starts_with(heading)).skip(1);
    lines.take_while(|l| !l.ends_with(':') || l.starts_with("   ")).collect()
}

/// The checks share one test: locks are counted for the whole process.
#[test]
fn a_run_stands_beside_what_was_published() {
    writers_take_turns_and_passes_have_parts();
    readers_and_writers_are_told_apart();
}

/// Checkpoints freeze operations: each waits for the other.
fn readers_and_writers_are_told_apart() {
    let o = outcome("m5", "ufs");
    for p in &o.cases[0].positions {
        let locks = &p.runs[0].locks;
        let table = &locks.iter().find(|l| l.table.class == "sbi->cp_rwsem").unwrap().table;
        let [w, r] = &table.rows[..] else { panic!("{table:?}") };
        assert_eq!((&*w.name, &*r.name), ("sbi->cp_rwsem-W", "sbi->cp_rwsem-R"));
        assert!(r.contentions > 0 && w.acquisitions > 0 && w.hold.min_ns > 0, "{table:?}");
        let points = |points: &[CallPoint]| points.iter().map(|p| p.count).sum::<u64>();
        assert_eq!(points(&table.waiting), w.contentions + r.contentions, "{table:?}");
        assert!(points(&table.holding) > 0 && points(&table.holding) <= points(&table.waiting), "{table:?}");
        for p in table.waiting.iter().chain(&table.holding) {
            assert!(p.function.contains("::") && p.place.starts_with("tidegate-f2fs/src/"), "{table:?}");
        }
        assert!(table.holding.iter().any(|p| p.function.contains("checkpoint")), "{table:?}");
    }
}

fn writers_take_turns_and_passes_have_parts() {
    let o = outcome("m1", "ramdisk");
    let text = report::as_published(std::slice::from_ref(&o), None);
    let position = "writepages=locked";
    let locks = text.split("m1  ").find(|b| b.starts_with("lock_stat")).unwrap_or_else(|| panic!("{text}"));
    let locks = below(locks, position);
    let starts = |what: &str| locks.iter().any(|l| l.trim_start().starts_with(what));
    for row in ["sbi->cp_rwsem-R:", "sbi->writepages:"] {
        assert!(starts(row), "{row} in\n{}", locks.join("\n"));
    }
    // Sixteen writers take turns: one function both waits for the lock and holds it.
    let turns: Vec<&&str> =
        locks.iter().filter(|l| l.trim_start().starts_with("sbi->writepages  ")).collect();
    assert!(turns.len() == 2 && turns[0] == turns[1], "{turns:?}");
    assert!(turns[0].contains("[<tidegate-f2fs/src/file/write.rs:"), "{turns:?}");
    assert!(turns[0].ends_with("] F2fs::write_data_in_turn"), "{turns:?}");
    let kept =
        o.cases[0].positions[1].runs[0].locks.iter().find(|l| l.table.class == "sbi->writepages").unwrap();
    assert_eq!(kept.table.waiting[0].count, kept.contentions, "all of them");

    for p in &o.cases[0].positions {
        let calls = text.split("m1  ").find(|b| b.contains("calls below f2fs_writepages")).unwrap();
        let share = |part| Graph::of(&p.call_tree).below("f2fs_writepages").map(|g| g.time_in(part) > 0);
        assert_eq!(share("f2fs_allocate_data_block"), Some(true), "{}", p.name);
        let calls = below(calls, &format!("{}, without waits:", p.name)).join("\n");
        // A whole file has one set of parts, beside the copying of its bytes: some parts are too short.
        for part in PARTS.iter().filter(|_| p.name != "writepages=extent") {
            assert!(calls.contains(&format!("%--{part}")), "{part} in {}:\n{calls}", p.name);
        }
        let excerpt = p.excerpt.as_ref().unwrap();
        let bios = p.runs[0].counters["fs.data_bios"];
        // The recording also has the writes before and after the measured part.
        assert!(excerpt.bios >= bios && excerpt.dropped == 0, "{}: {bios}, {}", p.name, excerpt.bios);
        assert!(excerpt.lines.iter().any(|b| b.size >= 4096 && b.cpu.is_none()), "{excerpt:?}");
        let cpu = p.runs[0].cpu.unwrap();
        assert!(cpu.user_ns.is_none() && cpu.sys_ns > 1_000_000, "{}: {cpu:?}", p.name);
    }
    let other = Extras { symbol: Some("f2fs_sync_file".into()), ..Extras::default() };
    let page = report::html(&[o], &other);
    assert!(page.contains("---f2fs_sync_file\n") && !page.contains("---f2fs_writepages"));
}
