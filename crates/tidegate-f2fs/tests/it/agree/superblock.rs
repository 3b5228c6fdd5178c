//! Superblocks with one field changed in both copies: we refuse every superblock that the stock checker
//! refuses, and the error names the field.

use crate::agree::rig::{End, caught, mount, queue, repair_and_follow};
use crate::common::volume::{FEATURES, Image, template};
use std::fmt::Write as _;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::MemoryDevice;
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::raw::*;

/// A field: name, offset and width in bytes, and other words that name it in errors.
type Field = (&'static str, usize, usize, &'static [&'static str]);

macro_rules! field {
    ($name:ident, $width:literal $(, $word:literal)*) => {
        (stringify!($name), std::mem::offset_of!(RawSuperblock, $name), $width, &[$($word),*])
    };
}

const DEVICE: usize = std::mem::offset_of!(RawSuperblock, devs);
const QUOTA: usize = std::mem::offset_of!(RawSuperblock, qf_ino);

const FIELDS: &[Field] = &[
    field!(magic, 4, "no f2fs superblock"),
    field!(major_ver, 2),
    field!(minor_ver, 2),
    field!(log_sectorsize, 4),
    field!(log_sectors_per_block, 4),
    field!(log_blocksize, 4, "blocks of 2^"),
    field!(log_blocks_per_seg, 4, "segments of 2^"),
    field!(segs_per_sec, 4),
    field!(secs_per_zone, 4),
    field!(checksum_offset, 4, "checksum"),
    field!(block_count, 8, "cut short"),
    field!(section_count, 4),
    field!(segment_count, 4),
    field!(segment_count_ckpt, 4),
    field!(segment_count_sit, 4, "nat_blkaddr", "SIT"),
    field!(segment_count_nat, 4, "ssa_blkaddr"),
    field!(segment_count_ssa, 4, "main_blkaddr", "SSA"),
    field!(segment_count_main, 4, "main area", "cut short"),
    field!(segment0_blkaddr, 4, "cp_blkaddr"),
    field!(cp_blkaddr, 4, "sit_blkaddr"),
    field!(sit_blkaddr, 4, "nat_blkaddr"),
    field!(nat_blkaddr, 4, "ssa_blkaddr"),
    field!(ssa_blkaddr, 4, "main_blkaddr"),
    field!(main_blkaddr, 4),
    field!(root_ino, 4),
    field!(node_ino, 4),
    field!(meta_ino, 4),
    field!(extension_count, 4),
    field!(cp_payload, 4),
    field!(feature, 4, "f2fs feature", "checksum"),
    field!(encryption_level, 1),
    ("devs[0].path", DEVICE, 1, &["several devices"]),
    ("devs[0].total_segments", DEVICE + 64, 4, &["several devices"]),
    ("devs[1].path", DEVICE + 68, 1, &["several devices"]),
    ("devs[1].total_segments", DEVICE + 68 + 64, 4, &["several devices"]),
    ("qf_ino[0]", QUOTA, 4, &["quota"]),
    ("qf_ino[1]", QUOTA + 4, 4, &["quota"]),
    ("qf_ino[2]", QUOTA + 8, 4, &["quota"]),
    field!(hot_ext_count, 1, "extension_count"),
    field!(s_encoding, 2),
    field!(s_encoding_flags, 2),
];

const REFUSED: &str = "Can't find a valid F2FS superblock at 0x1";
/// Seconds that the stock checker gets: it needs a tenth of one, or does not end.
const PATIENCE: &str = "5";

fn values(field: &Field, n: u64) -> Vec<u64> {
    let largest = if field.2 == 8 { u64::MAX } else { (1 << (8 * field.2)) - 1 };
    let mut all = vec![0, 1, 2, n.wrapping_sub(1), n.wrapping_add(1), 0x7fff_ffff, 0xffff_ffff, largest];
    match field.0 {
        "feature" => all.extend((0..20).map(|bit| n ^ 1 << bit)),
        // Inode numbers that exist, and one that could.
        "qf_ino[0]" | "qf_ino[1]" | "qf_ino[2]" => all.extend([3, 4, 5, 100]),
        _ => {}
    }
    all.retain(|v| *v != n && *v <= largest);
    all.sort_unstable();
    all.dedup();
    all
}

/// Both copies with `field` set to `value`. The checksum is corrected where there is one, unless it is the
/// field that was changed.
fn blocks(block: &[u8], field: &Field, value: u64) -> Vec<u8> {
    let mut b = block.to_vec();
    let sb = &mut b[SUPER_OFFSET..SUPER_OFFSET + 3072];
    sb[field.1..field.1 + field.2].copy_from_slice(&value.to_le_bytes()[..field.2]);
    let feature = std::mem::offset_of!(RawSuperblock, feature);
    if Features::from_bits_retain(crate::agree::rig::get32(sb, feature)).contains(Features::SB_CHKSUM) {
        let crc = f2fs_crc32(&sb[..SB_CRC_OFFSET]);
        sb[SB_CRC_OFFSET..].copy_from_slice(&crc.to_le_bytes());
    }
    b
}

enum Stock {
    Good,
    /// It finds neither superblock valid.
    Refuses(String),
    /// It goes on and reports faults, or does not end.
    Objects(String),
}

fn stock(path: &Path) -> Stock {
    let fsck = tidegate_testing::oracle::require("fsck.f2fs").unwrap();
    let out =
        Command::new("timeout").arg(PATIENCE).arg(fsck).args(["-f", "--dry-run"]).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&[&out.stdout[..], &out.stderr].concat()).into_owned();
    let lines = |wanted: &[&str]| {
        let some = text.lines().filter(|l| wanted.iter().any(|w| l.contains(w)));
        some.take(2).map(str::trim).collect::<Vec<_>>().join("; ")
    };
    if text.contains(REFUSED) {
        let why = text.split("Can't find").next().unwrap().trim().lines().last().unwrap_or_default();
        return Stock::Refuses(why.into());
    }
    let found = lines(&["[Fail]", "ASSERT", "[FIX]"]);
    match out.status.success() && found.is_empty() {
        true => Stock::Good,
        false => Stock::Objects(format!("{} {found}", out.status)),
    }
}

/// The results of opening, checking and repairing: each an error, or none.
fn ours(device: &MemoryDevice) -> (Vec<(&'static str, Option<String>)>, Option<String>) {
    let own = || crate::agree::rig::copy(device);
    let mut all = Vec::new();
    let opened = caught("opening", || mount(own()).map_err(|e| e.to_string()));
    if let Ok(v) = &opened {
        let _ = v.unmount();
    }
    all.push(("open", opened.err()));
    let checked = caught("check", || {
        let device: Arc<dyn tidegate_block::Device> = own();
        match check(&queue(&device), CheckOptions::default()) {
            Ok(r) if r.is_clean() => Ok(()),
            Ok(r) => Err(format!("{:?}", r.problems.first())),
            Err(e) => Err(e.to_string()),
        }
    });
    all.push(("check", checked.err()));
    let (repaired, disagrees) = match caught("repair", || repair_and_follow(&own())) {
        Ok(End::Refused(e)) => (Some(e), None),
        Ok(End::Good(..)) => (None, None),
        Err(e) if e.contains("panics") => (Some(e), None),
        Err(e) => (None, Some(e)),
    };
    all.push(("repair", repaired));
    (all, disagrees)
}

#[derive(Default)]
struct Found {
    taken: String,
    unnamed: String,
    disagrees: String,
    stricter: String,
    panics: String,
}

fn table(features: &'static str) -> Found {
    // The features change the scope of a checksum, not which numbers are possible: fewer numbers are enough
    // here.
    let every = if features.is_empty() { 1 } else { 3 };
    let image = template(64, features);
    let base = image.device();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.img");
    image.save(&path);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let good = crate::agree::rig::block(&base, 0);
    let mut found = Found::default();
    for field in FIELDS {
        let at = SUPER_OFFSET + field.1;
        let mut bytes = [0; 8];
        bytes[..field.2].copy_from_slice(&good[at..at + field.2]);
        let was = u64::from_le_bytes(bytes);
        for value in values(field, was).into_iter().step_by(every) {
            let b = blocks(&good, field, value);
            let device = Image::of(&base).device();
            for n in 0..2 {
                crate::agree::rig::set_block(&device, n, &b);
                file.write_all_at(&b, u64::from(n) * BLOCK_SIZE as u64).unwrap();
            }
            let what = format!("{} {was:#x} -> {value:#x}", field.0);
            judge(&what, field, &device, &path, &mut found);
        }
    }
    found
}

fn judge(what: &str, field: &Field, device: &Arc<MemoryDevice>, path: &Path, found: &mut Found) {
    let d = device.clone();
    let (ours, disagrees) = crate::common::watch::within(Duration::from_secs(30), what, move || ours(&d));
    for (who, e) in &ours {
        if let Some(e) = e.as_ref().filter(|e| e.contains("panics")) {
            writeln!(found.panics, "  {what}: {who}: {e}").unwrap();
        }
    }
    let takers: Vec<_> = ours.iter().filter(|(_, e)| e.is_none()).map(|(who, _)| *who).collect();
    match stock(path) {
        Stock::Refuses(why) => {
            if !takers.is_empty() {
                writeln!(found.taken, "  {what}: fsck.f2fs: {why:?}; ours take it: {takers:?}").unwrap();
            }
            for (who, e) in &ours {
                let Some(e) = e else { continue };
                let base = field.0.split(['[', '.']).next().unwrap();
                if !e.contains(base) && !field.3.iter().any(|w| e.contains(w)) {
                    writeln!(found.unnamed, "  {what}: {who}: {e}").unwrap();
                }
            }
        }
        // A repair may correct faults that a check reports as well.
        Stock::Objects(why) if takers.contains(&"check") || disagrees.is_some() => {
            let why: String = why.chars().take(300).collect();
            writeln!(found.disagrees, "  {what}: ours take it: {takers:?}; fsck.f2fs goes on: {why}")
                .unwrap();
        }
        Stock::Objects(_) => {}
        Stock::Good => {
            for (who, e) in &ours {
                if let Some(e) = e {
                    writeln!(found.stricter, "  {what}: {who}: {e}").unwrap();
                }
            }
            // The error for a feature that allows only reading comes when the volume is opened.
            if let Some(e) = disagrees.filter(|_| field.0 != "feature") {
                writeln!(found.disagrees, "  {what}: {e}").unwrap();
            }
        }
    }
}

fn judge_all(features: &'static str) {
    if crate::agree::skip() {
        return;
    }
    let f = table(features);
    if !f.stricter.is_empty() {
        println!("fsck.f2fs takes these, ours do not:\n{}", f.stricter);
    }
    let mut bad = String::new();
    for (head, lines) in [
        ("panics", f.panics),
        ("fsck.f2fs refuses the superblock, ours do not", f.taken),
        ("repair ends well, what follows does not", f.disagrees),
        ("refused, but the error does not name the field", f.unnamed),
    ] {
        if !lines.is_empty() {
            write!(bad, "{head} ({}):\n{lines}", lines.lines().count()).unwrap();
        }
    }
    assert!(bad.is_empty(), "features \"{features}\":\n{bad}");
}

#[test]
fn what_the_stock_checker_refuses_is_refused() {
    judge_all("");
}

#[test]
fn what_the_stock_checker_refuses_is_refused_with_features() {
    judge_all(FEATURES);
}
