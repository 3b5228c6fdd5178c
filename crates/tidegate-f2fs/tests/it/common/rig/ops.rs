//! Random operations. Their numbers select among the objects that exist when the operation runs, so that any
//! part of a sequence of operations is a valid sequence, too.

use proptest::prelude::*;
use tidegate_vfs::{Cred, FallocateFlags, FileType, OpenFlags, RenameFlags, SeekTarget, XattrFlags};

/// The caller of an operation.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    Root,
    Ann,
    Bob,
}

impl Who {
    pub fn cred(self) -> Cred {
        match self {
            Who::Root => Cred::ROOT,
            Who::Ann => Cred { uid: 1000, gid: 1000, groups: vec![2000] },
            Who::Bob => Cred { uid: 1001, gid: 1001, groups: Vec::new() },
        }
    }
}

/// A directory, by number, and a name in it, by number.
pub type Place = (u8, u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remount {
    /// Files closed, unmounted, opened anew.
    Clean,
    /// Unmounted under open files.
    Busy,
    /// Unmounted with open files.
    Abandoned,
}

#[derive(Clone, Debug)]
pub enum Op {
    Create { who: Who, at: Place, mode: u32 },
    Mkdir { who: Who, at: Place, mode: u32 },
    Symlink { who: Who, at: Place, target: u16 },
    Mknod { who: Who, at: Place, kind: FileType, rdev: (u32, u32) },
    Link { who: Who, node: u8, at: Place },
    LinkOpen { file: u8, at: Place },
    Unlink { who: Who, at: Place },
    Rmdir { who: Who, at: Place },
    Rename { who: Who, from: Place, to: Place, flags: RenameFlags },
    Many { at: u8, count: u16, long: bool },
    Fewer { at: u8, step: u8 },
    InRemoved { name: u8 },
    Open { who: Who, at: Place, flags: OpenFlags, mode: u32 },
    OpenPath { who: Who, node: u8, flags: OpenFlags },
    Close { file: u8 },
    Write { file: u8, pos: u64, len: usize, seed: u8 },
    Read { file: u8, pos: u64, len: usize },
    Truncate { file: u8, size: u64 },
    Fallocate { file: u8, flags: FallocateFlags, pos: u64, len: u64 },
    Seek { file: u8, pos: u64, target: SeekTarget },
    Fsync { file: u8, data: bool },
    Chmod { who: Who, node: u8, mode: u32 },
    Chown { who: Who, node: u8, uid: Option<u8>, gid: Option<u8> },
    Utimens { who: Who, node: u8, atime: Option<(i64, u32)>, mtime: Option<(i64, u32)> },
    SetSize { who: Who, node: u8, size: u64 },
    SetXattr { who: Who, node: u8, name: u8, len: u16, seed: u8, flags: XattrFlags },
    DelXattr { who: Who, node: u8, name: u8 },
    GetXattr { who: Who, node: u8, name: u8 },
    ManyXattrs { node: u8 },
    SetAcl { who: Who, node: u8, default: bool, list: Option<u8> },
    Stat { node: u8 },
    List { at: u8 },
    Sync,
    Remount(Remount),
}

/// Bytes of a name with number `n`; the last is too long.
pub fn name(n: u8) -> Vec<u8> {
    match n % 13 {
        n @ 0..7 => vec![b'a' + n],
        7 => vec![b'L'; 255],
        8 => b"a name of 17 byte".to_vec(),
        9 => b"\xff\xc3(\x01\n".to_vec(),
        10 => b"8 bytes!".to_vec(),
        11 => [&[b'L'; 254][..], b"M"].concat(),
        _ => vec![b'T'; 256],
    }
}

fn who() -> impl Strategy<Value = Who> {
    prop_oneof![5 => Just(Who::Root), 2 => Just(Who::Ann), 1 => Just(Who::Bob)]
}

fn place() -> impl Strategy<Value = Place> {
    (any::<u8>(), any::<u8>())
}

fn mode() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => Just(0o644),
        3 => Just(0o755),
        4 => Just(0o777),
        1 => Just(0o2775),
        1 => Just(0o1777),
        1 => Just(0o6777),
        2 => 0..0o10000u32,
    ]
}

