//! A mkfs over an old volume is interrupted: then there is the old volume, or none, or the new one.

use crate::agree::rig::*;
use crate::common::volume::{Image, template};
use std::sync::Arc;
use tidegate_block::{Device, Recorder};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_testing::fill::Rng;
use tidegate_vfs::*;

fn old() -> (Image, Tree) {
    let device = template(64, "").device();
    let v = mount(device.clone()).unwrap();
    for n in 0..50 {
        let f = v.open_path(ROOT, format!("old-{n}").as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap();
        f.write_at(0, &[n; 9000]).unwrap();
    }
    v.sync().unwrap();
    let tree = walk(&v).unwrap();
    v.unmount().unwrap();
    (Image::of(&device), tree)
}

/// The state that a cut leaves, if it is not an allowed one.
fn judge(device: Arc<dyn Device>, before: &Tree, after: &Tree) -> Option<String> {
    let checked = check(&queue(&device), CheckOptions::default());
    let opened = mount(device.clone());
    let text = match (&checked, &opened) {
        (Err(_), Err(_)) => return None,
        (Err(e), Ok(_)) => format!("it opens, but check says {e}"),
        (Ok(_), Err(e)) => format!("it does not open: {e}"),
        (Ok(r), Ok(v)) => match walk(v) {
            // One copy of the superblock may be missing.
            Ok(tree)
                if (&tree == before || &tree == after) && r.problems.iter().all(|p| p.rule == "sb-copy") =>
            {
                String::new()
            }
            Ok(tree) => format!("{} names, {:?}", tree.len(), r.problems.first()),
            Err(e) => e,
        },
    };
    if let Ok(v) = opened {
        let _ = v.unmount();
    }
    (!text.is_empty()).then_some(text)
}

#[test]
fn a_volume_made_over_another_is_that_one_or_none_or_new() {
    if crate::agree::skip() {
        return;
    }
    let (base, before) = old();
    let uuid = superblock(&base.device()).raw.uuid;
    let mut bad = Vec::new();
    for (discard, uuid) in [(false, None), (true, None), (false, Some(uuid)), (true, Some(uuid))] {
        let recorder = Arc::new(Recorder::new(base.device()));
        let device: Arc<dyn Device> = recorder.clone();
        mkfs(&queue(&device), &MkfsOptions { discard, uuid, ..Default::default() }).unwrap();
        let records = recorder.take();
        let whole = cut_off(&base, &records, &mut || true);
        let v = mount(whole).unwrap();
        let after = walk(&v).unwrap();
        v.unmount().unwrap();
        assert_eq!(after.len(), 1);
        for cut in 0..=records.len() {
            for seed in 0..4 {
                let mut rng = Rng::new(seed);
                let mut coin = || {
                    let mut b = [0];
                    rng.fill(&mut b);
                    seed == 0 || b[0] & 1 == 0
                };
                let device = cut_off(&base, &records[..cut], &mut coin);
                let wrong = caught("it", || Ok(judge(device, &before, &after))).unwrap_or_else(Some);
                let of = records.len();
                bad.extend(wrong.map(|e| {
                    format!(
                        "discard {discard}, the old UUID {}: cut after {cut} of {of}, seed {seed}: {e}",
                        uuid.is_some()
                    )
                }));
            }
        }
    }
    assert!(bad.is_empty(), "{} of them:\n{}", bad.len(), bad.join("\n"));
}
