//! A volume in memory to damage, and the judgement of a repair's result.

use crate::common::volume::{Image, fsck, mount_with};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tidegate_block::{BioFlags, Device, MemoryDevice, Op, QueueLimits, Record, RequestQueue};
use tidegate_f2fs::F2fsOptions;
use tidegate_f2fs::gate::Superblock;
use tidegate_f2fs::open::load_superblock;
use tidegate_f2fs::raw::*;
use tidegate_f2fs::repair::{Outcome, RepairOptions, RepairReport, repair};
use tidegate_rt::Timespec;
use tidegate_vfs::acl::Acl;
use tidegate_vfs::*;

pub const ROOT: &Cred = &Cred::ROOT;
pub const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const ACLS: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
/// Most errors that a walk reports.
const SHOWN: usize = 5;

pub fn queue(device: &Arc<dyn Device>) -> Arc<RequestQueue> {
    Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()))
}

pub fn mount(device: Arc<dyn Device>) -> Result<Arc<Vfs>> {
    let mount = MountOptions {
        no_periodic_writeback: true,
        noatime: true,
        fixed_time: Some(Timespec { secs: 1_700_000_000, nanos: 0 }),
        ..Default::default()
    };
    mount_with(device, MemoryLimits::default(), F2fsOptions::default(), mount).map(|v| v.1)
}

pub fn run_repair(device: Arc<dyn Device>) -> Result<RepairReport> {
    repair(&queue(&device), RepairOptions::default(), &mut |_| ())
}

/// The result of `f`, a panic as an error.
pub fn caught<T>(
    what: &str,
    f: impl FnOnce() -> std::result::Result<T, String>,
) -> std::result::Result<T, String> {
    std::panic::catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|p| {
        let text = p.downcast_ref::<String>().cloned();
        let text = text.or_else(|| p.downcast_ref::<&str>().map(|s| s.to_string()));
        Err(format!("{what} panics: {}", text.unwrap_or_default()))
    })
}

/// For each name its file: kind, mode, owners, links, size, content or target, attributes.
pub type Tree = BTreeMap<String, String>;

/// Reads every file of the volume.
///
/// # Errors
/// The file that could not be read.
pub fn walk(v: &Arc<Vfs>) -> std::result::Result<Tree, String> {
    let (mut all, mut bad) = (Tree::new(), Vec::new());
    let mut dirs = vec![(String::new(), v.root().map_err(|e| format!("root: {e}"))?)];
    match describe(v, &dirs[0].1) {
        Ok(text) => drop(all.insert("/".into(), text)),
        Err(e) => bad.push(format!("/: {e}")),
    }
    while let Some((path, dir)) = dirs.pop() {
        let entries = v.entries(&dir).unwrap_or_else(|e| {
            bad.push(format!("{path}/: {e}"));
            Vec::new()
        });
        for e in entries {
            let path = format!("{path}/{}", e.name.escape_ascii());
            let found = v.lookup(&dir, &e.name).map_err(|e| e.to_string());
            match found.and_then(|inode| describe(v, &inode).map(|text| (inode, text))) {
                Ok((inode, text)) => {
                    all.insert(path.clone(), text);
                    if inode.is_dir() {
                        dirs.push((path, inode));
                    }
                }
                Err(e) => bad.push(format!("{path}: {e}")),
            }
        }
    }
    if bad.is_empty() {
        return Ok(all);
    }
    bad.truncate(SHOWN);
    Err(bad.join("; "))
}

fn describe(v: &Arc<Vfs>, inode: &Arc<Inode>) -> std::result::Result<String, String> {
    let a = inode.attr().clone();
    let mut text =
        format!("{:?} {:o} {}:{} links {} size {}", a.file_type, a.mode, a.uid, a.gid, a.nlink, a.size);
    match a.file_type {
        FileType::Regular => text += &format!(" content {:x}", content(v, inode)?),
        FileType::Symlink => {
            let target = v.readlink(inode).map_err(|e| format!("readlink: {e}"))?;
            if target.is_empty() || target.contains(&0) || target.len() as u64 != a.size {
                let zero = target.iter().position(|b| *b == 0);
                let len = target.len();
                return Err(format!(
                    "a target of {len} bytes, a zero at {zero:?}, of a link of {} bytes",
                    a.size
                ));
            }
            text += &format!(" -> {}", target.escape_ascii());
        }
        _ => {}
    }
    for name in v.listxattr(ROOT, inode).map_err(|e| format!("listxattr: {e}"))? {
        let shown = name.escape_ascii().to_string();
        if name.is_empty() || name.ends_with(b".") {
            return Err(format!("attribute \"{shown}\" has no name"));
        }
        let value = v.getxattr(ROOT, inode, &name).map_err(|e| format!("attribute {shown}: {e}"))?;
        if text.contains(&format!(" {shown}=")) {
            return Err(format!("attribute {shown} is listed twice"));
        }
        text += &format!(" {shown}={:x}", f2fs_crc32(&value));
    }
    // The ACLs are read even if they are not listed, as an extraction does.
    for name in ACLS {
        match v.getxattr(ROOT, inode, name) {
            Ok(value) if Acl::parse(&value).is_none() => {
                return Err(format!("{}: {} is no ACL", name.escape_ascii(), value.escape_ascii()));
            }
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::NoData | ErrorKind::Unsupported) => {}
            Err(e) => return Err(format!("{}: {e}", name.escape_ascii())),
        }
    }
    Ok(text)
}

