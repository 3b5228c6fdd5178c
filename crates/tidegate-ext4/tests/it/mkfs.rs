//! Volumes of our mkfs compared with those of mke2fs with equal options: the bytes are equal.

use crate::rig::{must, seed, skip};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tidegate_block::{MemoryDevice, Op, QueueLimits, Recorder, RequestQueue, file};
use tidegate_ext4::mkfs::{JournalSize, MkfsOptions, mkfs};
use tidegate_rt::Timespec;
use tidegate_testing::fill::Rng;
use tidegate_testing::oracle;
use tidegate_testing::temp::TempDir;

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
const BYTES: [u8; 16] = *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";
const TIME: i64 = 1_700_000_000;
/// Number of random volumes.
const CASES: u64 = 40;
/// Bytes of a superblock that count writes, and the checksum over them.
const MASKED: [std::ops::Range<usize>; 2] = [0x178..0x180, 0x3fc..0x400];

fn options() -> MkfsOptions {
    MkfsOptions {
        uuid: Some(BYTES),
        hash_seed: Some(BYTES),
        time: Timespec { secs: TIME, nanos: 0 },
        ..MkfsOptions::default()
    }
}

/// The options that correspond to mke2fs's words.
fn of_words(words: &[&str]) -> MkfsOptions {
    let mut o = options();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = *words.next().unwrap();
        match *word {
            "-b" => o.block_size = Some(value.parse().unwrap()),
            "-I" => o.inode_size = value.parse().unwrap(),
            "-i" => o.inode_ratio = Some(value.parse().unwrap()),
            "-N" => o.inodes = Some(value.parse().unwrap()),
            "-m" => o.reserved_percent = value.parse().unwrap(),
            "-L" => o.label = value.into(),
            "-O" => value.split(',').for_each(|f| o.features.change(f).unwrap()),
            "-J" => {
                let mib: u64 = value.strip_prefix("size=").unwrap().parse().unwrap();
                o.journal = JournalSize::Bytes(mib << 20);
            }
            other => panic!("{other}"),
        }
    }
    o
}

fn queue(path: &Path) -> Arc<RequestQueue> {
    let device = file::open(path, file::OpenOptions::default()).unwrap();
    Arc::new(RequestQueue::new(device, QueueLimits::default()))
}

/// Makes a volume twice, by mke2fs and by us; returns the difference, if there is one.
fn difference(dir: &TempDir, bytes: u64, words: &[&str]) -> Option<String> {
    let (theirs, ours) = (dir.path().join("theirs"), dir.path().join("ours"));
    for path in [&theirs, &ours] {
        File::create(path).and_then(|f| f.set_len(bytes)).unwrap();
    }
    let mke2fs = oracle::require("mke2fs").unwrap();
    let seed = format!("hash_seed={UUID}");
    let mut command = Command::new(mke2fs);
    command.env("E2FSPROGS_FAKE_TIME", TIME.to_string()).args(["-q", "-F", "-t", "ext4", "-U", UUID]);
    command.args(["-E", &seed]).args(words).arg(&theirs);
    let out = command.output().unwrap();
    if !out.status.success() {
        return Some(format!("{bytes} {words:?}: mke2fs: {}", String::from_utf8_lossy(&out.stderr)));
    }
    if let Err(e) = mkfs(&queue(&ours), &of_words(words)) {
        return Some(format!("{bytes} {words:?}: {e}"));
    }
    let at = first_difference(&theirs, &ours)?;
    let dump = |p: &Path| must("dumpe2fs", &[p.to_str().unwrap()]);
    let (a, b) = (dump(&theirs), dump(&ours));
    let mut told = format!("{bytes} bytes, {words:?}: byte {at:#x} differs");
    for (x, y) in a.lines().zip(b.lines()).filter(|(x, y)| x != y).take(8) {
        told += &format!("\nmke2fs: {x}\n  ours: {y}");
    }
    Some(told)
}

