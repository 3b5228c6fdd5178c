//! The caller's options, and the check that they are possible.

use super::MkfsError;
use crate::format::raw::Features;
use tidegate_rt::{Timespec, clock};

/// Extensions of files that are written once and read: their data goes to the cold log.
pub const COLD_EXTENSIONS: [&str; 36] = [
    "mp", "wm", "og", "jp", "avi", "m4v", "m4p", "mkv", "mov", "webm", "wav", "m4a", "3gp", "opus", "flac",
    "gif", "png", "svg", "webp", "jar", "deb", "iso", "gz", "xz", "zst", "pdf", "pyc", "ttc", "ttf", "exe",
    "apk", "cnt", "exo", "odex", "vdex", "so",
];
/// Extensions of files that are overwritten in place: their data goes to the hot log.
pub const HOT_EXTENSIONS: [&str; 4] = ["db", "vmdk", "vdi", "qcow2"];

/// Slots for extensions in the superblock.
const MAX_EXTENSIONS: usize = 64;
/// UTF-16 units of the label.
const MAX_LABEL: usize = 512;
/// Bytes of the version text: its field less the NUL.
const MAX_VERSION: usize = 255;
/// Segments in the largest zone: 1 TiB.
const MAX_ZONE_SEGMENTS: u64 = 1 << 19;

/// Features that hold only with [`Features::EXTRA_ATTR`].
const IN_EXTRA_ATTR: Features =
    Features::INODE_CHKSUM.union(Features::FLEXIBLE_INLINE_XATTR).union(Features::INODE_CRTIME);
/// Features a volume can be made with, beside [`Features::BLKZONED`].
pub const SUPPORTED_FEATURES: Features =
    IN_EXTRA_ATTR.union(Features::EXTRA_ATTR).union(Features::SB_CHKSUM).union(Features::LOST_FOUND);
/// Devices that a volume can be on.
const MAX_DEVICES: usize = 8;
/// Bytes of a device's path: its field less the NUL.
const MAX_PATH: usize = 63;

/// One of several devices.
#[derive(Clone, Debug, PartialEq)]
pub struct DevicePart {
    /// The path that Linux opens the device by, at most 63 bytes.
    pub path: String,
    /// Size of the device in bytes.
    pub bytes: u64,
}

/// The options of a new volume. Equal options with a `uuid` make equal bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct MkfsOptions {
    /// Name of the volume, at most 512 UTF-16 units.
    pub label: String,
    /// Identity of the volume; random when `None`.
    pub uuid: Option<[u8; 16]>,
    /// Features, out of [`SUPPORTED_FEATURES`]. With [`Features::BLKZONED`] sections are zones: the zones of
    /// a zoned device, or zones of `segs_per_sec` segments on another device.
    pub features: Features,
    /// The devices that the queue's device is made of ([`tidegate_block::Linear`]), in order; empty for one
    /// device.
    pub devices: Vec<DevicePart>,
    /// Share of the main area kept from users so that cleaning stays cheap, in percent. `None` takes the
    /// ratio that leaves users the most.
    pub overprovision_percent: Option<f64>,
    /// Segments (2 MiB) in a section, the unit of cleaning.
    pub segs_per_sec: u32,
    /// Sections in a zone; each log starts in a zone of its own.
    pub secs_per_zone: u32,
    /// Extensions of cold files; at most 7 bytes each, at most 64 with the hot ones.
    pub cold_extensions: Vec<String>,
    /// Extensions of hot files.
    pub hot_extensions: Vec<String>,
    /// All times of the first directories.
    pub time: Timespec,
    /// Owner of the first directories.
    pub root_uid: u32,
    /// Group of the first directories.
    pub root_gid: u32,
    /// Discard the whole device first.
    pub discard: bool,
    /// The maker of the volume, at most 255 bytes; kept in the superblock.
    pub version: String,
}

impl Default for MkfsOptions {
    /// No features, a random UUID, discard, the time now.
    fn default() -> Self {
        MkfsOptions {
            label: String::new(),
            uuid: None,
            features: Features::empty(),
            devices: Vec::new(),
            overprovision_percent: None,
            segs_per_sec: 1,
            secs_per_zone: 1,
            cold_extensions: COLD_EXTENSIONS.map(String::from).into(),
            hot_extensions: HOT_EXTENSIONS.map(String::from).into(),
            time: clock::realtime(),
            root_uid: 0,
            root_gid: 0,
            discard: true,
            version: concat!("Tidegate ", env!("CARGO_PKG_VERSION")).into(),
        }
    }
}

impl MkfsOptions {
    /// Refuses what the format cannot hold.
    pub(super) fn check(&self) -> Result<(), MkfsError> {
        self.check_features()?;
        self.check_texts()?;
        let bad = |d: &DevicePart| d.path.is_empty() || d.path.len() > MAX_PATH || d.path.contains('\0');
        if self.devices.len() > MAX_DEVICES || self.devices.iter().any(bad) {
            return Err(MkfsError::BadDevices);
        }
        if self.has(Features::BLKZONED) && self.secs_per_zone != 1 {
            let (segs_per_sec, secs_per_zone) = (self.segs_per_sec, self.secs_per_zone);
            return Err(MkfsError::BadZone { segs_per_sec, secs_per_zone });
        }
        if let Some(p) = self.overprovision_percent
            && !(p > 0.0 && p < 100.0)
        {
            return Err(MkfsError::BadOverprovision(p));
        }
        if !(1..=MAX_ZONE_SEGMENTS).contains(&self.zone_segments()) {
            let (segs_per_sec, secs_per_zone) = (self.segs_per_sec, self.secs_per_zone);
            return Err(MkfsError::BadZone { segs_per_sec, secs_per_zone });
        }
        Ok(())
    }

    fn check_features(&self) -> Result<(), MkfsError> {
        let unknown = self.features - SUPPORTED_FEATURES - Features::BLKZONED;
        if !unknown.is_empty() {
            return Err(MkfsError::UnsupportedFeatures(unknown));
        }
        let dependent = self.features & IN_EXTRA_ATTR;
        if !dependent.is_empty() && !self.has(Features::EXTRA_ATTR) {
            return Err(MkfsError::NeedsExtraAttr(dependent));
        }
        Ok(())
    }

    fn check_texts(&self) -> Result<(), MkfsError> {
        let units = self.label.encode_utf16().count();
        if units > MAX_LABEL {
            return Err(MkfsError::LabelTooLong(units));
        }
        if self.version.len() > MAX_VERSION {
            return Err(MkfsError::VersionTooLong(self.version.len()));
        }
        let count = self.cold_extensions.len() + self.hot_extensions.len();
        if count > MAX_EXTENSIONS {
            return Err(MkfsError::TooManyExtensions(count));
        }
        let mut all = self.cold_extensions.iter().chain(&self.hot_extensions);
        match all.find(|e| !(1..=7).contains(&e.len()) || e.contains('\0')) {
            Some(e) => Err(MkfsError::BadExtension(e.clone())),
            None => Ok(()),
        }
    }

    /// Whether the options ask for `feature`.
    pub(super) fn has(&self, feature: Features) -> bool {
        self.features.contains(feature)
    }

    /// Segments in a zone.
    pub(super) fn zone_segments(&self) -> u64 {
        self.segs_per_sec as u64 * self.secs_per_zone as u64
    }
}
