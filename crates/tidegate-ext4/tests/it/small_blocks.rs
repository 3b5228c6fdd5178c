//! Pages of several blocks, compared with the host's kernel doing the same on a volume of its own: a write takes the
//! blocks that it touches, and a hole frees those that it covers, wherever pages begin and end.

use crate::indirect::{PUNCH, Pair};
use crate::journaled;
use crate::rig::*;
use std::sync::Arc;
use tidegate_block::{BioFlags, MemoryDevice, Op};
use tidegate_rt::{Nanos, sim, thread};
use tidegate_testing::fill::Rng;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;

/// A random change of the first hundred blocks, with ends at blocks, at pages and at neither.
fn step(pair: &Pair, rng: &mut Rng, block: u64) -> String {
    let mut place = |most: u64| {
        let at = rng.below(most * block);
        [at, at / block * block, at / 4096 * 4096][rng.below(3) as usize]
    };
    let (at, len) = (place(100), place(9) + 1);
    let len = if len > block { len - 1 } else { len };
    match rng.below(8) {
        0..=3 => {
            pair.write(at, &vec![rng.below(250) as u8 + 1; len as usize]);
            format!("{len} bytes written at {at}")
        }
        4..=5 => {
            pair.allocate(PUNCH, at, len);
            format!("{len} bytes punched at {at}")
        }
        6 => {
            pair.truncate(at);
            format!("cut to {at}")
        }
        _ => {
            pair.fsync();
            "fsync".into()
        }
    }
}

fn create(v: &Arc<Vfs>) -> File {
    v.open_path(ROOT, b"/f", OpenFlags::CREATE | OpenFlags::READ | OpenFlags::WRITE, 0o644).unwrap()
}

#[test]
fn blocks_and_not_pages_are_taken_and_freed() {
    if skip() {
        return;
    }
    let seed = seed();
    let mut rng = Rng::new(seed);
    let dir = scratch();
    for (n, (kind, block, options)) in [
        ("ext4", 1024, ""),
        ("ext4", 2048, "nomap_first=on"),
        ("ext3", 1024, ""),
        ("ext4", 1024, "data=journal"),
    ]
    .into_iter()
    .enumerate()
    {
        let (own, theirs) = (dir.path().join(format!("own-{n}")), dir.path().join(format!("kernel-{n}")));
        for image in [&own, &theirs] {
            mke2fs(image, &["-t", kind, "-b", &block.to_string()], "64M");
        }
        let kernel = Mounted::new(&theirs, "rw").unwrap();
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&own).unwrap()));
        let v = journaled::mount(&device, options, MemoryLimits::default()).unwrap();
        for f in 0..8 {
            let name = format!("f{f}");
            let pair = Pair::new(&v, &kernel, &name);
            for n in 0..60 {
                let did = step(&pair, &mut rng, block);
                let what = format!("seed {seed} {kind} {block} {options} {name} step {n}: {did}");
                // Data that waits in memory is seen in its blocks, too. Linux sees none of it in files without extents.
                if kind == "ext4" {
                    pair.compare_seeks(&what);
                }
                if n % 4 == 0 {
                    pair.compare(&what);
                }
            }
        }
        v.unmount().unwrap();
        drop(v);
        std::fs::write(&own, journaled::bytes(&device)).unwrap();
        must_be_clean(&own);
    }
}

/// Every other block of a long file is written, and only those, with the smallest journal.
#[test]
fn every_other_block_of_many_pages_is_written() {
    if skip() {
        return;
    }
    let dir = scratch();
    for options in ["", "nomap_first=on", "data=journal"] {
        let device = journaled::fresh(dir.path(), &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
        let v = journaled::mount(&device, options, MemoryLimits::default()).unwrap();
        let f = create(&v);
        // The second block of each pair.
        let places: Vec<u64> = (0..3000).map(|n| n * 2048 + 1024).collect();
        places.iter().for_each(|at| _ = f.write_at(*at, &[1; 10]).unwrap());
        f.fsync(false).unwrap();
        for at in places {
            let found = (f.seek(at - 1024, SeekTarget::Data).unwrap(), f.seek(at, SeekTarget::Hole).unwrap());
            assert_eq!(found, (at, (at + 1024).min(f.size())), "{options}");
        }
        drop(f);
        v.unmount().unwrap();
        let image = dir.path().join("image");
        std::fs::write(&image, journaled::bytes(&device)).unwrap();
        must_be_clean(&image);
    }
}

/// Blocks ahead of data that come to a page on its way are not marked with it: nothing is sent to them.
#[test]
fn blocks_that_come_to_a_page_on_its_way_read_as_zeros() {
    if skip() {
        return;
    }
    for options in ["", "nomap_first=on"] {
        let dir = scratch();
        let below = journaled::fresh(dir.path(), &["-t", "ext4", "-b", "1024"]);
        let gate = Gate::new(below, |rq| rq.op == Op::Write && !rq.flags.contains(BioFlags::META));
        let v = journaled::mount_on(gate.clone(), options, MemoryLimits::default()).unwrap();
        let f = create(&v);
        v.sync().unwrap();
        f.truncate(4096).unwrap();
        f.write_at(1024, &[1; 10]).unwrap();
        v.fs().writepages(f.inode(), &mut WritebackControl::background(u64::MAX)).unwrap();
        v.bdi().submit_pending();
        assert!(gate.is_kept(), "{options}");
        f.fallocate(FallocateFlags::KEEP_SIZE, 0, 4096).unwrap();
        gate.let_go(Ok(()));
        f.fsync(false).unwrap();
        let found = [(0, SeekTarget::Data), (1024, SeekTarget::Hole)].map(|(at, target)| f.seek(at, target));
        assert_eq!(found.map(Result::unwrap), [1024, 2048], "{options}");
        drop(f);
        v.unmount().unwrap();
    }
}

/// A block that comes ahead of data while its page goes into a transaction holds nothing up.
#[test]
fn blocks_come_ahead_of_data_beside_a_pass_that_logs_their_page() {
    if skip() {
        return;
    }
    let dir = scratch();
    let bytes = Arc::new(journaled::bytes(&journaled::fresh(dir.path(), &["-t", "ext4", "-b", "1024"])));
    for seed in 0..40 {
        let bytes = bytes.clone();
        let config = sim::Config { seed, quantum: Nanos(0), jitter: 8, ..sim::Config::default() };
        let left = sim::run_with(&config, move || {
            let device = Arc::new(MemoryDevice::from_bytes(&bytes));
            let v = journaled::mount(&device, "data=journal", MemoryLimits::default()).unwrap();
            let f = create(&v);
            f.truncate(40 * 4096).unwrap();
            let (vfs, of) = (v.clone(), f.inode().clone());
            let passes = thread::spawn("passes", move || {
                for _ in 0..60 {
                    vfs.fs().writepages(&of, &mut WritebackControl::background(u64::MAX)).unwrap();
                }
            });
            for page in 0..40 {
                f.write_at(page * 4096, &[1; 10]).unwrap();
                f.fallocate(FallocateFlags::KEEP_SIZE, page * 4096, 4096).unwrap();
            }
            passes.unwrap().join();
            f.fsync(false).unwrap();
            assert_eq!(v.fs().read_only(), None);
            drop(f);
            v.unmount().unwrap();
        });
        assert!(left.is_ok(), "seed {seed}: {}", left.unwrap_err());
    }
}