const PAGE: u64 = 4096;

/// Offsets in a file where its layout changes: the end of the part that fits the inode, the end of the
/// inode's own addresses with and without attributes in it, the end of each tree of nodes.
fn position() -> impl Strategy<Value = u64> {
    const BLOCK: u64 = 1018;
    let edges: [u64; 13] = [
        0,
        3488,
        3692,
        PAGE,
        864 * PAGE,
        873 * PAGE,
        923 * PAGE,
        (864 + BLOCK) * PAGE,
        (873 + BLOCK) * PAGE,
        (873 + 2 * BLOCK) * PAGE,
        (873 + 3 * BLOCK) * PAGE,
        (873 + 2 * BLOCK + BLOCK * BLOCK) * PAGE,
        (873 + 2 * BLOCK + 2 * BLOCK * BLOCK) * PAGE,
    ];
    let near = (0..edges.len(), -6000i64..6000).prop_map(move |(i, d)| edges[i].saturating_add_signed(d));
    let exact = (0..edges.len()).prop_map(move |i| edges[i]);
    prop_oneof![
        6 => 0u64..20_000,
        4 => near,
        3 => exact,
        2 => 0u64..(300 << 20),
        1 => (1u64 << 30)..(1u64 << 30) + 100_000,
        1 => (3u64 << 40)..(3u64 << 40) + 100_000,
        1 => (u64::MAX - 20)..u64::MAX,
        1 => (0u64..30_000).prop_map(|d| (4_329_690_886_144u64 - 20_000).saturating_add(d)),
    ]
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        1 => Just(0usize),
        5 => 1usize..200,
        3 => 3300usize..4200,
        2 => Just(4096usize),
        3 => 0usize..20_000,
        1 => 0usize..400_000,
    ]
}

fn open_flags() -> impl Strategy<Value = OpenFlags> {
    let rw = OpenFlags::READ | OpenFlags::WRITE;
    prop_oneof![
        10 => Just(rw),
        4 => Just(rw | OpenFlags::CREATE),
        2 => Just(rw | OpenFlags::CREATE | OpenFlags::EXCL),
        1 => Just(OpenFlags::READ),
        1 => Just(OpenFlags::WRITE),
        2 => Just(rw | OpenFlags::APPEND | OpenFlags::CREATE),
        1 => Just(rw | OpenFlags::TRUNC),
        1 => Just(rw | OpenFlags::TRUNC | OpenFlags::CREATE),
        1 => Just(rw | OpenFlags::NOFOLLOW),
        1 => Just(rw | OpenFlags::SYNC | OpenFlags::CREATE),
        1 => Just(OpenFlags::READ | OpenFlags::DIRECTORY),
        1 => Just(OpenFlags::READ | OpenFlags::NOATIME),
        1 => Just(OpenFlags::READ | OpenFlags::CREATE),
    ]
}

fn time() -> impl Strategy<Value = (i64, u32)> {
    let secs = prop_oneof![
        0i64..4_000_000_000,
        -3_000_000_000i64..0,
        Just(-1i64),
        Just(1i64 << 40),
        Just(-(1i64 << 40)),
    ];
    (secs, prop_oneof![Just(0u32), Just(999_999_999u32), 0u32..1_000_000_000])
}

fn allocation() -> impl Strategy<Value = FallocateFlags> {
    use FallocateFlags as F;
    prop_oneof![
        3 => Just(F::empty()),
        2 => Just(F::KEEP_SIZE),
        5 => Just(F::PUNCH_HOLE | F::KEEP_SIZE),
        3 => Just(F::ZERO_RANGE),
        2 => Just(F::ZERO_RANGE | F::KEEP_SIZE),
        1 => Just(F::PUNCH_HOLE),
        1 => Just(F::PUNCH_HOLE | F::ZERO_RANGE | F::KEEP_SIZE),
    ]
}

fn extent() -> impl Strategy<Value = u64> {
    prop_oneof![1 => Just(0u64), 6 => 1u64..20_000, 2 => 1u64..2_000_000, 2 => (1u64..10).prop_map(|n| n * PAGE)]
}

