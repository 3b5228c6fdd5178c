//! Damage of each kind of block, one place at a time and at random: a volume may be refused, but nothing
//! may panic, hang or take memory without end.
//!
//! A failure names its cases; `TIDEGATE_CASE=text` runs only those whose names contain the text.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "common/fuzz_body.rs"]
mod fuzz_body;

use fuzz_body::{Left, Patch, Sample, UNSUMMED, clean, exercise};
use std::mem::offset_of;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use tidegate_block::{Device, Errno, MemoryDevice, Op, QueueLimits, Request, RequestQueue};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::raw::*;
use tidegate_vfs::{Cred, ErrorKind};

const LIMIT: Duration = Duration::from_secs(10);
const MAX_GROWTH: usize = 300 << 20;
/// Failures after which a test gives up; hangs end it sooner, by their time.
const ENOUGH: usize = 20;

/// One damaged volume.
struct Case {
    name: String,
    sample: &'static Sample,
    patches: Vec<Patch>,
    /// Checksums are made to match again.
    fix: bool,
}

/// The volume with orphans and no unmount.
fn orphaned() -> &'static Sample {
    static MADE: OnceLock<Sample> = OnceLock::new();
    MADE.get_or_init(|| Sample::build(UNSUMMED, Left::WithOrphans))
}

/// A volume whose inodes carry checksums, which most damage breaks.
fn summed() -> &'static Sample {
    static MADE: OnceLock<Sample> = OnceLock::new();
    MADE.get_or_init(|| Sample::build(UNSUMMED | Features::INODE_CHKSUM, Left::Clean))
}

/// Bytes by a seed (splitmix64), the same on each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

static PANICS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Keeps the place of each panic with the name of its thread, since a joined thread no longer tells it.
fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let name = thread::current().name().unwrap_or("?").to_string();
            // What the tests themselves say goes the usual way.
            if info.location().is_none_or(|at| at.file().ends_with("corrupt.rs")) {
                return before(info);
            }
            PANICS.lock().unwrap().push((name, info.to_string()));
        }));
    });
}

/// Takes the panics of a thread out, or of all threads that are no case's.
fn panics_of(name: Option<&str>) -> String {
    let mut all = PANICS.lock().unwrap();
    let mine = |who: &str| name.map_or(!who.starts_with("case "), |n| who == n);
    let found: Vec<String> =
        all.iter().filter(|(who, _)| mine(who)).map(|(who, what)| format!("[{who}] {what}")).collect();
    all.retain(|(who, _)| !mine(who));
    found.join("; ")
}

/// Memory of this process in bytes.
fn memory() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Growth since the volumes were made.
fn growth() -> usize {
    static START: AtomicUsize = AtomicUsize::new(0);
    if START.load(Relaxed) == 0 {
        clean();
        orphaned();
        summed();
        let _ = START.compare_exchange(0, memory(), Relaxed, Relaxed);
    }
    memory().saturating_sub(START.load(Relaxed))
}

/// Fails once when all cases together leave too much memory behind: later cases would tell no more.
fn leaking(name: &str) -> Result<(), String> {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let grown = growth();
    if grown < MAX_GROWTH || TOLD.swap(true, Relaxed) {
        return Ok(());
    }
    Err(format!("up to {name}, the cases of all tests together left {} MiB in use", grown >> 20))
}

