//! Linux as judge: it recovers our journal's writes, and we read its journal after a power cut.

use crate::crash::{Base, ran, recovered};
use crate::image::{Chance, Seed, seeds};
use crate::stock::{FREE, Image, path_of, run};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_jbd2::format::fc::FcTag;
use tidegate_jbd2::{JournalMode, Log, Replay, recover};
use tidegate_testing::oracle;

/// A volume that the host's kernel has mounted.
struct Mounted(PathBuf);

impl Mounted {
    fn new(image: &Path, at: &Path, options: &str) -> Mounted {
        std::fs::create_dir_all(at).unwrap();
        let (text, code) = run("mount", &["-t", "ext4", "-o", options, path_of(image), path_of(at)]);
        assert_eq!(code, 0, "{text}");
        Mounted(at.to_path_buf())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let (text, code) = run("umount", &[path_of(&self.0)]);
        if code != 0 && !std::thread::panicking() {
            panic!("{text}");
        }
    }
}

fn skip() -> bool {
    if !rustix::process::geteuid().is_root() {
        assert!(!oracle::in_ci(), "loop mounts need the superuser");
        println!("SKIPPED: loop mounts need the superuser");
        return true;
    }
    ["mke2fs", "debugfs", "losetup"].into_iter().any(oracle::skip_or_fail)
}

#[test]
fn linux_recovers_what_our_journal_wrote() {
    if skip() {
        return;
    }
    let image = Image::new(1024, "^metadata_csum");
    let mut bytes = std::fs::read(image.path()).unwrap();
    image.mark(&mut bytes);
    for seed in seeds(0..6) {
        let _seed = Seed(seed);
        let base = Base { bytes: bytes.clone(), runs: image.runs.clone(), first: FREE.start };
        let ran = ran(seed, JournalMode::ALL[(seed / 2 % 2) as usize], base);
        let mut chance = Chance::new(seed);
        for _ in 0..2 {
            let cut = chance.below(ran.tape.end() + 1);
            let cut_image = ran.tape.image(cut, &mut chance);
            let (_, last) = recovered(&cut_image, &image.runs);
            std::fs::write(image.path(), &cut_image).unwrap();
            drop(Mounted::new(&image.path(), &image.dir.path().join("at"), "loop"));
            ran.judge(cut, &std::fs::read(image.path()).unwrap(), last);
        }
    }
}

/// Files are fsynced, and the image is copied while it is mounted: the copy is the state after a power cut.
fn killed(features: &str) -> (Image, Replay) {
    let image = Image::new(1024, features);
    let at = image.dir.path().join("at");
    let cut = image.dir.path().join("cut");
    {
        let mounted = Mounted::new(&image.path(), &at, "loop");
        for n in 0..5 {
            let mut file = std::fs::File::create(mounted.0.join(format!("file{n}"))).unwrap();
            file.write_all(&[n; 3000]).unwrap();
            file.sync_all().unwrap();
        }
        std::fs::remove_file(mounted.0.join("file0")).unwrap();
        std::fs::File::open(mounted.0.join("file1")).unwrap().sync_all().unwrap();
        std::fs::copy(image.path(), &cut).unwrap();
    }
    let bytes = std::fs::read(&cut).unwrap();
    let queue = RequestQueue::new(Arc::new(MemoryDevice::from_bytes(&bytes)), QueueLimits::default());
    let log = Log::new(Arc::new(queue), 1024, image.runs.clone()).unwrap();
    let replay = recover(Arc::new(log), (bytes.len() / 1024) as u64).unwrap();
    (image, replay)
}

#[test]
fn fast_commits_of_linux_are_read() {
    if skip() {
        return;
    }
    let (_image, replay) = killed("fast_commit");
    assert!(replay.has_fast_commits() && !replay.is_clean());
    let tags: Vec<_> = replay.fast_commits().map(Result::unwrap).collect();
    let is_file4 = |t: &FcTag| matches!(t, FcTag::Creat(name) if name.name == b"file4");
    assert!(tags.iter().any(is_file4), "{tags:?}");
    assert!(tags.iter().any(|t| matches!(t, FcTag::Inode { raw, .. } if raw.len() >= 128)), "{tags:?}");
    assert!(tags.iter().any(|t| matches!(t, FcTag::AddRange { .. })), "{tags:?}");
}