/// The first byte in which two sparse files differ, without the counts of writes.
fn first_difference(a: &Path, b: &Path) -> Option<u64> {
    let (a, b) = (File::open(a).unwrap(), File::open(b).unwrap());
    let found = [(&a, &b), (&b, &a)].map(|(one, other)| differs_from(one, other));
    found.into_iter().flatten().min()
}

fn differs_from(one: &File, other: &File) -> Option<u64> {
    let end = one.metadata().unwrap().len();
    let mut at = 0;
    while at < end {
        let Ok(start) = rustix::fs::seek(one.as_fd(), rustix::fs::SeekFrom::Data(at)) else { return None };
        let stop = rustix::fs::seek(one.as_fd(), rustix::fs::SeekFrom::Hole(start)).unwrap();
        at = start / 4096 * 4096;
        while at < stop {
            let mut bufs = [vec![0; 1 << 16], vec![0; 1 << 16]];
            let n = ((stop - at) as usize).min(1 << 16);
            for (f, buf) in [one, other].into_iter().zip(&mut bufs) {
                f.read_exact_at(&mut buf[..n], at).unwrap();
                mask(buf);
            }
            if let Some(i) = (0..n).find(|i| bufs[0][*i] != bufs[1][*i]) {
                return Some(at + i as u64);
            }
            at += n as u64;
        }
    }
    None
}

/// Blanks the superblocks' counts of writes: at byte 1024, and in copies, which begin with a block.
fn mask(bytes: &mut [u8]) {
    let len = bytes.len();
    let mut blank = |s: usize| {
        if s + 1024 <= len && bytes[s + 0x38..s + 0x3a] == [0x53, 0xef] && bytes[s + 0x68..s + 0x78] == BYTES
        {
            MASKED.into_iter().for_each(|r| bytes[s + r.start..s + r.end].fill(0));
        }
    };
    (0..len).step_by(1024).for_each(&mut blank);
}

#[test]
fn every_size_has_the_bytes_that_mke2fs_gives_it() {
    if skip() {
        return;
    }
    let dir = TempDir::new("mkfs-sizes").unwrap();
    let (k, m, g, t) = (1_u64 << 10, 1_u64 << 20, 1_u64 << 30, 1_u64 << 40);
    let sizes = [
        m,
        2 * m,
        2 * m + 4 * k,
        3 * m,
        5 * m,
        8 * m,
        9 * m + 12 * k,
        17 * m,
        33 * m,
        64 * m,
        100 * m + 60 * k,
        300 * m,
        511 * m,
        512 * m,
        700 * m,
        g,
        1030 * m,
        2 * g,
        3 * g + 77 * m,
        7 * g,
        2177 * m,
        2200 * m,
        2304 * m,
        16 * g,
        20 * g,
        33 * g,
        65 * g,
        100 * g,
        129 * g,
        333 * g,
        t,
    ];
    let told: Vec<_> = sizes.into_iter().filter_map(|bytes| difference(&dir, bytes, &[])).collect();
    assert!(told.is_empty(), "{}", told.join("\n\n"));
}

