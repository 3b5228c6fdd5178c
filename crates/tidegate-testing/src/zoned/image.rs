//! A zoned device as files: its data, and its zones with their write pointers.
//!
//! The data are a sparse file `NAME` in which zone `i` begins at `i * zone_size`, with nothing at and behind
//! a write pointer. The zones are `NAME.zones` beside it, in JSON. While a guest uses the device, the list
//! does not exist, since the zones are unknown.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::FallocateFlags;
use serde::{Deserialize, Serialize};

use crate::golden::sparse_copy;

/// The block size of a zoned device in bytes: writes are multiples of it.
pub const BLOCK: u64 = 4096;
/// The unit of `blkzone`, in bytes.
const SECTOR: u64 = 512;

/// The geometry of a zoned device. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// The number of zones, conventional zones included.
    pub zones: u32,
    /// The distance between the beginnings of two zones; Linux requires a power of two.
    pub zone_size: u64,
    /// How much of a zone can be written.
    pub capacity: u64,
    /// How many of the zones, from the first on, are conventional. NVMe has no conventional zones: a device
    /// with some is made by the guest's driver `null_blk`.
    pub conventional: u32,
    /// How many zones may be open, 0 for any number.
    pub max_open: u32,
    /// How many zones may be partly written, 0 for any number.
    pub max_active: u32,
}

impl Geometry {
    /// 512 MiB in zones of 16 MiB with full capacity, of which eight can be open.
    pub const DEFAULT: Geometry = Geometry {
        zones: 32,
        zone_size: 16 << 20,
        capacity: 16 << 20,
        conventional: 0,
        max_open: 8,
        max_active: 8,
    };

    /// The size of the device in bytes.
    pub fn size(&self) -> u64 {
        u64::from(self.zones) * self.zone_size
    }

    fn check(&self) -> Result<()> {
        let Geometry { zones, zone_size, capacity, conventional, max_open, max_active } = *self;
        ensure!(zone_size.is_power_of_two() && zone_size >= 1 << 20, "no size for a zone: {zone_size}");
        let fits = capacity > 0 && capacity <= zone_size && capacity.is_multiple_of(BLOCK);
        ensure!(fits, "no capacity for a zone of {zone_size}: {capacity}");
        ensure!(zones > 0 && conventional <= zones, "{conventional} of {zones} zones cannot be conventional");
        let limits = max_active == 0 || max_open <= max_active && max_open > 0;
        ensure!(limits, "{max_open} zones cannot be open where {max_active} can be active");
        Ok(())
    }

    /// Zones in which nothing has been written.
    pub fn empty(&self) -> Vec<Zone> {
        let zone = |i: u32| {
            let (capacity, condition) = match i < self.conventional {
                true => (self.zone_size, Condition::Conventional),
                false => (self.capacity, Condition::Empty),
            };
            Zone { start: u64::from(i) * self.zone_size, capacity, written: 0, condition }
        };
        (0..self.zones).map(zone).collect()
    }
}

/// The condition of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// Not sequential: can be written anywhere.
    Conventional,
    /// Nothing is written.
    Empty,
    /// Partly written, and implicitly or explicitly open.
    Open,
    /// Partly written, not open.
    Closed,
    /// No more can be written.
    Full,
    /// Broken.
    ReadOnly,
    /// Gone.
    Offline,
}

/// A zone. Positions and sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// Its first byte on the device.
    pub start: u64,
    /// How much of it can be written.
    pub capacity: u64,
    /// Distance of the write pointer from the beginning, at most `capacity`; 0 for a conventional zone.
    pub written: u64,
    /// Whether it can be written.
    pub condition: Condition,
}

impl Zone {
    /// Bytes from the zone's beginning that hold data.
    pub fn data(&self) -> u64 {
        match self.condition {
            Condition::Conventional => self.capacity,
            _ => self.written,
        }
    }

    /// Whether both zones have equal write pointers and can be written alike. Open and closed zones are
    /// alike: zones close when a machine is reset.
    pub fn is_like(&self, other: &Zone) -> bool {
        let of = |z: &Zone| match z.condition {
            Condition::Open => Condition::Closed,
            c => c,
        };
        (self.start, self.capacity, self.written, of(self))
            == (other.start, other.capacity, other.written, of(other))
    }
}

/// A zoned device as files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The data.
    #[serde(skip)]
    pub path: PathBuf,
    /// The device's geometry.
    pub geometry: Geometry,
    /// Its zones, in order.
    pub zones: Vec<Zone>,
}

impl Image {
    /// Makes an image in which nothing is written.
    ///
    /// # Errors
    /// There can be no such device; the host's.
    pub fn create(path: &Path, geometry: Geometry) -> Result<Image> {
        geometry.check()?;
        File::create(path)
            .and_then(|f| f.set_len(geometry.size()))
            .with_context(|| path.display().to_string())?;
        Self::adopt(path, geometry, geometry.empty())
    }

