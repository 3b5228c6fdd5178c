//! Stock tools as judges: e2fsck's replay of a journal, byte for byte, and journals that debugfs writes.

use crate::crash::{Base, ran, recovered};
use crate::image::{Chance, Seed, seeds};
use crate::writer::{Shape, Sums, Writer};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_jbd2::{FsBlock, JournalMode, Log, Run, recover};
use tidegate_testing::oracle;
use tidegate_testing::temp::TempDir;

/// Runs a stock tool; returns its output and its exit code.
pub fn run(tool: &str, args: &[&str]) -> (String, i32) {
    let path = oracle::available(tool).unwrap_or_else(|| PathBuf::from(tool));
    let mut command = Command::new("timeout");
    command.arg("60").arg(path).args(args).stdin(Stdio::null());
    let out = command.output().unwrap();
    let text = [out.stdout, out.stderr].concat();
    (String::from_utf8_lossy(&text).into_owned(), out.status.code().unwrap_or(-1))
}

pub struct Image {
    pub dir: TempDir,
    block_size: usize,
    /// The place of the journal.
    pub runs: Vec<Run>,
}

impl Image {
    /// A volume of 3,000 blocks with a journal of 1,024.
    pub fn new(block_size: usize, features: &str) -> Image {
        let dir = TempDir::new("jbd2").unwrap();
        let path = dir.path().join("image");
        let size = format!("{}", 3_000 * block_size / 1024);
        let journal = format!("size={}", block_size / 1024);
        let block = block_size.to_string();
        let args = [
            "-q",
            "-F",
            "-t",
            "ext4",
            "-b",
            &block,
            "-O",
            features,
            "-J",
            &journal,
            path.to_str().unwrap(),
            &size,
        ];
        let (text, code) = run("mke2fs", &args);
        assert_eq!(code, 0, "{text}");
        let (text, _) = run("debugfs", &["-R", "blocks <8>", path.to_str().unwrap()]);
        let blocks = text.lines().find(|l| !l.starts_with("debugfs")).unwrap().split_whitespace();
        let one = |b: &str| Run { first: FsBlock(b.parse().unwrap()), len: 1 };
        Image { runs: blocks.map(one).collect(), dir, block_size }
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn place(&self, log_block: usize) -> usize {
        self.runs[log_block].first.0 as usize * self.block_size
    }

    /// Puts a log into the volume's journal and marks the volume as in need of it.
    fn put(&self, image: &mut [u8], log: &[u8]) {
        for (n, block) in log.chunks(self.block_size).enumerate() {
            image[self.place(n)..][..self.block_size].copy_from_slice(block);
        }
        self.mark(image);
    }

    /// Marks the volume as in need of recovery (`s_feature_incompat`: RECOVER).
    pub fn mark(&self, image: &mut [u8]) {
        image[1024 + 0x60] |= 4;
    }

    /// The image after our recovery, or the text of the error.
    fn ours(&self, image: &[u8]) -> Result<Vec<u8>, String> {
        let device = Arc::new(MemoryDevice::from_bytes(image));
        let queue = Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()));
        let log = Log::new(queue.clone(), self.block_size as u32, self.runs.clone()).unwrap();
        let blocks = image.len() / self.block_size;
        let replay = recover(Arc::new(log), blocks as u64).map_err(|e| e.to_string())?;
        if let Some(tid) = replay.failed_commit() {
            return Err(format!("transaction {tid} failed"));
        }
        replay.write_out(&queue).map_err(|e| e.to_string())?;
        let mut after = vec![0; image.len()];
        device.read_at(0, &mut after);
        Ok(after)
    }

    /// The image after e2fsck's recovery, with its output.
    fn theirs(&self, image: &[u8]) -> (Vec<u8>, String, i32) {
        std::fs::write(self.path(), image).unwrap();
        let (text, code) = run("e2fsck", &["-y", "-E", "journal_only", self.path().to_str().unwrap()]);
        (std::fs::read(self.path()).unwrap(), text, code)
    }

    /// Asserts that both are equal except for the volume's own superblock.
    fn assert_same(&self, ours: &[u8], theirs: &[u8], text: &str) {
        let differs = |n: &usize| {
            let range = n * self.block_size..(n + 1) * self.block_size;
            *n != 1024 / self.block_size && ours[range.clone()] != theirs[range]
        };
        let blocks: Vec<_> = (0..ours.len() / self.block_size).filter(differs).collect();
        assert!(blocks.is_empty(), "blocks {blocks:?} differ; log's first {}; {text}", self.runs[0].first);
    }
}