fn content(v: &Arc<Vfs>, inode: &Arc<Inode>) -> std::result::Result<u32, String> {
    let f = v.open(ROOT, inode, OpenFlags::READ).map_err(|e| format!("open: {e}"))?;
    let mut data = vec![0; f.size().min(32 << 20) as usize];
    let n = f.read_at(0, &mut data).map_err(|e| format!("read: {e}"))?;
    if n != data.len() { Err(format!("{n} bytes of {}", data.len())) } else { Ok(f2fs_crc32(&data)) }
}

/// The end of a repair that the engine agrees with.
#[derive(Debug)]
pub enum End {
    Good(RepairReport, Tree),
    Refused(String),
}

/// Repairs a volume, and judges the result.
///
/// # Errors
/// When the repair ended well but a later step does not.
pub fn repair_and_follow(device: &Arc<MemoryDevice>) -> std::result::Result<End, String> {
    let report = match caught("repair", || Ok(run_repair(device.clone())))? {
        Err(e) => return Ok(End::Refused(e.to_string())),
        Ok(r) if r.outcome == Outcome::Left => return Ok(End::Refused(format!("{:?}", r.check.problems))),
        Ok(r) => r,
    };
    let said = |what: &str, e: String| {
        let e: String = e.chars().take(700).collect();
        format!("repair ends {:?} with {} changes, then {what}: {e}", report.outcome, report.changes)
    };
    let mut bad = Vec::new();
    if let Err(e) = fsck(device) {
        bad.push(said("fsck.f2fs", e));
    }
    let opened = caught("opening", || {
        let v = mount(device.clone()).map_err(|e| said("opening", e.to_string()))?;
        if let Some(why) = v.fs().read_only() {
            return Err(said("it opens read-only", why.to_string()));
        }
        let tree = walk(&v).map_err(|e| said("reading all", e));
        v.unmount().map_err(|e| said("unmounting", e.to_string()))?;
        tree
    });
    let tree = opened.unwrap_or_else(|e| {
        bad.push(e);
        Tree::new()
    });
    if bad.is_empty()
        && let Err(e) = fsck(device)
    {
        bad.push(said("fsck.f2fs after use", e));
    }
    if bad.is_empty() { Ok(End::Good(report, tree)) } else { Err(bad.join("\n    ")) }
}

/// A separate device with the same content.
pub fn copy(device: &MemoryDevice) -> Arc<MemoryDevice> {
    Image::of(device).device()
}

pub fn superblock(device: &Arc<MemoryDevice>) -> Superblock {
    load_superblock(&RequestQueue::new(device.clone(), QueueLimits::default())).unwrap()
}

pub fn block(device: &MemoryDevice, n: u32) -> Vec<u8> {
    let mut b = vec![0; BLOCK_SIZE];
    device.read_at(u64::from(n) * BLOCK_SIZE as u64, &mut b);
    b
}

pub fn set_block(device: &MemoryDevice, n: u32, b: &[u8]) {
    device.write_at(u64::from(n) * BLOCK_SIZE as u64, b);
}

pub fn get32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().unwrap())
}

pub fn put32(b: &mut [u8], at: usize, v: u32) {
    b[at..at + 4].copy_from_slice(&v.to_le_bytes());
}

/// Corrects the checksum of an inode, if inodes have checksums.
pub fn sign(sb: &Superblock, b: &mut [u8]) {
    let is_inode = get32(b, FOOTER_OFFSET) == get32(b, FOOTER_OFFSET + 4);
    if !sb.features.contains(Features::INODE_CHKSUM) || !is_inode || b[3] & inline::EXTRA_ATTR == 0 {
        return;
    }
    let generation = std::mem::offset_of!(RawInode, i_generation);
    let mut c = f2fs_chksum(u32::MAX, &sb.raw.uuid);
    c = f2fs_chksum(c, &b[FOOTER_OFFSET + 4..FOOTER_OFFSET + 8]);
    c = f2fs_chksum(c, &b[generation..generation + 4]);
    c = f2fs_chksum(c, &b[..I_CHKSUM_OFFSET]);
    c = f2fs_chksum(c, &[0; 4]);
    c = f2fs_chksum(c, &b[I_CHKSUM_OFFSET + 4..]);
    put32(b, I_CHKSUM_OFFSET, c);
}

/// The offset of an inode's addresses or inline content.
pub fn addrs_at(b: &[u8]) -> usize {
    I_ADDR_OFFSET + if b[3] & inline::EXTRA_ATTR != 0 { usize::from(b[I_ADDR_OFFSET]) } else { 0 }
}

/// The device after a power cut behind the requests `done`; `arrived` decides for each write that was not
/// flushed whether it is there.
pub fn cut_off(base: &Image, done: &[Record], arrived: &mut impl FnMut() -> bool) -> Arc<MemoryDevice> {
    let device = base.device();
    let flush = |r: &Record| r.op == Op::Flush || r.flags.contains(BioFlags::PREFLUSH);
    let durable = done.iter().rposition(flush).unwrap_or(0);
    for (i, r) in done.iter().enumerate() {
        let here = i < durable || r.flags.contains(BioFlags::FUA) || arrived();
        match r.op {
            Op::Write if here => device.write_at(r.sector.bytes(), &r.data),
            Op::WriteZeroes if here => device.write_at(r.sector.bytes(), &vec![0; r.bytes as usize]),
            _ => {}
        }
    }
    device
}