    /// Makes an image from a file with a device's data, and from the device's report of its zones. Bytes of
    /// the file behind write pointers are removed.
    ///
    /// # Errors
    /// The zones are not those of such a device; the host's.
    pub fn adopt(path: &Path, geometry: Geometry, zones: Vec<Zone>) -> Result<Image> {
        let image = Image { path: path.to_path_buf(), geometry, zones };
        image.check().with_context(|| path.display().to_string())?;
        image.clear()?;
        image.save()?;
        Ok(image)
    }

    /// Reads an image's zones.
    ///
    /// # Errors
    /// They are unknown, or not those of such a device.
    pub fn open(path: &Path) -> Result<Image> {
        let of_zones = zones_of(path);
        let text = fs::read_to_string(&of_zones).with_context(|| {
            format!("{}: the zones are unknown, for a guest has them or lost them", of_zones.display())
        })?;
        let image: Image = serde_json::from_str(&text).with_context(|| of_zones.display().to_string())?;
        let image = Image { path: path.to_path_buf(), ..image };
        image.check().with_context(|| of_zones.display().to_string())?;
        Ok(image)
    }

    /// Copies data and zones and keeps holes.
    ///
    /// # Errors
    /// The host's.
    pub fn copy_to(&self, path: &Path) -> Result<Image> {
        sparse_copy(&self.path, path)?;
        let copy = Image { path: path.to_path_buf(), ..self.clone() };
        copy.save()?;
        Ok(copy)
    }

    /// Removes both files.
    pub fn remove(path: &Path) {
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(zones_of(path));
    }

    /// Removes the list of zones before a guest changes the zones.
    pub(super) fn lend(&self) -> Result<()> {
        self.clear()?;
        fs::remove_file(zones_of(&self.path)).context("lending an image")
    }

    /// Lists the zones as the guest's `blkzone report` does.
    pub(super) fn give_back(&mut self, report: &str) -> Result<()> {
        self.zones = parse(report)?;
        self.check().context("the guest's report")?;
        self.save()
    }

    fn save(&self) -> Result<()> {
        let (path, text) = (zones_of(&self.path), serde_json::to_string_pretty(self)?);
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    fn check(&self) -> Result<()> {
        self.geometry.check()?;
        let size = fs::metadata(&self.path)?.len();
        ensure!(
            size == self.geometry.size(),
            "{size} bytes of data for a device of {}",
            self.geometry.size()
        );
        let like = self.geometry.empty();
        ensure!(self.zones.len() == like.len(), "{} zones instead of {}", self.zones.len(), like.len());
        for (zone, like) in self.zones.iter().zip(&like) {
            let conventional = |z: &Zone| z.condition == Condition::Conventional;
            let same = zone.start == like.start
                && zone.capacity == like.capacity
                && conventional(zone) == conventional(like);
            ensure!(same, "{zone:?} where {like:?} is to be");
            let pointer = match zone.condition {
                Condition::Conventional | Condition::Empty => zone.written == 0,
                Condition::Full => zone.written == zone.capacity,
                Condition::Open | Condition::Closed => zone.written < zone.capacity,
                Condition::ReadOnly | Condition::Offline => true,
            };
            ensure!(pointer && zone.written.is_multiple_of(BLOCK), "{zone:?}: no such write pointer");
        }
        let part = |z: &&Zone| matches!(z.condition, Condition::Open | Condition::Closed) && z.written > 0;
        let (active, most) = (self.zones.iter().filter(part).count(), self.geometry.max_active);
        ensure!(most == 0 || active <= most as usize, "{active} zones are active, {most} can be");
        Ok(())
    }

    /// Removes data at and behind write pointers: there, a device returns zeros, but QEMU returns the content
    /// of the file.
    fn clear(&self) -> Result<()> {
        let file = File::options().write(true).open(&self.path)?;
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        for zone in &self.zones {
            let left = self.geometry.zone_size - zone.data();
            if left > 0 {
                rustix::fs::fallocate(&file, how, zone.start + zone.data(), left).context("making a hole")?;
            }
        }
        Ok(())
    }

    /// The data of a zone up to its write pointer.
    ///
    /// # Errors
    /// The host's.
    pub fn read(&self, zone: &Zone) -> Result<Vec<u8>> {
        let mut data = vec![0; usize::try_from(zone.data())?];
        File::open(&self.path)?.read_exact_at(&mut data, zone.start)?;
        Ok(data)
    }
}

/// The file that lists the zones of an image.
pub fn zones_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".zones");
    name.into()
}

/// Zones as `blkzone report` prints them, a line each:
/// `start: 0x000008000, len 0x008000, cap 0x006000, wptr 0x000008 reset:0 non-seq:0, zcond: 2(oi) [type: 2(SEQ…)]`,
/// in units of 512 bytes.
pub(super) fn parse(report: &str) -> Result<Vec<Zone>> {
    let lines = report.lines().filter(|l| !l.trim().is_empty());
    lines.map(|l| parse_line(l).with_context(|| format!("a zone: {l:?}"))).collect()
}