/// Offsets of `s_sequence` and `s_start` in the journal's superblock.
const S_SEQUENCE: usize = 0x18;
const S_START: usize = 0x1c;

const SUMS: [Sums; 4] = [Sums::None, Sums::V1, Sums::V2, Sums::V3];

fn shape(chance: &mut Chance, block_size: usize, sums: Sums, wide: bool) -> Shape {
    Shape {
        block_size,
        len: 1024,
        wide,
        sums,
        start: 1 + chance.below(1023) as u32,
        tid: *chance.0.pick(&[1, 77, u32::MAX - 3, i32::MAX as u32 - 2]),
        uuids: chance.one_in(3),
    }
}

/// Free blocks of the image, which only the log writes.
pub const FREE: std::ops::Range<u64> = 2_500..2_540;

fn some_transactions(chance: &mut Chance, shape: Shape, n: usize) -> Writer {
    let mut w = Writer::new(shape);
    for _ in 0..n {
        let t = chance.transaction(w.shape.block_size, FREE);
        w.transaction(&t);
    }
    w
}

#[test]
fn e2fsck_replays_the_same_bytes() {
    if oracle::skip_or_fail("e2fsck") || oracle::skip_or_fail("mke2fs") || oracle::skip_or_fail("debugfs") {
        return;
    }
    for block_size in [1024, 4096] {
        let image = Image::new(block_size, "^metadata_csum");
        let fresh = std::fs::read(image.path()).unwrap();
        for seed in seeds(0..8) {
            let _seed = Seed(seed);
            let mut chance = Chance::new(seed);
            let (sums, wide) = (SUMS[seed as usize % 4], chance.one_in(2));
            let shape = shape(&mut chance, block_size, sums, wide);
            let w = some_transactions(&mut chance, shape, 8);
            let cut = chance.below(w.writes.len() as u64 + 1) as usize;
            for writes in [cut, w.writes.len()] {
                let mut bytes = fresh.clone();
                image.put(&mut bytes, &w.log(&[], writes));
                let ours = image.ours(&bytes).unwrap();
                let (theirs, text, code) = image.theirs(&bytes);
                assert!(code <= 1, "{text}");
                image.assert_same(&ours, &theirs, &text);
            }
        }
    }
}

/// e2fsck finds a fault in each damaged log that we refuse, and replays the bytes that we replay from the
/// others.
#[test]
fn e2fsck_finds_the_same_logs_damaged() {
    if oracle::skip_or_fail("e2fsck") || oracle::skip_or_fail("mke2fs") || oracle::skip_or_fail("debugfs") {
        return;
    }
    let image = Image::new(1024, "^metadata_csum");
    let fresh = std::fs::read(image.path()).unwrap();
    for seed in seeds(0..60) {
        let _seed = Seed(seed);
        let mut chance = Chance::new(seed);
        let (sums, wide) = (SUMS[seed as usize % 4], chance.one_in(2));
        let shape = shape(&mut chance, 1024, sums, wide);
        let w = some_transactions(&mut chance, shape, 5);
        let mut log = w.log(&[], w.writes.len());
        let (block, bytes) = &w.writes[chance.below(w.writes.len() as u64) as usize];
        // Like newer kernels, we ignore the rest of a record's block.
        let within = if chance.one_in(2) || bytes[7] == 2 { 60 } else { 1024 };
        let at = chance.below(within) as usize;
        log[*block as usize * 1024 + at] ^= 1 << chance.below(8);
        let mut bytes = fresh.clone();
        image.put(&mut bytes, &log);
        let (theirs, text, code) = image.theirs(&bytes);
        let fault =
            code > 1 || ["corrupt", "Corrupt", "checksum", "invalid"].iter().any(|w| text.contains(w));
        match image.ours(&bytes) {
            Ok(ours) => {
                assert!(!fault, "{text}");
                image.assert_same(&ours, &theirs, &text);
            }
            Err(e) => assert!(fault, "{e}; {code} {text}"),
        }
    }
}