#[test]
fn every_option_has_the_bytes_that_mke2fs_gives_it() {
    if skip() {
        return;
    }
    let dir = TempDir::new("mkfs-options").unwrap();
    let (m, g) = (1_u64 << 20, 1_u64 << 30);
    let cases: &[(u64, &str)] = &[
        (64 * m, "-b 4096"),
        (100 * m, "-b 2048"),
        (2 * g, "-b 1024"),
        (4 * g, "-b 1024"),
        (40 * g, "-b 1024"),
        (8 * g, "-b 2048"),
        (200 * m, "-I 128"),
        (2 * g, "-I 512"),
        (g, "-I 1024 -b 1024"),
        (g, "-i 4096"),
        (g, "-i 1024"),
        (g, "-i 1048576"),
        (g, "-N 17"),
        (3 * g + m, "-m 7.3"),
        (517 * m, "-m 49.99"),
        (769 * m, "-m 33.3"),
        (2049 * m, "-m 1.7 -i 2048"),
        (g, "-N 100000"),
        (g, "-m 0 -L rootfs"),
        (g, "-m 12.5 -L sixteen-bytes-ok"),
        (g, "-J size=8"),
        (2 * g, "-J size=300"),
        (20 * g, "-J size=1024"),
        (100 * m, "-O ^has_journal"),
        (g, "-O ^64bit"),
        (64 * m, "-O ^64bit,^metadata_csum"),
        (3 * g, "-O ^metadata_csum"),
        (3 * g, "-O uninit_bg,^metadata_csum"),
        (g, "-O metadata_csum_seed"),
        (g, "-O orphan_file"),
        (64 * m, "-O orphan_file,metadata_csum_seed"),
        (200 * g, "-O orphan_file"),
        (3 * g, "-O ^resize_inode"),
        (3 * g, "-O ^flex_bg"),
        (300 * m, "-O ^flex_bg"),
        (20 * g, "-O ^flex_bg"),
        (3 * g, "-O ^flex_bg,^metadata_csum,^64bit"),
        (3 * g, "-O meta_bg,^resize_inode"),
        (300 * m, "-O meta_bg,^resize_inode,^flex_bg"),
        (3 * g, "-O ^sparse_super,^resize_inode"),
        (g, "-O ^huge_file,^dir_nlink,^extra_isize,^dir_index,^large_file"),
        (g, "-O large_dir,stable_inodes"),
        (g, "-O ^ext_attr"),
        (700 * m, "-b 1024 -O ^64bit -I 128 -N 5000 -m 1"),
    ];
    let told = cases.iter().filter_map(|(bytes, words)| {
        let words: Vec<_> = words.split_whitespace().collect();
        difference(&dir, *bytes, &words)
    });
    let told: Vec<_> = told.collect();
    assert!(told.is_empty(), "{}", told.join("\n\n"));
}

/// Sizes and options are random.
#[test]
fn random_volumes_have_the_bytes_that_mke2fs_gives_them() {
    if skip() {
        return;
    }
    let seed = seed();
    let mut rng = Rng::new(seed);
    let dir = TempDir::new("mkfs-random").unwrap();
    let mut told = Vec::new();
    for _ in 0..CASES {
        let bytes = (1 << 20) + (rng.below(4 << 30) >> rng.below(12)) / 4096 * 4096;
        let mut words = Vec::new();
        let mut say = |option: &str, values: &[&str], rng: &mut Rng| {
            if rng.below(3) == 0 {
                words.extend([option.into(), values[rng.below(values.len() as u64) as usize].to_string()]);
            }
        };
        say("-b", &["1024", "2048", "4096"], &mut rng);
        say("-I", &["128", "256", "512", "1024"], &mut rng);
        say("-i", &["4096", "8192", "20000", "65536"], &mut rng);
        say("-m", &["0", "1", "3.7", "20"], &mut rng);
        let features = [
            "^flex_bg",
            "^64bit",
            "^metadata_csum",
            "^has_journal",
            "^resize_inode",
            "meta_bg,^resize_inode",
            "metadata_csum_seed",
        ];
        say("-O", &features, &mut rng);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        told.extend(difference(&dir, bytes, &words));
    }
    assert!(told.is_empty(), "{}", told.join("\n\n"));
}

/// Neighbouring blocks go to the device together: hundreds of blocks are reserved for descriptors.
#[test]
fn neighbours_are_written_together() {
    let recorder = Arc::new(Recorder::new(Arc::new(MemoryDevice::new(64 << 20))));
    let queue = RequestQueue::new(recorder.clone(), QueueLimits::default());
    mkfs(&queue, &MkfsOptions { block_size: Some(1024), ..options() }).unwrap();
    let all = recorder.take();
    let writes: Vec<_> = all.iter().filter(|r| r.op == Op::Write).collect();
    let blocks: usize = writes.iter().map(|r| r.data.len() / 1024).sum();
    assert!(blocks > 250 && writes.len() < 60, "{blocks} blocks in {} requests", writes.len());
}
