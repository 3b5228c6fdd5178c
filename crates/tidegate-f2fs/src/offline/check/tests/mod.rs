//! Clean volumes are found clean, each kind of damage is found under its rule, and garbage gets an answer.

pub(crate) mod damage;
mod fuzz;
pub(crate) mod volume;

use super::*;
use tidegate_block::{Backend, OpenOptions, QueueLimits};
use volume::{ALL_FEATURES, Volume};

fn assert_clean(report: &CheckReport, what: &str) {
    let list: Vec<String> =
        report.problems.iter().take(20).map(|p| format!("[{}] {}", p.rule, p.text)).collect();
    assert!(report.is_clean(), "{what}: {} problems:\n{}", report.total_problems, list.join("\n"));
}

#[test]
fn stock_volumes_are_clean() {
    for features in ["", ALL_FEATURES] {
        let Some(v) = Volume::build(features) else { return };
        let report = v.check(&[]);
        assert_clean(&report, features);
        assert!(!report.unclean);
        assert_eq!((report.files, report.others), (volume::FILES, 1), "{features}");
        let lost_found = u64::from(!features.is_empty());
        assert_eq!(report.directories, volume::DIRECTORIES + lost_found, "{features}");
        assert_eq!(report.rules.len(), rules::ALL.len());
    }
}

#[test]
fn an_empty_volume_is_clean() {
    for features in ["", ALL_FEATURES] {
        let Some(v) = Volume::build_empty(features) else { return };
        assert_clean(&v.check(&[]), features);
    }
}

/// Volumes that the real kernel wrote, where `cargo xtask golden` has made them.
#[test]
fn golden_volumes_are_clean() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/golden");
    let Ok(entries) = std::fs::read_dir(&dir) else {
        println!("SKIPPED: no golden volumes in {}", dir.display());
        return;
    };
    // A volume on zones is two files, with a list of zones: `it::zoned_kernel` tests those volumes.
    let others: [&[u8]; 3] = [b"zoned-", b"ext4-", b"foreign-ext4"];
    let is_other = |name: &std::ffi::OsStr| others.iter().any(|o| name.as_encoded_bytes().starts_with(o));
    let is_f2fs = |p: &std::path::PathBuf| {
        p.extension().is_some_and(|x| x == "img") && !p.file_name().is_some_and(is_other)
    };
    for path in entries.flatten().map(|e| e.path()).filter(is_f2fs) {
        let options = OpenOptions { read_only: true, backend: Backend::Threads, ..Default::default() };
        let Ok(device) = tidegate_block::file::open(&path, options) else { continue };
        let queue = RequestQueue::new(device, QueueLimits::default());
        match check(&queue, CheckOptions::default()) {
            Ok(report) => assert_clean(&report, &path.display().to_string()),
            Err(e) => panic!("{}: {e}", path.display()),
        }
    }
}

#[test]
fn problems_are_capped_but_counted() {
    let Some(v) = Volume::build("") else { return };
    let wrong = v.edit(|e| {
        for name in volume::many_names().take(20) {
            let slot = e.vol.dentry(&name);
            e.flip(slot.entry);
        }
    });
    let all = v.check(&wrong);
    let options = CheckOptions { max_problems: 3, ..Default::default() };
    let report = v.check_with(&wrong, options).unwrap();
    assert_eq!(report.problems[..], all.problems[..3]);
    assert_eq!(report.total_problems, all.total_problems);
    assert!(all.total_problems >= 20);
}

#[test]
fn progress_is_told() {
    let Some(v) = Volume::build("") else { return };
    let told = std::rc::Rc::new(std::cell::Cell::new((0, 0)));
    let to = told.clone();
    let options = CheckOptions { progress: Some(Box::new(move |d, t| to.set((d, t)))), ..Default::default() };
    let report = v.check_with(&[], options).unwrap();
    assert_eq!(told.get().1, report.nodes);
    assert!(told.get().0 > 0);
}

#[test]
fn without_superblock_or_checkpoint_it_is_an_error() {
    let Some(v) = Volume::build_empty("") else { return };
    let zero = vec![0; 8192];
    assert!(v.check_with(&[(0, zero.clone())], CheckOptions::default()).is_err());
    let cp = v.sb.cp_blkaddr as usize * 4096;
    let both = [(cp, zero.clone()), (cp + (512 * 4096), zero)];
    assert!(v.check_with(&both, CheckOptions::default()).is_err());
}