/// debugfs writes one transaction in each run: it writes several in one run wrongly.
#[test]
fn debugfs_writes_what_we_replay() {
    if oracle::skip_or_fail("e2fsck") || oracle::skip_or_fail("mke2fs") || oracle::skip_or_fail("debugfs") {
        return;
    }
    for (features, version) in
        [("metadata_csum", 3), ("metadata_csum", 2), ("^metadata_csum", 1), ("^64bit", 3)]
    {
        let image = Image::new(1024, features);
        let (path, data) = (image.path(), image.dir.path().join("data"));
        let mut chance = Chance::new(version);
        for (n, first) in [2_500u64, 2_505, 2_503, 2_510].into_iter().enumerate() {
            let bytes: Vec<u8> = (0..8).flat_map(|_| chance.block(1024)).collect();
            std::fs::write(&data, bytes).unwrap();
            let mut commands =
                format!("jo -v {version}\njw -b {first}-{} {}\njc\n", first + 6, path_of(&data));
            if n == 2 {
                commands = format!("jo -v {version}\njw -r 2500,2507\njc\n");
            }
            let script = image.dir.path().join("commands");
            std::fs::write(&script, commands).unwrap();
            let (text, code) = run("debugfs", &["-w", "-f", path_of(&script), path_of(&path)]);
            assert!(code == 0 && !text.contains("rror"), "{text}");
        }
        let bytes = std::fs::read(&path).unwrap();
        let ours = image.ours(&bytes).unwrap();
        assert_ne!(ours, bytes);
        let (theirs, text, code) = image.theirs(&bytes);
        assert!(code <= 1, "{text}");
        image.assert_same(&ours, &theirs, &text);
    }
}

/// e2fsck and we replay the state after a power cut in the same way.
#[test]
fn e2fsck_recovers_what_our_journal_wrote() {
    if oracle::skip_or_fail("e2fsck") || oracle::skip_or_fail("mke2fs") || oracle::skip_or_fail("debugfs") {
        return;
    }
    let image = Image::new(1024, "^metadata_csum");
    let mut bytes = std::fs::read(image.path()).unwrap();
    image.mark(&mut bytes);
    for seed in seeds(0..8) {
        let _seed = Seed(seed);
        let base = Base { bytes: bytes.clone(), runs: image.runs.clone(), first: FREE.start };
        let ran = ran(seed, JournalMode::ALL[(seed / 2 % 2) as usize], base);
        let mut chance = Chance::new(seed);
        for _ in 0..5 {
            let cut = chance.below(ran.tape.end() + 1);
            let cut_image = ran.tape.image(cut, &mut chance);
            let (mut ours, last) = recovered(&cut_image, &image.runs);
            let (theirs, text, code) = image.theirs(&cut_image);
            assert!(code <= 1, "{text}");
            ran.judge(cut, &theirs, last);
            // For a clean log, e2fsck increases the number of the next transaction, which has no meaning; we
            // do not.
            let log = image.runs[0].first.0 as usize * image.block_size;
            if cut_image[log + S_START..log + S_START + 4] == [0; 4] {
                ours[log + S_SEQUENCE..log + S_START]
                    .copy_from_slice(&theirs[log + S_SEQUENCE..log + S_START]);
            }
            image.assert_same(&ours, &theirs, &text);
        }
    }
}

pub fn path_of(path: &Path) -> &str {
    path.to_str().unwrap()
}