fn kind() -> impl Strategy<Value = FileType> {
    prop_oneof![
        Just(FileType::Fifo),
        Just(FileType::Socket),
        Just(FileType::CharDevice),
        Just(FileType::BlockDevice),
        Just(FileType::Regular),
    ]
}

fn rename_flags() -> impl Strategy<Value = RenameFlags> {
    prop_oneof![
        6 => Just(RenameFlags::empty()),
        2 => Just(RenameFlags::NOREPLACE),
        4 => Just(RenameFlags::EXCHANGE),
        3 => Just(RenameFlags::WHITEOUT),
        1 => Just(RenameFlags::WHITEOUT | RenameFlags::NOREPLACE),
        1 => Just(RenameFlags::WHITEOUT | RenameFlags::EXCHANGE),
        1 => Just(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE),
    ]
}

fn xattr_flags() -> impl Strategy<Value = XattrFlags> {
    prop_oneof![5 => Just(XattrFlags::empty()), 1 => Just(XattrFlags::CREATE), 1 => Just(XattrFlags::REPLACE)]
}

fn xattr_len() -> impl Strategy<Value = u16> {
    prop_oneof![
        1 => Just(0u16),
        6 => 0u16..120,
        2 => 0u16..1500,
        1 => 3900u16..4300,
        1 => Just(u16::MAX),
    ]
}

fn name_op() -> impl Strategy<Value = Op> {
    let target = any::<u16>();
    prop_oneof![
        8 => (who(), place(), mode()).prop_map(|(who, at, mode)| Op::Create { who, at, mode }),
        6 => (who(), place(), mode()).prop_map(|(who, at, mode)| Op::Mkdir { who, at, mode }),
        3 => (who(), place(), target).prop_map(|(who, at, target)| Op::Symlink { who, at, target }),
        2 => (who(), place(), kind(), (0u32..4096, 0u32..1 << 20))
            .prop_map(|(who, at, kind, rdev)| Op::Mknod { who, at, kind, rdev }),
        3 => (who(), any::<u8>(), place()).prop_map(|(who, node, at)| Op::Link { who, node, at }),
        1 => (any::<u8>(), place()).prop_map(|(file, at)| Op::LinkOpen { file, at }),
        5 => (who(), place()).prop_map(|(who, at)| Op::Unlink { who, at }),
        3 => (who(), place()).prop_map(|(who, at)| Op::Rmdir { who, at }),
        8 => (who(), place(), place(), rename_flags())
            .prop_map(|(who, from, to, flags)| Op::Rename { who, from, to, flags }),
        1 => (any::<u8>(), 1u16..300, any::<bool>())
            .prop_map(|(at, count, long)| Op::Many { at, count, long }),
        1 => (any::<u8>(), 1u8..6).prop_map(|(at, step)| Op::Fewer { at, step }),
        1 => any::<u8>().prop_map(|name| Op::InRemoved { name }),
        2 => any::<u8>().prop_map(|at| Op::List { at }),
    ]
}

fn file_op() -> impl Strategy<Value = Op> {
    let file = any::<u8>();
    prop_oneof![
        8 => (who(), place(), open_flags(), mode())
            .prop_map(|(who, at, flags, mode)| Op::Open { who, at, flags, mode }),
        4 => (who(), any::<u8>(), open_flags())
            .prop_map(|(who, node, flags)| Op::OpenPath { who, node, flags }),
        2 => file.prop_map(|file| Op::Close { file }),
        14 => (file, position(), length(), any::<u8>())
            .prop_map(|(file, pos, len, seed)| Op::Write { file, pos, len, seed }),
        6 => (file, position(), length()).prop_map(|(file, pos, len)| Op::Read { file, pos, len }),
        5 => (file, position()).prop_map(|(file, size)| Op::Truncate { file, size }),
        5 => (file, allocation(), position(), extent())
            .prop_map(|(file, flags, pos, len)| Op::Fallocate { file, flags, pos, len }),
        3 => (file, position(), any::<bool>()).prop_map(|(file, pos, data)| {
            let target = if data { SeekTarget::Data } else { SeekTarget::Hole };
            Op::Seek { file, pos, target }
        }),
        1 => (file, any::<bool>()).prop_map(|(file, data)| Op::Fsync { file, data }),
    ]
}

