//! Each kind of damage that the check knows is repaired: the volume is clean for us and for the stock
//! checker, contents are unchanged, and a second repair finds nothing to do.

mod many;
mod random;
mod scene;

use crate::format::raw::*;
use crate::offline::check::tests::damage::{CHECKPOINT, DIRECTORIES, Damage, MAPS, NODES, WITH_FEATURES};
use crate::offline::check::tests::volume::{ALL_FEATURES, Volume};
use crate::offline::repair::dots::BLOCK_LAYOUT;
use crate::offline::repair::{Outcome, RepairOptions};
use scene::{Base, Scene};

/// Damage that destroys content: for each rule, the paths that may differ.
const MAY_DIFFER: &[(&str, &[&str])] = &[
    // The file whose address pointed elsewhere has a hole there.
    ("data-address", &["/mid"]),
    ("block-shared", &["/mid"]),
    // A name that was changed on the volume stays changed or goes to lost_found.
    ("dentry-name", &["/many/name-of-file-0001"]),
    ("dentry-ino", &["/many/name-of-file-0001"]),
    ("dentry-duplicate", &["/many/name-of-file-0002"]),
    ("dir-linked-twice", &["/many/name-of-file-0001"]),
    ("nat-unreached", &["/many/name-of-file-0001"]),
];

fn allowed(rule: &str) -> &'static [&'static str] {
    MAY_DIFFER.iter().find(|(r, _)| *r == rule).map_or(&[], |(_, paths)| paths)
}

fn mend_all(v: &Volume, table: &[Damage]) {
    let base = Base::of(v);
    let before = Scene::of(&base, &[]).contents();
    for (rule, _, damage) in table {
        let mut scene = Scene::of(&base, &v.edit(damage));
        let report = scene.repair(RepairOptions::default()).unwrap();
        let told = scene.told.join("\n");
        assert_eq!(report.outcome, Outcome::Corrected, "{rule}: {:?}\n{told}", report.check.problems);
        assert!(report.changes > 0 && report.changes as usize == scene.told.len(), "{rule}");
        scene.judge().unwrap_or_else(|e| panic!("{rule}: fsck.f2fs: {e}\nafter\n{told}"));
        let after = scene.contents();
        for (path, content) in &before {
            let same = after.get(path) == Some(content);
            assert!(same || allowed(rule).contains(&path.as_str()), "{rule}: {path} differs\n{told}");
        }
        scene.writes();
        let again = scene.repair(RepairOptions::default()).unwrap();
        assert_eq!((again.outcome, again.changes), (Outcome::Clean, 0), "{rule}");
        assert!(scene.writes().is_empty(), "{rule}: a second repair writes");
    }
}

#[test]
fn the_checkpoint_is_mended() {
    let Some(v) = Volume::build("") else { return };
    mend_all(&v, CHECKPOINT);
}

#[test]
fn nat_sit_ssa_are_mended() {
    let Some(v) = Volume::build("") else { return };
    mend_all(&v, MAPS);
}

#[test]
fn nodes_are_mended() {
    let Some(v) = Volume::build("") else { return };
    mend_all(&v, NODES);
}

#[test]
fn directories_are_mended() {
    let Some(v) = Volume::build("") else { return };
    mend_all(&v, DIRECTORIES);
}

#[test]
fn features_are_minded() {
    let Some(v) = Volume::build(ALL_FEATURES) else { return };
    mend_all(&v, WITH_FEATURES);
}

#[test]
fn a_dry_run_changes_nothing_and_says_the_same() {
    let Some(v) = Volume::build("") else { return };
    let base = Base::of(&v);
    for (rule, _, damage) in [CHECKPOINT, MAPS, NODES, DIRECTORIES].concat().into_iter().step_by(3) {
        let mut scene = Scene::of(&base, &v.edit(damage));
        let dry = RepairOptions { dry_run: true, ..Default::default() };
        let report = scene.repair(dry).unwrap();
        assert_eq!(report.outcome, Outcome::Left, "{rule}");
        assert!(scene.writes().is_empty(), "{rule}: a dry run wrote");
        let told = std::mem::take(&mut scene.told);
        scene.repair(RepairOptions::default()).unwrap();
        assert_eq!(told[..], scene.told[..told.len()], "{rule}");
    }
}

