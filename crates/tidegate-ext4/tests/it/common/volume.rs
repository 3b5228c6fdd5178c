//! Small volumes in memory, made by mke2fs, opened by the engine, judged by e2fsck and by our own check.

pub use super::image::Image;
use std::sync::Arc;
use tidegate_block::{Device, MemoryDevice, QueueLimits, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options, check};
use tidegate_rt::Timespec;
use tidegate_testing::ext4::{is_clean, made, mended, recovered, scratch};
use tidegate_vfs::offline::CheckOptions;
use tidegate_vfs::{Bdi, MemoryLimits, MountOptions, Result, Vfs};

/// The range of seconds in times, in inodes with the fields for it.
pub const SECONDS: std::ops::RangeInclusive<i64> = -0x8000_0000..=0x3_7fff_ffff;
/// Bytes of attributes for which an inode and the smallest block have room in any case.
pub const XATTRS: usize = 700;

/// Switch settings that do not change files.
pub const SWITCHES: [&str; 6] =
    ["commit=1", "commit=30", "data=ordered", "nomap_first=off", "nomap_first=on", "nomap_first=pipelined"];

/// A fresh volume.
pub fn fresh(mib: u64, args: &[&str]) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::from_bytes(&made(&scratch("fresh").unwrap(), mib << 20, args).unwrap()))
}

/// Opens and mounts the volume on a device for writing, with every change at `time`.
pub fn open_rw(
    device: Arc<dyn Device>,
    limits: MemoryLimits,
    time: Timespec,
) -> Result<(Arc<Ext4>, Arc<Vfs>)> {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let bdi = Bdi::new(limits);
    let fs = Ext4::open(queue, bdi.clone(), Ext4Options::default())?;
    let vfs = Vfs::mount(fs.clone(), bdi, MountOptions { fixed_time: Some(time), ..Default::default() })?;
    assert_eq!(vfs.fs().read_only(), None, "a good volume came up read-only");
    Ok((fs, vfs))
}

/// Whether the superblock says that the volume was unmounted and has no error: `s_state` is EXT4_VALID_FS alone,
/// and there is no EXT4_FEATURE_INCOMPAT_RECOVER. The judgement by [`fsck`] is milder without these marks.
pub fn is_unmounted(device: &MemoryDevice) -> std::result::Result<(), String> {
    let mut sb = [0; 1024];
    device.read_at(1024, &mut sb);
    let (state, incompat) = (sb[0x3a], sb[0x60]);
    let good = state == 1 && incompat & 4 == 0;
    if good { Ok(()) } else { Err(format!("unmounted with s_state {state} and incompat {incompat:#x}")) }
}

/// The faults that e2fsck and our own check find.
pub fn fsck(device: &MemoryDevice) -> std::result::Result<(), String> {
    let mut bytes = vec![0; Device::size(device) as usize];
    device.read_at(0, &mut bytes);
    let copy = Arc::new(MemoryDevice::from_bytes(&bytes));
    let queue = Arc::new(RequestQueue::new(copy, QueueLimits::default()));
    let own = check::check(&queue, CheckOptions { max_problems: 5, progress: None });
    let own = own.map_err(|e| e.to_string())?;
    // A volume without a journal that was left in use is marked so: its faults are for e2fsck.
    let in_use = bytes[1024 + 0x3a] & 1 == 0;
    let problem = own.problems.iter().find(|_| !in_use);
    let own = problem.map(|p| format!("check: {}: {} ({} problems)", p.rule, p.text, own.total_problems));
    let dir = scratch("checked").map_err(|e| e.to_string())?;
    let path = dir.path().join("checked.img");
    std::fs::write(&path, &bytes).map_err(|e| e.to_string())?;
    // A volume that was unmounted with open files has orphans, which e2fsck frees first.
    let orphans = bytes[1024 + 0xe8..1024 + 0xec] != [0; 4];
    // The journal of a volume that was left in use may have content that its blocks lack.
    let needs_recovery = bytes[1024 + 0x60] & 4 != 0;
    let judged = match () {
        () if in_use => mended(&path),
        () if orphans || needs_recovery => recovered(&path),
        () => is_clean(&path),
    };
    own.map_or(judged.map_err(|e| format!("{e:#}")), Err).inspect_err(|_| {
        // A failing volume is kept on request.
        if let Some(keep) = std::env::var_os("TIDEGATE_KEEP") {
            std::fs::copy(&path, keep).unwrap();
        }
    })
}