fn attr_op() -> impl Strategy<Value = Op> {
    let node = any::<u8>();
    let id = || proptest::option::of(0u8..4);
    prop_oneof![
        4 => (who(), node, mode()).prop_map(|(who, node, mode)| Op::Chmod { who, node, mode }),
        3 => (who(), node, id(), id()).prop_map(|(who, node, uid, gid)| Op::Chown { who, node, uid, gid }),
        3 => (who(), node, proptest::option::of(time()), proptest::option::of(time()))
            .prop_map(|(who, node, atime, mtime)| Op::Utimens { who, node, atime, mtime }),
        2 => (who(), node, position()).prop_map(|(who, node, size)| Op::SetSize { who, node, size }),
        6 => (who(), node, any::<u8>(), xattr_len(), any::<u8>(), xattr_flags()).prop_map(
            |(who, node, name, len, seed, flags)| Op::SetXattr { who, node, name, len, seed, flags }
        ),
        2 => (who(), node, any::<u8>()).prop_map(|(who, node, name)| Op::DelXattr { who, node, name }),
        2 => (who(), node, any::<u8>()).prop_map(|(who, node, name)| Op::GetXattr { who, node, name }),
        1 => node.prop_map(|node| Op::ManyXattrs { node }),
        3 => (who(), node, any::<bool>(), proptest::option::weighted(0.8, any::<u8>()))
            .prop_map(|(who, node, default, list)| Op::SetAcl { who, node, default, list }),
        2 => node.prop_map(|node| Op::Stat { node }),
    ]
}

fn volume_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => Just(Op::Sync),
        2 => Just(Op::Remount(Remount::Clean)),
        1 => Just(Op::Remount(Remount::Busy)),
        1 => Just(Op::Remount(Remount::Abandoned)),
    ]
}

/// Operations that use up space, and sometimes give some back.
fn filling_op() -> impl Strategy<Value = Op> {
    let file = any::<u8>();
    let rw = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let pos = || prop_oneof![0u64..20_000, 0u64..(4 << 20), position()];
    let len = prop_oneof![3 => 1usize..20_000, 6 => 0usize..400_000, 1 => (1usize << 20)..(5 << 20)];
    prop_oneof![
        8 => place().prop_map(move |at| Op::Open { who: Who::Root, at, flags: rw, mode: 0o644 }),
        14 => (file, pos(), len, any::<u8>())
            .prop_map(|(file, pos, len, seed)| Op::Write { file, pos, len, seed }),
        2 => (file, pos(), 0u64..3_000_000).prop_map(|(file, pos, len)| {
            Op::Fallocate { file, flags: FallocateFlags::empty(), pos, len }
        }),
        2 => (any::<u8>(), 1u16..300, any::<bool>())
            .prop_map(|(at, count, long)| Op::Many { at, count, long }),
        1 => any::<u8>().prop_map(|node| Op::ManyXattrs { node }),
        2 => (file, pos()).prop_map(|(file, size)| Op::Truncate { file, size }),
        2 => place().prop_map(|at| Op::Unlink { who: Who::Root, at }),
        2 => (file, any::<bool>()).prop_map(|(file, data)| Op::Fsync { file, data }),
    ]
}

/// A sequence of operations, printed one per line.
#[derive(Clone)]
pub struct History(pub Vec<Op>);

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().enumerate().try_for_each(|(i, op)| write!(f, "\n  {i}: {op:?}"))
    }
}

/// A sequence of operations that fill a small volume and go on in it.
pub fn filling(len: std::ops::Range<usize>) -> impl Strategy<Value = History> {
    let op =
        prop_oneof![24 => filling_op(), 4 => name_op(), 6 => file_op(), 3 => attr_op(), 1 => volume_op()];
    proptest::collection::vec(op, len).prop_map(History)
}

/// A sequence of operations on one volume.
pub fn history(len: std::ops::Range<usize>) -> impl Strategy<Value = History> {
    let op = prop_oneof![9 => name_op(), 12 => file_op(), 7 => attr_op(), 1 => volume_op()];
    proptest::collection::vec(op, len).prop_map(History)
}
