//! Small volumes in memory, formatted by the reference tool, opened by the engine, judged by the
//! reference checker.

pub use super::image::Image;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use tidegate_block::{Device, MemoryDevice, QueueLimits, RequestQueue};
use tidegate_f2fs::gate::Superblock;
use tidegate_f2fs::mkfs::{self, MkfsError, MkfsOptions, layout};
use tidegate_f2fs::raw::{BLOCK_SIZE, BLOCKS_PER_SEG, CpFlags, Features, RawCheckpoint};
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::Timespec;
use tidegate_vfs::{Bdi, FileSystem, MemoryLimits, MountOptions, Result, Vfs};
use zerocopy::FromBytes;

/// Every feature that Tidegate writes.
pub const FEATURES: &str =
    "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,sb_checksum,lost_found";

/// The range of seconds in times.
pub const SECONDS: std::ops::RangeInclusive<i64> = i64::MIN..=i64::MAX;
/// Bytes of attributes that every inode has room for.
pub const XATTRS: usize = 1 << 30;

/// Switch settings that do not change files.
pub const SWITCHES: [&str; 7] = [
    "writepages=submit_locked,min_seq_blocks=0",
    "writepages=unlocked,nocheckpoint_merge",
    "writepages=locked,min_seq_blocks=4",
    "fsync_mode=strict,noflush_merge",
    "mode=lfs,background_gc=off",
    "warm_streams=5,hot_streams=3,cold_streams=2,stream_policy=srr",
    "hot_streams=1,warm_streams=11,cold_streams=1,stream_policy=spf",
];

/// Formats a file with the reference tool.
pub fn mkfs(path: &Path, mib: u64, features: &str) {
    File::create(path).unwrap().set_len(mib << 20).unwrap();
    let mut command = Command::new(tidegate_testing::oracle::require("mkfs.f2fs").unwrap());
    command.arg("-q");
    if !features.is_empty() {
        command.args(["-O", features]);
    }
    let out = command.arg(path).output().unwrap();
    assert!(out.status.success(), "mkfs.f2fs: {}", String::from_utf8_lossy(&out.stderr));
}

/// A fresh volume made by the reference tool; made once for each size and set of features.
pub fn template(mib: u64, features: &'static str) -> Image {
    static MADE: Mutex<Option<HashMap<(u64, &'static str), Image>>> = Mutex::new(None);
    let mut made = MADE.lock().unwrap();
    let known = made.get_or_insert_default();
    known
        .entry((mib, features))
        .or_insert_with(|| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("template.img");
            mkfs(&path, mib, features);
            Image::load(&path)
        })
        .clone()
}

/// A fresh volume made by our mkfs: the smallest possible.
pub fn smallest(features: Features) -> Arc<MemoryDevice> {
    let options = MkfsOptions {
        uuid: Some([7; 16]),
        features,
        time: Timespec { secs: 1_600_000_000, nanos: 1 },
        ..Default::default()
    };
    let Err(MkfsError::TooSmall { need, .. }) = layout(0, &options) else { panic!("a size is needed") };
    let device = Arc::new(MemoryDevice::new(need));
    let queue = RequestQueue::new(device.clone(), QueueLimits::default());
    mkfs::mkfs(&queue, &options).unwrap();
    device
}

/// Opens and mounts the volume on a device.
pub fn mount_with(
    device: Arc<dyn Device>,
    limits: MemoryLimits,
    options: F2fsOptions,
    mount: MountOptions,
) -> Result<(Arc<F2fs>, Arc<Vfs>)> {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let bdi = Bdi::new(limits);
    let fs = F2fs::open(queue, bdi.clone(), options)?;
    let vfs = Vfs::mount(fs.clone(), bdi, mount)?;
    Ok((fs, vfs))
}

/// Mounts a volume that must open for writing, with every change at `time`.
pub fn mount_rw(device: Arc<dyn Device>, limits: MemoryLimits, time: Timespec) -> Result<Arc<Vfs>> {
    open_rw(device, limits, time).map(|v| v.1)
}

/// Mounts a volume for writing, and returns the volume itself, too.
pub fn open_rw(
    device: Arc<dyn Device>,
    limits: MemoryLimits,
    time: Timespec,
) -> Result<(Arc<F2fs>, Arc<Vfs>)> {
    let mount = MountOptions { fixed_time: Some(time), ..Default::default() };
    let (fs, vfs) = mount_with(device, limits, F2fsOptions::default(), mount)?;
    assert_eq!(FileSystem::read_only(&**vfs.fs()), None, "a good volume came up read-only");
    Ok((fs, vfs))
}

/// Whether the newest checkpoint says that the volume was unmounted and has no error.
pub fn is_unmounted(device: &MemoryDevice) -> std::result::Result<(), String> {
    let block = |at: u32| {
        let mut b = vec![0; BLOCK_SIZE];
        device.read_at(u64::from(at) * BLOCK_SIZE as u64, &mut b);
        b
    };
    let sb =
        Superblock::parse(&block(0), Device::size(device) / BLOCK_SIZE as u64).map_err(|e| e.to_string())?;
    let packs = [sb.cp_blkaddr, sb.cp_blkaddr + BLOCKS_PER_SEG];
    let heads = packs.map(|at| RawCheckpoint::read_from_prefix(&block(at)).unwrap().0);
    let newest = heads.iter().max_by_key(|cp| cp.checkpoint_ver.get()).unwrap();
    let flags = CpFlags::from_bits_retain(newest.ckpt_flags.get());
    let good = flags.contains(CpFlags::UMOUNT) && !flags.intersects(CpFlags::ERROR | CpFlags::FSCK);
    if good { Ok(()) } else { Err(format!("unmounted with checkpoint flags {flags:?}")) }
}

/// The faults that the reference checker finds.
pub fn fsck(device: &MemoryDevice) -> std::result::Result<(), String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("checked.img");
    Image::of(device).save(&path);
    tidegate_testing::golden::fsck_f2fs(&path).map_err(|e| {
        // A failing volume is kept on request.
        if let Some(keep) = std::env::var_os("TIDEGATE_KEEP") {
            std::fs::copy(&path, keep).unwrap();
        }
        format!("{e:#}")
    })
}
