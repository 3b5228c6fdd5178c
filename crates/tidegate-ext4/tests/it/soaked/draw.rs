//! Random kinds of volumes and of work.

use tidegate_testing::fill::Rng;

/// Features, of which each round has some.
const FEATURES: [&str; 15] = [
    "^has_journal",
    "^extent,^64bit",
    "^metadata_csum",
    "^metadata_csum,uninit_bg",
    "orphan_file",
    "sparse_super2",
    "meta_bg,^resize_inode",
    "large_dir",
    "^flex_bg",
    "^dir_index",
    "^huge_file",
    "metadata_csum_seed",
    "^resize_inode",
    "^64bit",
    "^sparse_super,^resize_inode",
];

/// A kind of volume and of work on it.
pub(super) struct Draw {
    pub(super) args: Vec<String>,
    pub(super) size: &'static str,
    pub(super) how: &'static str,
    pub(super) journal: bool,
    pub(super) block: u64,
    pub(super) threads: u64,
    /// The volume is filled first.
    pub(super) full: bool,
}

impl Draw {
    pub(super) fn new(rng: &mut Rng) -> Draw {
        let block = [1024, 2048, 4096][rng.below(3) as usize];
        let mut features: Vec<&str> =
            (0..rng.below(4)).map(|_| FEATURES[rng.below(FEATURES.len() as u64) as usize]).collect();
        features.sort_unstable();
        features.dedup();
        let kind = ["ext4", "ext4", "ext4", "ext3", "ext2"][rng.below(5) as usize];
        let inode = ["128", "256"][rng.below(2) as usize];
        if features.contains(&"^has_journal") || kind != "ext4" {
            features.retain(|f| !matches!(*f, "orphan_file" | "metadata_csum_seed"));
        }
        let mut args = ["-t", kind, "-b", &block.to_string(), "-I", inode].map(String::from).to_vec();
        if !features.is_empty() {
            args.extend(["-O".into(), features.join(",")]);
        }
        let journal = kind != "ext2" && !features.contains(&"^has_journal");
        let how = HOW[rng.below(HOW.len() as u64) as usize];
        let threads = [1, 1, 1, 2, 4, 6][rng.below(6) as usize];
        let full = rng.below(3) == 0;
        let size = if full { "20M" } else { "64M" };
        Draw { args, size, how: if journal { how } else { "" }, journal, block, threads, full }
    }
}

impl std::fmt::Display for Draw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let full = if self.full { ", full" } else { "" };
        write!(f, "{} {} \"{}\", {} threads{full}", self.args.join(" "), self.size, self.how, self.threads)
    }
}

/// Mount options, of which each round has some.
const HOW: [&str; 6] =
    ["", "data=writeback", "journal=jbd2", "nomap_first=on", "data=journal", "nomap_first=off"];