/// A power cut at any write leaves a volume that is untouched or as good as repaired, whether all writes up
/// to then are on the device or only some of them.
#[test]
fn a_power_cut_in_the_middle_leaves_old_or_new() {
    let Some(v) = Volume::build("") else { return };
    let base = Base::of(&v);
    for n in [0, 2, 4, 9] {
        let edits = v.edit(DIRECTORIES[n].2);
        let damaged = Scene::of(&base, &edits).check().problems.len();
        let mut scene = Scene::of(&base, &edits);
        assert_eq!(scene.repair(RepairOptions::default()).unwrap().outcome, Outcome::Corrected);
        let writes = scene.writes();
        let cut = Scene::of(&base, &edits);
        for (done, (at, bytes)) in writes.iter().enumerate() {
            let left = cut.check().problems.len();
            assert_eq!(left, damaged, "case {n}: cut after {done} of {} writes", writes.len());
            cut.write(*at, bytes);
        }
        assert!(cut.check().is_clean());
        let last = writes.len() - 1;
        for skip in 2..5 {
            let cut = Scene::of(&base, &edits);
            writes[..last].iter().step_by(skip).for_each(|(at, bytes)| cut.write(*at, bytes));
            assert_eq!(cut.check().problems.len(), damaged, "case {n}: one of {skip} writes");
        }
    }
}

#[test]
fn an_undamaged_volume_is_left_alone() {
    for features in ["", ALL_FEATURES] {
        let Some(v) = Volume::build(features) else { return };
        let base = Base::of(&v);
        let mut scene = Scene::of(&base, &[]);
        let report = scene.repair(RepairOptions::default()).unwrap();
        assert_eq!((report.outcome, report.changes), (Outcome::Clean, 0));
        assert!(scene.writes().is_empty());
    }
}

#[test]
fn flags_of_an_earlier_error_go_when_it_is_clean() {
    let Some(v) = Volume::build("") else { return };
    let base = Base::of(&v);
    for damage in [false, true] {
        let edits = v.edit(|e| {
            e.checkpoint(|r| r.ckpt_flags.set(r.ckpt_flags.get() | (CpFlags::FSCK | CpFlags::ERROR).bits()));
            if damage {
                e.put16(e.vol.node(e.vol.dentry("name-of-file-0001").ino), 0o644);
            }
        });
        let mut scene = Scene::of(&base, &edits);
        assert_eq!(scene.repair(RepairOptions::default()).unwrap().outcome, Outcome::Corrected);
        assert!(scene.check().notes.is_empty(), "{:?}", scene.check().notes);
        scene.judge().unwrap();
    }
}

#[test]
fn what_has_no_name_is_in_lost_found() {
    for features in ["", ALL_FEATURES] {
        let Some(v) = Volume::build(features) else { return };
        let base = Base::of(&v);
        // The directory with all the files, and a file, lose their entries, as the names' lengths are
        // damaged.
        let root = v.node(3);
        let extra = if features.is_empty() { 0 } else { v.u32(root + I_ADDR_OFFSET) as usize & 0xffff };
        let block = v.u32(root + I_ADDR_OFFSET + extra) as usize * 4096;
        let (mut edits, mut inos) = (Vec::new(), Vec::new());
        for name in ["many", "mid"] {
            let slot = BLOCK_LAYOUT.find(&v.bytes[block..][..4096], name.as_bytes()).unwrap();
            let entry = block + 30 + SIZE_OF_DIR_ENTRY * slot;
            inos.push((format!("/{name}"), v.u32(entry + 4)));
            edits.push((entry + 8, vec![0, 0]));
        }
        let before = Scene::of(&base, &[]).contents();
        let mut scene = Scene::of(&base, &edits);
        assert_eq!(scene.repair(RepairOptions::default()).unwrap().outcome, Outcome::Corrected);
        scene.judge().unwrap();
        let after = scene.contents();
        let dir = if features.is_empty() { "lost_found" } else { "lost+found" };
        for (path, content) in before {
            let lost = inos.iter().find(|(name, _)| path.starts_with(name.as_str()));
            let now = lost.map_or(path.clone(), |(n, ino)| path.replacen(n, &format!("/{dir}/ino-{ino}"), 1));
            assert!(after.get(&now) == Some(&content), "{path} is not at {now}: {:?}", scene.told);
        }
    }
}

#[test]
fn without_a_root_nothing_is_changed() {
    let Some(v) = Volume::build("") else { return };
    let base = Base::of(&v);
    let edits = v.edit(|e| e.put(e.vol.node(3), &[0; 4096]));
    let mut scene = Scene::of(&base, &edits);
    let report = scene.repair(RepairOptions::default()).unwrap();
    assert_eq!(report.outcome, Outcome::Left);
    assert!(report.notes.iter().any(|n| n.contains("root")), "{:?}", report.notes);
    assert!(scene.writes().is_empty());
    let zero = vec![0; 8192];
    assert!(Scene::of(&base, &[(0, zero)]).repair(RepairOptions::default()).is_err());
}