fn parse_line(line: &str) -> Result<Zone> {
    let words: Vec<&str> = line.split([' ', ',', ':', '[', ']']).filter(|w| !w.is_empty()).collect();
    let after = |name: &str| -> Result<&str> {
        let at = words.iter().position(|w| *w == name);
        at.and_then(|at| words.get(at + 1)).copied().with_context(|| format!("no {name}"))
    };
    let bytes = |name: &str| -> Result<u64> {
        let digits = after(name)?.trim_start_matches("0x");
        u64::from_str_radix(digits, 16)?.checked_mul(SECTOR).with_context(|| format!("{name} too large"))
    };
    let condition = match after("zcond")?.split('(').next().unwrap_or_default() {
        "0" => Condition::Conventional,
        "1" => Condition::Empty,
        "2" | "3" => Condition::Open,
        "4" => Condition::Closed,
        "13" => Condition::ReadOnly,
        "14" => Condition::Full,
        "15" => Condition::Offline,
        other => bail!("a condition {other:?}"),
    };
    let capacity = bytes("cap")?;
    let written = match condition {
        Condition::Conventional | Condition::Empty => 0,
        Condition::Full => capacity,
        _ => bytes("wptr")?,
    };
    Ok(Zone { start: bytes("start")?, capacity, written, condition })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::temp::TempDir;

    const REPORT: &str = "  start: 0x000000000, len 0x008000, cap 0x008000, wptr 0x000000 reset:0 non-seq:0, zcond: 0(nw) [type: 1(CONVENTIONAL)]
  start: 0x000008000, len 0x008000, cap 0x006000, wptr 0x000000 reset:0 non-seq:0, zcond: 1(em) [type: 2(SEQ_WRITE_REQUIRED)]
  start: 0x000010000, len 0x008000, cap 0x006000, wptr 0x000010 reset:0 non-seq:0, zcond: 2(oi) [type: 2(SEQ_WRITE_REQUIRED)]
  start: 0x000018000, len 0x008000, cap 0x006000, wptr 0x001008 reset:0 non-seq:0, zcond: 4(cl) [type: 2(SEQ_WRITE_REQUIRED)]
  start: 0x000020000, len 0x008000, cap 0x006000, wptr 0x008000 reset:0 non-seq:0, zcond:14(fu) [type: 2(SEQ_WRITE_REQUIRED)]
";
    const GEOMETRY: Geometry =
        Geometry { zones: 5, capacity: 12 << 20, conventional: 1, ..Geometry::DEFAULT };

    fn reported() -> Vec<Zone> {
        let mut zones = GEOMETRY.empty();
        zones[2] = Zone { written: 8192, condition: Condition::Open, ..zones[2] };
        zones[3] = Zone { written: 0x1008 * 512, condition: Condition::Closed, ..zones[3] };
        zones[4] = Zone { written: 12 << 20, condition: Condition::Full, ..zones[4] };
        zones
    }

    #[test]
    fn reports_are_read() {
        assert_eq!(parse(REPORT).unwrap(), reported());
        let e = parse("  start: 0x0, len 0x8").unwrap_err();
        assert!(format!("{e:#}").contains("no zcond"), "{e:#}");
        let e = parse(&REPORT.replace("14(fu)", "9(xx)")).unwrap_err();
        assert!(format!("{e:#}").contains("a condition \"9\""), "{e:#}");
    }

    #[test]
    fn zones_stand_beside_the_data() {
        let dir = TempDir::new("zones").unwrap();
        let path = dir.path().join("a.img");
        fs::write(&path, vec![7; GEOMETRY.size() as usize]).unwrap();
        let image = Image::adopt(&path, GEOMETRY, reported()).unwrap();
        assert_eq!(Image::open(&path).unwrap(), image);
        let data = fs::read(&path).unwrap();
        for zone in &image.zones {
            let (start, written) = (zone.start as usize, zone.data() as usize);
            assert!(data[start..start + written].iter().all(|b| *b == 7));
            assert!(data[start + written..start + (16 << 20)].iter().all(|b| *b == 0), "{zone:?}");
        }
        image.lend().unwrap();
        assert!(Image::open(&path).unwrap_err().to_string().contains("the zones are unknown"));
    }

    #[test]
    fn what_no_device_is_is_refused() {
        let dir = TempDir::new("zones").unwrap();
        let path = dir.path().join("a.img");
        let refused = |geometry: Geometry| format!("{:#}", Image::create(&path, geometry).unwrap_err());
        assert!(refused(Geometry { zone_size: 12 << 20, ..GEOMETRY }).contains("size for a zone"));
        assert!(refused(Geometry { capacity: 17 << 20, ..GEOMETRY }).contains("capacity for a zone"));
        assert!(refused(Geometry { max_open: 9, ..GEOMETRY }).contains("can be active"));
        Image::create(&path, GEOMETRY).unwrap();
        let refused = |change: fn(&mut Vec<Zone>)| {
            let mut zones = reported();
            change(&mut zones);
            format!("{:#}", Image::adopt(&path, GEOMETRY, zones).unwrap_err())
        };
        assert!(refused(|z| z.truncate(4)).contains("4 zones instead of 5"));
        assert!(refused(|z| z[2].written = 100).contains("no such write pointer"));
        assert!(refused(|z| z[1].condition = Condition::Full).contains("no such write pointer"));
        assert!(refused(|z| z[0].condition = Condition::Empty).contains("is to be"));
    }
}
