//! Linux takes over volumes that several streams wrote, changes them, and gives them back.
//!
//! By default, each policy has one turn, with a number of streams and an end (unmount or power cut) that are drawn by
//! lot; `TIDEGATE_SEED` repeats the lot. `TIDEGATE_STREAMS=all` runs every policy with one to eleven warm streams and
//! both ends.

use crate::common::mounted::Mounted;
use crate::common::tree::{assert_clean, assert_same, describe_image};
use crate::common::volume::Image;
use crate::kernel::{PATIENCE, lacking};
use std::path::Path;
use tidegate_testing::fill::Rng;
use tidegate_testing::golden::sparse_copy;
use tidegate_testing::manifest::Manifest;
use tidegate_testing::temp::TempDir;
use tidegate_testing::uml;
use tidegate_vfs::{File, VolumeOps};

const PAGE: u64 = 4096;
const POLICIES: [&str; 4] = ["srr", "spf", "amfs", "auto"];
/// With three logs of nodes, and one each of hot and cold data, these are 16 logs.
const MOST_STREAMS: u64 = 11;
const FILES: u64 = 14;

/// Shell commands that append, overwrite, remove and create files, and make one of the changes durable before the
/// others.
const CHANGES: &str = "
    mount -t f2fs $DEV $MNT
    $HELPER manifest $MNT -o $FIRST
    cd $MNT
    for n in 0 3 6 9 12; do dd if=/dev/urandom of=f$n bs=4096 count=40 seek=7 conv=notrunc; done 2>&1
    for n in 1 4 7; do dd if=/dev/urandom of=f$n bs=4096 count=100 oflag=append conv=notrunc; done 2>&1
    rm f2
    mv f5 moved
    dd if=/dev/urandom of=new bs=4096 count=700 conv=fsync 2>&1
    truncate -s 5000 f8
    cd /
    sync -f $MNT
    $HELPER manifest $MNT -o $SECOND
    umount $MNT
    ";

struct Case {
    policy: &'static str,
    streams: u64,
    /// The volume is cut off from power, and not unmounted.
    cut: bool,
}

fn cases(rng: &mut Rng) -> Vec<Case> {
    if std::env::var("TIDEGATE_STREAMS").is_ok_and(|which| which == "all") {
        let ends = |policy, streams| [true, false].map(|cut| Case { policy, streams, cut });
        let counts = |policy| (1..=MOST_STREAMS).flat_map(move |streams| ends(policy, streams));
        return POLICIES.into_iter().flat_map(counts).collect();
    }
    let mut case = |policy| Case { policy, streams: 1 + rng.below(MOST_STREAMS), cut: rng.below(2) == 0 };
    POLICIES.map(&mut case).into()
}

#[test]
fn linux_goes_on_where_streams_ended() {
    if lacking() {
        return;
    }
    let given = std::env::var("TIDEGATE_SEED").ok().and_then(|s| s.parse().ok());
    let seed: u64 = given.unwrap_or_else(tidegate_rt::clock::entropy);
    println!("TIDEGATE_SEED={seed}");
    let mut rng = Rng::new(seed);
    for case in cases(&mut rng) {
        println!("{}, {} streams, {}", case.policy, case.streams, if case.cut { "cut" } else { "unmounted" });
        take_turns(&case, &mut rng);
    }
}

/// We write, Linux goes on, we go on.
fn take_turns(case: &Case, rng: &mut Rng) {
    let options = format!("warm_streams={},stream_policy={}", case.streams, case.policy);
    let v = Mounted::new(256, "", &options);
    let files = write_some(&v, case, rng);
    let left = if case.cut { Some(Image::of(&v.device)) } else { None };
    drop(files);
    let device = v.device.clone();
    v.finish();
    let left = left.unwrap_or_else(|| Image::of(&device));

    let dir = TempDir::new("streams").unwrap();
    let (image, copy) = (dir.path().join("a.img"), dir.path().join("b.img"));
    left.save(&image);
    sparse_copy(&image, &copy).unwrap();
    let (first, second) = linux_changes(&image, &dir);
    assert!(first.entries.len() as u64 > FILES);
    assert_same("Linux and we recover", &first, &describe_image(&copy));
    assert_same("changed by Linux", &second, &describe_image(&image));
    assert_clean(&image);

    let again = Mounted::with_options(Image::load(&image).device(), &options);
    drop(write_some(&again, case, rng));
    again.finish();
}

/// Writers take turns on files of their own, some with fsync, with checkpoints between.
fn write_some(v: &Mounted, case: &Case, rng: &mut Rng) -> Vec<File> {
    let files: Vec<File> = (0..FILES).map(|n| v.file(&format!("/f{n}"))).collect();
    if case.policy == "amfs" {
        for f in &files {
            f.choose_streams(1 + rng.below((1 << case.streams) - 1) as u32).unwrap();
        }
    }
    for step in 0..300 {
        let f = &files[rng.below(FILES) as usize];
        let data = vec![step as u8 | 1; (1 + rng.below(12) * PAGE) as usize];
        f.write_at(rng.below(60) * PAGE, &data).unwrap();
        if rng.below(3) == 0 {
            f.fsync(rng.below(2) == 0).unwrap();
        }
        if rng.below(60) == 0 {
            v.vfs.sync().unwrap();
        }
    }
    let opened = VolumeOps::stats(&*v.fs).own["streams_opened"];
    let must = case.streams > 1 && ["srr", "spf"].contains(&case.policy);
    assert!(opened >= u64::from(must) * (case.streams - 1), "{opened} extra streams were opened");
    files
}

fn linux_changes(image: &Path, dir: &TempDir) -> (Manifest, Manifest) {
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let guest = uml::guest(image).timeout(PATIENCE).env("FIRST", &first).env("SECOND", &second);
    guest.run(CHANGES).unwrap().check().unwrap();
    (Manifest::load(&first).unwrap(), Manifest::load(&second).unwrap())
}
