//! Several threads at once: each thread's own files end as it left them, and a directory that all threads
//! change stays whole.

use crate::rig::{Rig, Rng, cannot_mount, number, seed};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const THREADS: u64 = 6;

/// Makes, changes, renames and removes files below `own`, and takes part in `shared`. Returns the content of
/// `own`.
fn work(own: &Path, shared: &Path, rng: &mut Rng, ops: u64) -> BTreeMap<String, Vec<u8>> {
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    fs::create_dir(own).unwrap();
    for i in 0..ops {
        let pick = |files: &BTreeMap<String, Vec<u8>>, rng: &mut Rng| {
            files.keys().nth(rng.below(files.len().max(1) as u64) as usize).cloned()
        };
        match (rng.below(8), pick(&files, rng)) {
            (0..3, _) | (_, None) => {
                let data = vec![rng.next() as u8; rng.below(200_000) as usize];
                fs::write(own.join(format!("f{i}")), &data).unwrap();
                files.insert(format!("f{i}"), data);
            }
            (3, Some(name)) => {
                fs::rename(own.join(&name), own.join(format!("r{i}"))).unwrap();
                let data = files.remove(&name).unwrap();
                files.insert(format!("r{i}"), data);
            }
            (4, Some(name)) => {
                fs::remove_file(own.join(&name)).unwrap();
                files.remove(&name);
            }
            (5, Some(name)) => assert!(fs::read(own.join(&name)).unwrap() == files[&name], "{name} differs"),
            (6, Some(name)) => {
                let data = files.get_mut(&name).unwrap();
                data.extend_from_slice(b"appended");
                let mut f = fs::OpenOptions::new().append(true).open(own.join(&name)).unwrap();
                std::io::Write::write_all(&mut f, b"appended").unwrap();
            }
            (_, Some(_)) => {
                // All threads use a few common names. An operation succeeds, or the name is missing.
                let (a, b) =
                    (shared.join(format!("n{}", rng.below(5))), shared.join(format!("n{}", rng.below(5))));
                let _ = fs::write(&a, "x");
                let _ = fs::rename(&a, &b);
                assert!(fs::read_dir(shared).unwrap().count() <= 5);
            }
        }
    }
    files
}

#[test]
fn threads_do_not_meet() {
    if cannot_mount() {
        return;
    }
    let seed = seed();
    let ops = number("TIDEGATE_FUSE_OPS", 120);
    let mut rig = Rig::new(512, "cache=16M");
    let shared = rig.dir.join("shared");
    fs::create_dir(&shared).unwrap();
    let threads: Vec<_> = (0..THREADS)
        .map(|t| {
            let (own, shared) = (rig.dir.join(format!("t{t}")), shared.clone());
            std::thread::spawn(move || work(&own, &shared, &mut Rng(seed ^ (t + 1) << 32), ops))
        })
        .collect();
    let models: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    assert!(rig.unmount());
    rig.mount("").unwrap();
    for (t, files) in models.iter().enumerate() {
        let own = rig.dir.join(format!("t{t}"));
        assert_eq!(fs::read_dir(&own).unwrap().count(), files.len());
        for (name, data) in files {
            assert!(fs::read(own.join(name)).unwrap() == *data, "t{t}/{name} differs after the remount");
        }
    }
    rig.finish();
}
