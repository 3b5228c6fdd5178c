//! The kernel is killed in the middle of writes.

use crate::common::tree::{assert_clean, assert_same, describe_image, mount};
use crate::power::{FEATURES, assert_kept, kills, lacking, make_image, recovered_by_us};
use std::path::Path;
use std::time::Duration;
use tidegate_rt::thread::sleep;
use tidegate_testing::fill::Rng;
use tidegate_testing::golden::sparse_copy;
use tidegate_testing::manifest::Manifest;
use tidegate_testing::power::Promises;
use tidegate_testing::temp::TempDir;
use tidegate_testing::uml;

/// Processes that write.
const WORKERS: u32 = 4;
/// A worker's line may still be on its way when its next operation begins.
const AHEAD: u32 = 3;
/// Time for a guest, on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

const WRITERS: &str = "
    mount -t f2fs -o $OPTIONS $DEV $MNT
    for w in 0 1 2 3; do $HELPER guest-power $SEED $w $MNT/w$w & done
    wait
    ";

const CASES: [(&str, &str); 6] = [
    ("", "rw"),
    (FEATURES, "mode=lfs,background_gc=off"),
    (FEATURES, "fsync_mode=strict"),
    (FEATURES, "rw"),
    ("", "mode=lfs,background_gc=off"),
    ("", "fsync_mode=strict"),
];

#[test]
fn what_the_kernel_promised_is_recovered_by_us() {
    if lacking() {
        return;
    }
    let (n, mut rng) = kills("kernel killed");
    let first = rng.below(CASES.len() as u64) as usize;
    for i in 0..n {
        let (features, options) = CASES[(first + i as usize) % CASES.len()];
        kill_and_judge(i, features, options, &mut rng);
    }
}

fn kill_and_judge(i: u32, features: &str, options: &str, rng: &mut Rng) {
    let seed = rng.bits();
    let dir = TempDir::new("power").unwrap();
    let image = make_image(dir.path(), 512, features);
    let lines = 1 + rng.below(400) as usize;
    let promises = run_and_kill(&image, options, seed, lines, rng.below(40));
    let what = format!("kill {i} ({features:?}, {options}, seed {seed}, {} promises)", promises.len());
    let mut broken = recovered_by_us(&image, &promises);
    if !broken.is_empty() {
        // Content that the kernel's own recovery does not bring back was not promised.
        let theirs = recovered_by_the_kernel(&image, &promises);
        let by_kernel = |b: &String| theirs.iter().any(|t| b.ends_with(t.as_str()));
        broken.iter().filter(|b| by_kernel(b)).for_each(|b| println!("{what}: so does the kernel: {b}"));
        broken.retain(|b| !by_kernel(b));
    }
    assert_kept(&what, &image, &promises, &broken);
    println!("{what}: kept");
}

/// Pages of a file exchange places after they were promised and before any checkpoint.
const MOVES: &str = "
    mount -t f2fs $DEV $MNT; cd $MNT
    for f in a b; do dd if=/dev/urandom of=$f bs=4096 count=1200; done 2>&1
    sync -f $MNT
    for f in a b; do
        dd if=/dev/urandom of=$f bs=4096 count=60 seek=900 conv=notrunc,fsync 2>&1
    done
    fallocate -c -o 3735552 -l 81920 a; sync a
    fallocate -i -o 3735552 -l 40960 b; sync b
    dd if=/dev/urandom of=a bs=4096 count=3 seek=915 conv=notrunc,fsync 2>&1
    $HELPER manifest $MNT -o $OUT; sync $OUT
    echo done; sleep 1000
    ";

#[test]
fn pages_that_changed_places_are_recovered() {
    if lacking() {
        return;
    }
    let dir = TempDir::new("power").unwrap();
    let (image, out) = (make_image(dir.path(), 128, FEATURES), dir.path().join("manifest"));
    let mut running = uml::guest(&image).timeout(PATIENCE).env("OUT", &out).spawn(MOVES).unwrap();
    running.wait_for_line("done").unwrap();
    running.kill().unwrap();
    let promised = Manifest::load(&out).unwrap();
    let before = describe_image(&image);
    mount(&image).unmount().unwrap();
    assert_clean(&image);
    for (what, ours) in [("in memory", before), ("for good", describe_image(&image))] {
        assert_same(what, &promised, &ours);
    }
}

/// Lets the workers write until they have printed `lines` lines, and `ms` milliseconds longer.
fn run_and_kill(image: &Path, options: &str, seed: u64, lines: usize, ms: u64) -> Promises {
    let guest = uml::guest(image).timeout(PATIENCE).env("OPTIONS", options).env("SEED", seed.to_string());
    let mut running = guest.spawn(WRITERS).unwrap();
    let mut promises = Promises::new(seed, WORKERS, AHEAD);
    while promises.len() < lines {
        let Some(line) = running.next_line().unwrap() else { panic!("the guest ended") };
        if !promises.hear(&line).unwrap() {
            println!("guest: {line}");
        }
    }
    sleep(Duration::from_millis(ms));
    running.cut().unwrap();
    while let Some(line) = running.next_line().unwrap() {
        // The last line may be incomplete.
        let _ = promises.hear(&line);
    }
    promises
}

/// The promised content that the kernel's own recovery of a copy lacks.
pub fn recovered_by_the_kernel(image: &Path, promises: &Promises) -> Vec<String> {
    let (copy, list) = (image.with_extension("theirs"), image.with_extension("promises"));
    sparse_copy(image, &copy).unwrap();
    std::fs::write(&list, promises.to_text()).unwrap();
    let body = "mount -t f2fs $DEV $MNT
        $HELPER guest-power-verify $PROMISES $MNT || true
        umount $MNT";
    let guest = uml::guest(&copy).timeout(PATIENCE).env("PROMISES", &list);
    let out = guest.run(body).unwrap().check().unwrap();
    let mut broken: Vec<String> = out.stdout.lines().map(str::to_owned).collect();
    broken.extend(tidegate_testing::golden::fsck_f2fs(&copy).err().map(|e| format!("{e:#}")));
    broken
}