/// Runs `f` in a thread called after the case; what is wrong with how it went. A thread that hangs is left
/// behind, since nothing can end it.
fn guarded<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (send, done) = channel();
    let name = format!("case {name}");
    let worker = thread::Builder::new().name(name.clone());
    let worker = worker.spawn(move || drop(send.send(f()))).unwrap();
    let (start, before) = (Instant::now(), growth());
    let result = loop {
        match done.recv_timeout(Duration::from_millis(100)) {
            Ok(v) => break v,
            Err(RecvTimeoutError::Disconnected) => {
                let _ = worker.join();
                return Err(format!("{name} panicked: {}", panics_of(Some(&name))));
            }
            Err(RecvTimeoutError::Timeout) if growth() > before + MAX_GROWTH => {
                return Err(format!("{name}: {} MiB more in use while it runs", (growth() - before) >> 20));
            }
            Err(RecvTimeoutError::Timeout) if start.elapsed() > LIMIT => {
                return Err(format!("{name} hangs: not done in {LIMIT:?}"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    let _ = worker.join();
    let others = panics_of(None);
    if !others.is_empty() {
        return Err(format!("{name}, or one at the same time, made another thread panic: {others}"));
    }
    leaking(&name)?;
    Ok(result)
}

fn wanted(name: &str) -> bool {
    std::env::var("TIDEGATE_CASE").map_or(true, |text| name.contains(&text))
}

/// Runs all cases and fails with the names of those that did not end in an answer.
fn run_all(cases: Vec<Case>) {
    keep_panics();
    growth();
    let start = Instant::now();
    let (mut failures, mut mounted) = (Vec::new(), 0);
    let cases: Vec<Case> = cases.into_iter().filter(|c| wanted(&c.name)).collect();
    let count = cases.len();
    for case in cases {
        let device = case.sample.damaged(&case.patches, case.fix);
        match guarded(&case.name, move || exercise(device)) {
            Ok(seen) => mounted += usize::from(seen.mounted),
            Err(e) => {
                eprintln!("FAILED: {e}");
                failures.push(e);
            }
        }
        if failures.len() >= ENOUGH || start.elapsed() > 3 * LIMIT {
            break;
        }
    }
    println!("{count} cases, {mounted} mounted, {:?}, {} MiB more", start.elapsed(), growth() >> 20);
    report(&failures);
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// A place in a block: name, offset, width.
type Field = (&'static str, usize, usize);

macro_rules! fields {
    ($raw:ty, $base:expr; $($name:ident $width:literal),* $(,)?) => {
        [$((stringify!($name), $base + offset_of!($raw, $name), $width)),*]
    };
}

/// What a field is set to: bounds, what is next to its value, chance, and what may point to itself.
fn values(old: u64, own: &[u32], seed: u64) -> Vec<u64> {
    let mut all = vec![0, 1, u64::MAX, i32::MAX as u64, old.wrapping_add(1), old.wrapping_sub(1)];
    all.push(Random(seed).next());
    all.extend(own.iter().map(|&v| v as u64));
    all.sort_unstable();
    all.dedup();
    all.retain(|v| *v != old);
    all
}

/// A case for each value of each field, set in all of `blocks` alike.
fn field_cases(
    what: &str,
    sample: &'static Sample,
    blocks: &[u32],
    fields: &[Field],
    own: &[u32],
    fix: bool,
) -> Vec<Case> {
    let mut cases = Vec::new();
    for &(field, at, width) in fields {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(&sample.block(blocks[0])[at..at + width]);
        for v in values(u64::from_le_bytes(bytes), own, at as u64) {
            let put =
                |b: &u32| (*b as u64 * BLOCK_SIZE as u64 + at as u64, v.to_le_bytes()[..width].to_vec());
            let name = format!("{what}.{field}={v:#x}{}", if fix { "" } else { " unfixed" });
            cases.push(Case { name, sample, patches: blocks.iter().map(put).collect(), fix });
        }
    }
    cases
}

/// A block range overwritten in four ways.
fn block_cases(what: &str, sample: &'static Sample, at: u32, range: std::ops::Range<usize>) -> Vec<Case> {
    let place = at as u64 * BLOCK_SIZE as u64 + range.start as u64;
    let old = sample.block(at)[range.clone()].to_vec();
    let mut few = old.clone();
    let mut random = Random(at as u64);
    for _ in 0..16 {
        few[random.below(old.len())] = random.next() as u8;
    }
    let ways = [
        ("zeros", vec![0; old.len()]),
        ("ones", vec![0xff; old.len()]),
        ("random", random.bytes(old.len())),
        ("16 bytes", few),
    ];
    let case = |(way, bytes): (&str, Vec<u8>)| {
        let name = format!("{what} block {at} {range:?} {way}");
        Case { name, sample, patches: vec![(place, bytes)], fix: true }
    };
    ways.map(case).into()
}

fn whole_blocks(what: &str, sample: &'static Sample, blocks: &[u32]) -> Vec<Case> {
    blocks.iter().flat_map(|b| block_cases(what, sample, *b, 0..BLOCK_SIZE)).collect()
}

/// Without damage all is there, so that the other tests try what they say.
#[test]
fn undamaged_volumes_are_seen_whole() {
    for (sample, orphans) in [(clean(), 0), (orphaned(), 1)] {
        let seen = exercise(sample.device());
        assert!(seen.mounted && seen.writable, "{seen:?}");
        assert_eq!(seen.errors.iter().filter(|k| **k != ErrorKind::NotFound).count(), 0, "{seen:?}");
        assert!(seen.entries > 200 && seen.attrs == 40 && seen.bytes > 100_000, "{seen:?}");
        let present = sample.cp.flags.contains(CpFlags::ORPHAN_PRESENT);
        assert_eq!(present, orphans == 1);
        assert!(sample.nodes.len() > 20);
    }
}

#[test]
fn superblock() {
    let fields = fields!(RawSuperblock, SUPER_OFFSET;
        magic 4, major_ver 2, log_sectorsize 4, log_sectors_per_block 4, log_blocksize 4,
        log_blocks_per_seg 4, segs_per_sec 4, secs_per_zone 4, checksum_offset 4, block_count 8,
        section_count 4, segment_count 4, segment_count_ckpt 4, segment_count_sit 4, segment_count_nat 4,
        segment_count_ssa 4, segment_count_main 4, segment0_blkaddr 4, cp_blkaddr 4, sit_blkaddr 4,
        nat_blkaddr 4, ssa_blkaddr 4, main_blkaddr 4, root_ino 4, node_ino 4, meta_ino 4,
        extension_count 4, cp_payload 4, feature 4, devs 1, hot_ext_count 1, qf_ino 4);
    let mut cases = field_cases("superblock", clean(), &[0, 1], &fields, &[2, 3], true);
    cases.extend(field_cases("superblock 0", clean(), &[0], &fields[..4], &[], false));
    cases.extend(whole_blocks("superblock 0", clean(), &[0]));
    run_all(cases);
}

const CHECKPOINT: [Field; 18] = fields!(RawCheckpoint, 0;
    checkpoint_ver 8, user_block_count 8, valid_block_count 8, rsvd_segment_count 4,
    overprov_segment_count 4, free_segment_count 4, cur_node_segno 4, cur_node_blkoff 2, cur_data_segno 4,
    cur_data_blkoff 2, ckpt_flags 4, cp_pack_total_block_count 4, cp_pack_start_sum 4, valid_node_count 4,
    valid_inode_count 4, next_free_nid 4, sit_ver_bitmap_bytesize 4, nat_ver_bitmap_bytesize 4);

/// Heads and tails of both packs, as far as both are whole.
fn heads(s: &Sample) -> Vec<u32> {
    let packs = [s.cp.start, s.sb.cp_blkaddr * 2 + BLOCKS_PER_SEG - s.cp.start];
    let total = offset_of!(RawCheckpoint, cp_pack_total_block_count);
    let ends = |p: u32| [p, p + s.word(p, total).clamp(2, BLOCKS_PER_SEG) - 1];
    packs.into_iter().flat_map(ends).collect()
}

#[test]
fn checkpoint_heads() {
    let mut cases = Vec::new();
    for (what, s) in [("checkpoint", clean()), ("orphaned checkpoint", orphaned())] {
        let heads = heads(s);
        cases.extend(field_cases(what, s, &heads, &CHECKPOINT, &[0x100, 0x4ff], true));
        // Each flag alone.
        let flags = [("ckpt_flags", offset_of!(RawCheckpoint, ckpt_flags), 4)];
        let bits: Vec<u32> = (0..16).map(|n| s.cp.flags.bits() ^ 1 << n).collect();
        cases.extend(field_cases(what, s, &heads[..2], &flags, &bits, true));
        cases.extend(field_cases(what, s, &heads[..2], &CHECKPOINT[..4], &[], false));
        cases.extend(field_cases(&format!("{what} tail"), s, &heads[1..2], &CHECKPOINT[..1], &[], true));
        let alloc_type = offset_of!(RawCheckpoint, alloc_type);
        let offset = offset_of!(RawCheckpoint, checksum_offset);
        cases.extend(field_cases(what, s, &heads, &[("checksum_offset", offset, 4)], &[192, 4088], true));
        cases.extend(block_cases(what, s, s.cp.start, alloc_type..CP_CHKSUM_OFFSET));
    }
    run_all(cases);
}

/// All of a pack behind its head: orphans, summaries, nat_bits.
#[test]
fn checkpoint_packs() {
    let mut cases = Vec::new();
    for (what, s) in [("pack", clean()), ("orphaned pack", orphaned())] {
        let end = s.cp.start + BLOCKS_PER_SEG;
        cases.extend(whole_blocks(what, s, &s.used(s.cp.start..end)));
        let sums = s.cp.start + s.cp.raw.cp_pack_start_sum.get();
        // The journals' counts and first entries, in both forms.
        for at in [0, SUM_JOURNAL_SIZE, ENTRIES_IN_SUM * SUMMARY_SIZE] {
            let fields = [("n", at, 2), ("id", at + 2, 4), ("ino", at + 7, 4), ("addr", at + 11, 4)];
            for block in sums..sums + 3 {
                let what = format!("{what} journal {at} of {block}");
                cases.extend(field_cases(&what, s, &[block], &fields, &[6, 38, 39], true));
            }
        }
    }
    let orphan = orphaned().cp.start + 1;
    let own: Vec<u32> = orphaned().inos.values().copied().chain([1, 2]).collect();
    let fields = fields!(RawOrphanBlock, 0; ino 4, entry_count 4, blk_addr 2, blk_count 2);
    cases.extend(field_cases("orphans", orphaned(), &[orphan], &fields, &own, true));
    run_all(cases);
}

#[test]
fn tables() {
    let s = clean();
    let mut cases = whole_blocks("sit", s, &s.used(s.sb.sit_blkaddr..s.sb.nat_blkaddr));
    cases.extend(whole_blocks("nat", s, &s.used(s.sb.nat_blkaddr..s.sb.ssa_blkaddr)));
    cases.extend(whole_blocks("ssa", s, &s.used(s.sb.ssa_blkaddr..s.sb.main_blkaddr)));
    let main = s.sb.main_blkaddr;
    for nat in s.used(s.sb.nat_blkaddr..s.sb.ssa_blkaddr) {
        for nid in [3, 4, 5, 8] {
            let at = nid * 9;
            let fields = [("version", at, 1), ("ino", at + 1, 4), ("addr", at + 5, 4)];
            let what = format!("nat block {nat} nid {nid}");
            cases.extend(field_cases(&what, s, &[nat], &fields, &[3, 4, main, s.nodes[&3]], true));
        }
    }
    run_all(cases);
}

const INODE: [Field; 17] = fields!(RawInode, 0;
    i_mode 2, i_advise 1, i_inline 1, i_links 4, i_size 8, i_blocks 8, i_current_depth 4, i_xattr_nid 4,
    i_flags 4, i_pino 4, i_namelen 4, i_dir_level 1, i_ext 4, i_atime_nsec 4, i_mtime 8, i_generation 4,
    i_uid 4);

/// Places in an inode behind its fixed part, and its footer.
const BEHIND: [Field; 12] = [
    ("i_extra_isize", I_ADDR_OFFSET, 2),
    ("i_inline_xattr_size", I_ADDR_OFFSET + 2, 2),
    ("i_addr[0]", I_ADDR_OFFSET + 24, 4),
    ("i_addr[1]", I_ADDR_OFFSET + 28, 4),
    ("i_nid[0]", I_NID_OFFSET, 4),
    ("i_nid[1]", I_NID_OFFSET + 4, 4),
    ("i_nid[2]", I_NID_OFFSET + 8, 4),
    ("i_nid[3]", I_NID_OFFSET + 12, 4),
    ("i_nid[4]", I_NID_OFFSET + 16, 4),
    ("footer.nid", FOOTER_OFFSET, 4),
    ("footer.ino", FOOTER_OFFSET + 4, 4),
    ("footer.flag", FOOTER_OFFSET + 8, 4),
];

/// Each named inode's block, with what a field of it might be made to point to.
fn inodes() -> impl Iterator<Item = (&'static str, u32, Vec<u32>)> {
    let s = clean();
    s.inos.iter().map(move |(name, ino)| (*name, s.nodes[ino], vec![*ino, s.nodes[ino], s.inos["holes"]]))
}

#[test]
fn inode_fields() {
    let modes: Vec<u32> = (0..16).map(|kind| kind << 12 | 0o644).collect();
    let inline: Vec<u32> = (0..8).map(|n| 1 << n).chain([0x2f, 0x2e, 0x0f, 0x27]).collect();
    let sizes = [3488, 3489, 4096, u32::MAX];
    let mut cases = Vec::new();
    for (name, block, own) in inodes() {
        cases.extend(field_cases(name, clean(), &[block], &INODE, &own[..1], true));
        cases.extend(field_cases(name, clean(), &[block], &INODE[..1], &modes, true));
        cases.extend(field_cases(name, clean(), &[block], &INODE[3..4], &inline, true));
        cases.extend(field_cases(name, clean(), &[block], &INODE[4..5], &sizes, true));
    }
    run_all(cases);
}

#[test]
fn inode_addresses() {
    let mut cases = Vec::new();
    for (name, block, own) in inodes() {
        cases.extend(field_cases(name, clean(), &[block], &BEHIND, &own, true));
        cases.extend(block_cases(name, clean(), block, I_ADDR_OFFSET + 24..I_NID_OFFSET));
        cases.extend(block_cases(name, clean(), block, 0..BLOCK_SIZE));
    }
    run_all(cases);
}

/// The nodes that are no inodes: addresses, node ids and attributes.
#[test]
fn other_nodes() {
    let s = clean();
    let inos: Vec<u32> =
        s.nodes.keys().copied().filter(|n| s.word(s.nodes[n], FOOTER_OFFSET + 4) == *n).collect();
    let mut cases = Vec::new();
    for (nid, block) in s.nodes.iter().filter(|(n, _)| !inos.contains(n)) {
        let own = [*nid, *block, s.word(*block, FOOTER_OFFSET + 4)];
        let used = (0..1018).find(|n| s.word(*block, n * 4) != 0).unwrap_or(0) * 4;
        let fields =
            [("[0]", 0, 4), ("[used]", used, 4), ("[last]", 1017 * 4, 4), BEHIND[9], BEHIND[10], BEHIND[11]];
        cases.extend(field_cases(&format!("node {nid}"), s, &[*block], &fields, &own, true));
        cases.extend(block_cases(&format!("node {nid}"), s, *block, 0..FOOTER_OFFSET));
        let all: Vec<u8> = nid.to_le_bytes().repeat(1018);
        let patches = vec![(*block as u64 * BLOCK_SIZE as u64, all)];
        cases.push(Case { name: format!("node {nid} all its own"), sample: s, patches, fix: true });
    }
    run_all(cases);
}

/// Bitmap, entry fields and names where `slots` entries begin at `base` of `block`.
fn dentry_cases(
    what: &str,
    block: u32,
    base: usize,
    map: usize,
    slots: usize,
    gap: usize,
    own: &[u32],
) -> Vec<Case> {
    let s = clean();
    let entries = base + map + gap;
    let names = entries + slots * SIZE_OF_DIR_ENTRY;
    let mut cases = block_cases(what, s, block, base..base + map);
    cases.extend(block_cases(what, s, block, entries..names));
    cases.extend(block_cases(what, s, block, names..names + 64));
    for slot in [0, 1, 2, 5, slots - 1] {
        let at = entries + slot * SIZE_OF_DIR_ENTRY;
        let fields = [("hash", at, 4), ("ino", at + 4, 4), ("name_len", at + 8, 2), ("type", at + 10, 1)];
        let what = format!("{what} slot {slot}");
        cases.extend(field_cases(&what, s, &[block], &fields, own, true));
    }
    for (way, byte) in [("slash", b'/'), ("nul", 0), ("dot", b'.')] {
        let at = block as u64 * BLOCK_SIZE as u64 + (names + 16) as u64;
        cases.push(Case {
            name: format!("{what} name {way}"),
            sample: s,
            patches: vec![(at, vec![byte; 8])],
            fix: true,
        });
    }
    cases
}

#[test]
fn directories() {
    let s = clean();
    let mut cases = Vec::new();
    for dir in ["block-dir", "root"] {
        let inode = s.nodes[&s.inos[dir]];
        let own = [s.inos[dir], s.inos["holes"], 255, 256, 3];
        for n in 0..4 {
            let block = s.word(inode, I_ADDR_OFFSET + 24 + n * 4);
            if block >= s.sb.main_blkaddr && block < u32::MAX - 2 {
                let what = format!("{dir} dentries");
                cases.extend(dentry_cases(
                    &what,
                    block,
                    0,
                    SIZE_OF_DENTRY_BITMAP,
                    NR_DENTRY_IN_BLOCK,
                    3,
                    &own,
                ));
            }
        }
    }
    for dir in ["inline-dir", "root"] {
        // As many entries as fit behind the extra attributes and before the inline attributes.
        let bytes = (DEF_ADDRS_PER_INODE - 6 - DEFAULT_INLINE_XATTR_ADDRS - DEF_INLINE_RESERVED_SIZE) * 4;
        let slots = bytes * 8 / ((SIZE_OF_DIR_ENTRY + F2FS_SLOT_LEN) * 8 + 1);
        let map = slots.div_ceil(8);
        let gap = bytes - map - slots * (SIZE_OF_DIR_ENTRY + F2FS_SLOT_LEN);
        let own = [s.inos[dir], s.inos["holes"], 255, 256, 3];
        let base = I_ADDR_OFFSET + 24 + 4;
        cases.extend(dentry_cases(dir, s.nodes[&s.inos[dir]], base, map, slots, gap, &own));
    }
    run_all(cases);
}

/// The areas that hold attributes: in the inode and in a node of its own.
#[test]
fn attributes() {
    let s = clean();
    let inode = s.nodes[&s.inos["attrs"]];
    let node = s.nodes[&s.word(inode, offset_of!(RawInode, i_xattr_nid))];
    let mut cases = Vec::new();
    for (what, block, at) in
        [("inline", inode, I_NID_OFFSET - DEFAULT_INLINE_XATTR_ADDRS * 4), ("node", node, 0)]
    {
        let fields = [
            ("magic", at, 4),
            ("refcount", at + 4, 4),
            ("index", at + 24, 1),
            ("name_len", at + 25, 1),
            ("value_size", at + 26, 2),
            ("name", at + 28, 4),
            ("further", at + 50, 2),
            ("further", at + 96, 4),
        ];
        let what = format!("attributes in the {what}");
        cases.extend(field_cases(&what, s, &[block], &fields, &[200, 4000], true));
        cases.extend(block_cases(&what, s, block, at..at + 200));
    }
    run_all(cases);
}

/// Up to 24 random changes of up to 16 bytes in blocks out of `blocks`.
fn random_case(what: &str, sample: &'static Sample, blocks: &[u32], seed: u64) -> Case {
    let mut random = Random(seed);
    let mut patches = Vec::new();
    for _ in 0..=random.below(24) {
        let block = blocks[random.below(blocks.len())] as u64 * BLOCK_SIZE as u64;
        let at = random.below(BLOCK_SIZE);
        let len = (1 + random.below(16)).min(BLOCK_SIZE - at);
        let byte = [0, 0xff, 1][random.below(3)];
        let bytes = if random.below(2) == 0 { vec![byte; len] } else { random.bytes(len) };
        patches.push((block + at as u64, bytes));
    }
    Case { name: format!("{what} seed {seed}"), sample, patches, fix: true }
}

#[test]
fn random_metadata() {
    let mut cases = Vec::new();
    for seed in 0..120 {
        let (what, s) = [("metadata", clean()), ("orphaned metadata", orphaned())][seed % 2];
        let blocks = s.used(s.sb.cp_blkaddr..s.sb.main_blkaddr);
        cases.push(random_case(&format!("random {what}"), s, &blocks, seed as u64));
    }
    run_all(cases);
}

#[test]
fn random_nodes() {
    let mut cases = Vec::new();
    let samples = [("nodes", clean()), ("orphaned nodes", orphaned()), ("summed nodes", summed())];
    for seed in 0..150 {
        let (what, s) = samples[seed % 3];
        let blocks: Vec<u32> = s.nodes.values().copied().collect();
        cases.push(random_case(&format!("random {what}"), s, &blocks, seed as u64));
    }
    run_all(cases);
}

/// What a volume had in memory goes with it: nothing keeps it when nobody can reach it any more.
#[test]
fn an_unmounted_volume_leaves_no_memory() {
    let v = fuzz_body::mount(clean().device()).unwrap();
    let top = v.root().unwrap();
    v.create(&Cred::ROOT, &top, b"new", 0o600).unwrap();
    drop(top);
    let (bdi, fs) = (Arc::downgrade(v.bdi()), Arc::downgrade(v.fs()));
    v.unmount().unwrap();
    drop(v);
    assert_eq!((bdi.strong_count(), fs.strong_count()), (0, 0), "something holds the volume");
}

/// Inputs as the fuzz target gets them.
#[test]
fn fuzz_inputs() {
    keep_panics();
    growth();
    let mut failures = Vec::new();
    for seed in (0..100u64).filter(|s| wanted(&format!("fuzz input seed {s}"))) {
        let mut random = Random(seed);
        let len = random.below(400);
        let input = random.bytes(len);
        failures.extend(guarded(&format!("fuzz input seed {seed}"), move || fuzz_body::run(&input)).err());
    }
    report(&failures);
}

/// Which requests fail.
#[derive(Clone, Copy, Debug)]
enum Fails {
    /// One of its kind.
    One(Op, u64),
    /// All from this one on.
    From(Op, u64),
}

/// A device that fails some requests.
struct Faulty {
    inner: Arc<MemoryDevice>,
    fails: Fails,
    seen: AtomicU64,
    failed: AtomicU64,
}

impl Faulty {
    fn fails(&self, op: Op) -> bool {
        let (which, n, on) = match self.fails {
            Fails::One(op, n) => (op, n, false),
            Fails::From(op, n) => (op, n, true),
        };
        if op != which {
            return false;
        }
        let now = self.seen.fetch_add(1, Relaxed);
        let fails = now == n || on && now > n;
        self.failed.fetch_add(u64::from(fails), Relaxed);
        fails
    }
}

impl Device for Faulty {
    fn name(&self) -> &str {
        "faulty"
    }
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn backend(&self) -> &'static str {
        "memory"
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        if self.fails(rq.op) { Err(Errno::IO) } else { self.inner.execute(rq) }
    }
}

/// Goes through everything on a device that fails. When requests failed, somebody is told, or what they were
/// for was done in another way and the volume is good.
fn faulty(fails: Fails) -> Result<(), String> {
    let inner = clean().device();
    let counts = (AtomicU64::new(0), AtomicU64::new(0));
    let device = Arc::new(Faulty { inner: inner.clone(), fails, seen: counts.0, failed: counts.1 });
    let name = format!("faulty device {fails:?}");
    let used = device.clone();
    let seen = guarded(&name, move || exercise(used))?;
    let failed = device.failed.load(Relaxed);
    if failed == 0 || seen.errors.contains(&ErrorKind::Io) || is_clean(inner) {
        return Ok(());
    }
    Err(format!("{name}: {failed} requests failed and nobody was told: {:?}", seen.errors))
}

fn is_clean(device: Arc<MemoryDevice>) -> bool {
    let queue = RequestQueue::new(device, QueueLimits::default());
    check(&queue, CheckOptions::default()).is_ok_and(|report| report.is_clean())
}

/// Requests fail one at a time, and from one on: that ends in errors which say so, and nothing worse.
#[test]
fn failing_devices() {
    keep_panics();
    growth();
    let mut failures = Vec::new();
    for op in [Op::Read, Op::Write, Op::Flush] {
        for n in (0..24).chain((24..200).step_by(8)) {
            for fails in [Fails::One(op, n), Fails::From(op, n)] {
                if wanted(&format!("faulty device {fails:?}")) {
                    failures.extend(faulty(fails).err());
                }
            }
        }
    }
    report(&failures);
}

/// Where nothing can be read, or nothing written, the error is the device's.
#[test]
fn dead_devices() {
    for op in [Op::Read, Op::Write] {
        let (seen, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        let device = Arc::new(Faulty { inner: clean().device(), fails: Fails::From(op, 0), seen, failed });
        let seen = exercise(device);
        assert_eq!(seen.mounted, op == Op::Write);
        let kind = if op == Op::Read {
            seen.errors.first()
        } else {
            seen.errors.iter().find(|k| **k == ErrorKind::Io)
        };
        assert_eq!(kind, Some(&ErrorKind::Io), "{op:?}: {:?}", seen.errors);
    }
}
