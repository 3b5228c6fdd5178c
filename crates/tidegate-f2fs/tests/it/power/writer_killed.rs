//! A writer of ours is killed.

use crate::power::kernel_killed::recovered_by_the_kernel;
use crate::power::{FEATURES, assert_kept, engine, kills, lacking, make_image, recovered_by_us};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tidegate_rt::thread::{self, sleep};
use tidegate_testing::fill::Rng;
use tidegate_testing::power::{Promises, Worker, plan};
use tidegate_testing::temp::TempDir;

const WORKERS: u32 = 4;
/// A line is printed before the next operation begins.
const AHEAD: u32 = 1;
/// Makes the test executable the writer: image, seed, options, bytes to leave free.
const WRITE: &str = "TIDEGATE_POWER_WRITE";

struct Case {
    features: &'static str,
    options: &'static str,
    mib: u64,
    /// The space that is left free at the start, if it is to be little.
    free: Option<u64>,
}

const fn case(features: &'static str, options: &'static str) -> Case {
    Case { features, options, mib: 512, free: None }
}

const CASES: [Case; 8] = [
    case("", ""),
    case(FEATURES, "fsync_mode=strict"),
    Case { features: FEATURES, options: "", mib: 128, free: Some(12 << 20) },
    case(FEATURES, "noflush_merge,writepages=submit_locked"),
    Case { features: "", options: "mode=lfs", mib: 100, free: Some(6 << 20) },
    case("", "warm_streams=8,stream_policy=spf"),
    case("", "warm_streams=8,stream_policy=srr"),
    case(FEATURES, "hot_streams=2,warm_streams=8,stream_policy=auto"),
];

#[test]
fn what_we_promised_is_recovered_by_the_kernel_and_by_us() {
    if lacking() {
        return;
    }
    let (n, mut rng) = kills("writer killed");
    let first = rng.below(CASES.len() as u64) as usize;
    for i in 0..n {
        kill_and_judge(i, &CASES[(first + i as usize) % CASES.len()], &mut rng);
    }
}

fn kill_and_judge(i: u32, case: &Case, rng: &mut Rng) {
    let seed = rng.bits();
    let dir = TempDir::new("power").unwrap();
    let image = make_image(dir.path(), case.mib, case.features);
    let lines = 1 + rng.below(600) as usize;
    let promises = run_and_kill(&image, case, seed, lines, rng.below(20));
    let (failed, all) = (promises.failures(), promises.len());
    let what = format!(
        "kill {i} ({:?}, {:?}, free {:?}, seed {seed}, {failed} of {all} failed)",
        case.features, case.options, case.free
    );
    // An operation that fails promises nothing, so nothing would be judged.
    assert!(case.free.is_some() || failed == 0, "{what}");
    let mut broken = recovered_by_us(&image, &promises);
    let theirs = recovered_by_the_kernel(&image, &promises);
    broken.extend(theirs.iter().map(|b| format!("recovered by the kernel: {b}")));
    assert_kept(&what, &image, &promises, &broken);
    println!("{what}: kept");
}

fn run_and_kill(image: &Path, case: &Case, seed: u64, lines: usize, ms: u64) -> Promises {
    let free = case.free.map_or(String::new(), |f| f.to_string());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "power::writer_killed::writer", "--nocapture", "--test-threads=1"])
        .env(WRITE, format!("{};{seed};{};{free}", image.display(), case.options))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut promises = Promises::new(seed, WORKERS, AHEAD);
    while promises.len() < lines {
        let Some(line) = out.next() else { panic!("the writer ended: {:?}", child.wait()) };
        promises.hear(&line.unwrap()).unwrap();
    }
    // The writer goes on meanwhile: its output fits into the pipe.
    sleep(Duration::from_millis(ms));
    child.kill().unwrap();
    child.wait().unwrap();
    for line in out {
        promises.hear(&line.unwrap()).unwrap();
    }
    promises
}

/// Not a test of its own: the test above starts it and kills it.
#[test]
fn writer() {
    let Ok(given) = std::env::var(WRITE) else { return };
    let words: Vec<&str> = given.split(';').collect();
    let [image, seed, options, free] = words[..] else { panic!("{given}") };
    say(""); // ends the test runner's unfinished line
    let vfs = engine::mount(Path::new(image), options).unwrap();
    if let Ok(free) = free.parse() {
        engine::fill_up(&vfs, free);
    }
    let seed: u64 = seed.parse().unwrap();
    let threads: Vec<_> = (0..WORKERS)
        .map(|id| {
            let mut store = engine::Tree::new(vfs.clone(), &format!("w{id}"));
            thread::spawn("writer", move || {
                store.make_top();
                let mut worker = Worker::new(seed, id);
                if let Err(e) = plan::run(&mut worker, id, &mut store, say) {
                    say(&e);
                }
            })
            .unwrap()
        })
        .collect();
    threads.into_iter().for_each(|t| t.join());
}

/// Prints a line at once and in one piece.
fn say(line: &str) -> bool {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).is_ok()
}
