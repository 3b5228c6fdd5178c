//! Repairs that are killed at any moment, and run again.

use super::*;
use tidegate_block::{BioFlags, Op, Record, Recorder};

/// Volumes of each kind whose repairs are killed, by default.
const VOLUMES: u64 = 6;
/// Most moments of one repair at which it is killed.
const MOMENTS: usize = 12;

/// A repair with all of its writes.
pub fn recorded(damaged: &[u8]) -> (Repaired, Vec<Record>) {
    let device = Arc::new(MemoryDevice::from_bytes(damaged));
    let recorder = Arc::new(Recorder::new(device.clone()));
    let queue = Arc::new(RequestQueue::new(recorder.clone(), QueueLimits::default()));
    let options = RepairOptions { dry_run: false, now: NOW };
    let mut told = Vec::new();
    let report = repair(&queue, options, &mut |c| told.push(c.to_string()));
    let mut bytes = vec![0; damaged.len()];
    device.read_at(0, &mut bytes);
    (Repaired { bytes, told, report }, recorder.take())
}

fn apply(bytes: &mut [u8], r: &Record) {
    let at = (r.sector.0 * 512) as usize;
    match r.op {
        Op::Write => bytes[at..at + r.data.len()].copy_from_slice(&r.data),
        Op::WriteZeroes => bytes[at..at + r.bytes as usize].fill(0),
        _ => {}
    }
}

/// The image after `done` requests, of which only some since the last flush are on it.
pub fn cut(damaged: &[u8], all: &[Record], done: usize, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = damaged.to_vec();
    let flushed = all[..done]
        .iter()
        .rposition(|r| r.op == Op::Flush || r.flags.contains(BioFlags::PREFLUSH))
        .map_or(0, |n| n + 1);
    for (n, r) in all[..done].iter().enumerate() {
        if n < flushed || n + 1 == done || rng.below(2) == 0 {
            apply(&mut bytes, r);
        }
    }
    bytes
}

/// Kills one repair at some moments.
fn kill(image: &Path, before: &Contents, damaged: &[u8], rng: &mut Rng) -> std::result::Result<u64, String> {
    let (whole, records) = recorded(damaged);
    if !whole.report.as_ref().is_ok_and(|r| r.outcome == Outcome::Corrected) {
        return Ok(0);
    }
    let all = contents(&whole.bytes)?;
    let step = (records.len() / MOMENTS).max(1);
    let mut other = 0;
    for done in (rng.below(step as u64) as usize..records.len()).step_by(step) {
        let left = cut(damaged, &records, done, rng);
        let r = repair_bytes(&left);
        let where_ = || format!("killed after {done} of {}: {}", records.len(), r.told.join("\n"));
        let report = r.report.as_ref().map_err(|e| format!("{e} {}", where_()))?;
        if report.outcome == Outcome::Left {
            return Err(format!("left: {:?} {:?} {}", report.notes, report.check.problems, where_()));
        }
        if r.bytes == whole.bytes {
            continue;
        }
        other += 1;
        let now = contents(&r.bytes).map_err(|e| format!("{e} {}", where_()))?;
        if kept(before, &now) < kept(before, &all) || now.paths.len() < all.paths.len() {
            let lost: Vec<_> = all.paths.keys().filter(|p| !now.paths.contains_key(*p)).collect();
            return Err(format!("{lost:?} lost, {}\nwhole:\n{}", where_(), whole.told.join("\n")));
        }
        std::fs::write(image, &r.bytes).unwrap();
        let (clean, said) = judge(image);
        if !clean {
            return Err(format!("e2fsck -fn: {said} {}", where_()));
        }
    }
    Ok(other)
}

fn kill_all(name: &str, args: &[&str], size: &str, seed: u64) {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join("x.img");
    let whole = base(dir.path(), args, size);
    let before = contents(&whole).unwrap();
    let used = used_pieces(&whole);
    let chosen = asked_seed();
    let seeds = chosen.map_or(seed..seed + images(VOLUMES), |s| s..s + 1);
    let (mut bad, mut other) = (Vec::new(), 0);
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let mut bytes = whole.clone();
        wreck(&mut bytes, &used, &mut rng);
        match kill(&image, &before, &bytes, &mut rng) {
            Ok(n) => other += n,
            Err(e) => bad.push(format!("{name}: TIDEGATE_SEED={seed}: {e}")),
        }
    }
    println!("{name}: {other} killed repairs ended otherwise and as well");
    assert!(bad.is_empty(), "{}", bad.join("\n\n"));
}

#[test]
fn a_killed_repair_ends_as_one_that_was_not_with_checksums() {
    kill_all("csum", &["-t", "ext4", "-b", "1024", "-g", "2048"], "8M", 50_000);
}

#[test]
fn a_killed_repair_ends_as_one_that_was_not_without_checksums() {
    kill_all("no-csum", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal"], "4M", 51_000);
}

#[test]
fn a_killed_repair_ends_as_one_that_was_not_on_ext2() {
    kill_all("ext2", &["-t", "ext2", "-b", "1024", "-O", "dir_index"], "4M", 52_000);
}

#[test]
fn a_file_keeps_what_it_shared_with_a_directory_however_a_repair_is_killed() {
    let args = ["-t", "ext2", "-b", "1024"];
    let Some((dir, bytes, _)) = super::cases::damaged(&args, "8M", &[]) else { return };
    let image = dir.path().join("x.img");
    std::fs::write(&image, &bytes).unwrap();
    let map = must("debugfs", &["-R", "bmap directory 0", image.to_str().unwrap()]);
    let block = super::cases::first_number(&map);
    let file = dir.path().join("commands");
    let share = format!("sif deep/1/below/file block[1] {block}\nclri directory/name-5-yyyyy\n");
    std::fs::write(&file, share).unwrap();
    must("debugfs", &["-w", "-f", file.to_str().unwrap(), image.to_str().unwrap()]);
    let damaged = std::fs::read(&image).unwrap();
    let (whole, records) = recorded(&damaged);
    assert_eq!(whole.report.unwrap().outcome, Outcome::Corrected);
    let all = contents(&whole.bytes).unwrap();
    let mut rng = Rng::new(5);
    for done in (0..records.len()).flat_map(|n| [n; 4]) {
        let r = repair_bytes(&cut(&damaged, &records, done, &mut rng));
        let now = contents(&r.bytes).unwrap();
        assert!(now.files == all.files, "killed after {done} of {}: {:?}", records.len(), r.told);
    }
}
