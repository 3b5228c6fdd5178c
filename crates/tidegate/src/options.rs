//! How to open a volume.

use crate::detect::Format;
use std::path::PathBuf;
use tidegate_block::{Backend, Elevator};
use tidegate_ext4::Ext4Options;
use tidegate_f2fs::F2fsOptions;
use tidegate_rt::Timespec;
use tidegate_vfs::switch::SwitchInfo;
use tidegate_vfs::{Error, ErrorKind, MemoryLimits, Result, SyncWait, switches};

switches! {
    /// Switches of volumes of every format. The page cache and the request queue keep them.
    pub struct VolumeSwitches {}
    switches {
        /// The thread that waits for the written pages in a sync.
        sync_wait: SyncWait = SyncWait::default(),
        /// While a thread waits for I/O, little write-back is in flight: fsyncs are faster, and streams slower.
        wbt: bool = true,
    }
}

/// How to open a volume.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Change nothing, and let other programs read the image meanwhile.
    pub read_only: bool,
    /// The I/O backend.
    pub backend: Backend,
    /// Write around the host's page cache.
    pub direct: bool,
    /// The image is a block device that the caller has claimed.
    pub claimed: bool,
    /// The order of I/O; shares are set on [`Volume::queue`](crate::Volume::queue).
    pub elevator: Elevator,
    /// The memory that the volume may use.
    pub memory: MemoryLimits,
    /// Every change gets this time instead of that of the clock, and nothing else depends on chance.
    pub fixed_time: Option<Timespec>,
    /// Reads do not change access times.
    pub noatime: bool,
    /// The offset of the volume in the image, in bytes, as for a partition of a disk.
    pub offset: u64,
    /// F2FS: paths of the devices after the first, in order. If none is given, those that the superblock lists.
    pub devices: Vec<PathBuf>,
    /// Switches of volumes of every format.
    pub switches: VolumeSwitches,
    /// Options of the formats. `read_only` and `fixed_time` above override those in here.
    pub format: FormatOptions,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            backend: Backend::Auto,
            direct: true,
            claimed: false,
            elevator: Elevator::None,
            memory: MemoryLimits::default(),
            fixed_time: None,
            noatime: true,
            offset: 0,
            devices: Vec::new(),
            switches: VolumeSwitches::default(),
            format: FormatOptions::default(),
        }
    }
}

/// Options of all formats, for the time before the format of an image is known.
#[derive(Clone, Debug, Default)]
pub struct FormatOptions {
    pub(crate) f2fs: F2fsOptions,
    pub(crate) ext4: Ext4Options,
    /// Options that only one format has, with that format.
    of_one: Vec<(Format, String)>,
}

impl FormatOptions {
    /// Applies an option of any format, such as `fsync_mode=strict`. False if no format has it.
    ///
    /// # Errors
    /// `InvalidArgument` when its value is wrong.
    pub fn set(&mut self, option: &str) -> Result<bool> {
        // Each format that has such an option applies it.
        let (of_f2fs, of_ext4) = (self.f2fs.set(option)?, self.ext4.set(option)?);
        if of_f2fs != of_ext4 {
            let format = if of_f2fs { Format::F2fs } else { Format::Ext4 };
            self.of_one.push((format, option.to_owned()));
        }
        Ok(of_f2fs || of_ext4)
    }

    /// Those of the set options that a volume of this format does not have.
    pub fn without_effect(&self, on: Format) -> Vec<String> {
        let others = self.of_one.iter().filter(|(format, _)| *format != on);
        others.map(|(_, option)| option.clone()).collect()
    }

    /// Has the engine make a mistake on purpose.
    #[doc(hidden)]
    pub fn plant(&mut self, bug: crate::planted::Planted) {
        self.f2fs.planted = bug;
        self.ext4.planted = bug;
    }
}

impl OpenOptions {
    /// Applies options spelled as for mount(8): `sync_wait=`, `wbt`, `offset=`, `device=` and those of the
    /// formats.
    ///
    /// # Errors
    /// `InvalidArgument` names the first option that is unknown or has a wrong value. Options before it are
    /// set.
    pub fn parse(&mut self, list: &str) -> Result<()> {
        for option in list.split(',').filter(|o| !o.is_empty()) {
            if !self.set(option)? {
                return Err(Error::new(ErrorKind::InvalidArgument, format!("unknown option \"{option}\"")));
            }
        }
        Ok(())
    }

    /// Applies one option. False if there is none of this name.
    ///
    /// # Errors
    /// `InvalidArgument` when its value is wrong.
    pub fn set(&mut self, option: &str) -> Result<bool> {
        if self.switches.set_switch(option)? {
            return Ok(true);
        }
        if let Some(bytes) = option.strip_prefix("offset=") {
            self.offset = parse_offset(option, bytes)?;
            return Ok(true);
        }
        if let Some(path) = option.strip_prefix("device=") {
            if path.is_empty() {
                let what = format!("option \"{option}\": no path of a device");
                return Err(Error::new(ErrorKind::InvalidArgument, what));
            }
            self.devices.push(path.into());
            return Ok(true);
        }
        self.format.set(option)
    }

    /// The options that are no switches, in the form of the help, with their effects.
    pub fn words() -> Vec<(&'static str, &'static str)> {
        let mut words = vec![
            ("offset=1M", "where in the image the volume begins: a partition of a disk"),
            (
                "device=/dev/sdc",
                "another device or file of the volume, in order; block devices are found as listed",
            ),
        ];
        // A word that several formats have is shown once.
        for word in F2fsOptions::words().chain(Ext4Options::words()) {
            if !words.contains(&word) {
                words.push(word);
            }
        }
        words
    }

    /// The descriptions of the switches that a volume can have.
    pub fn switches() -> Vec<SwitchInfo> {
        VolumeSwitches::switches()
            .into_iter()
            .chain(F2fsOptions::switches())
            .chain(Ext4Options::switches())
            .collect()
    }
}

/// A number of bytes in the form of mount options: 1048576 or 1024K or 1M.
pub fn bytes_of(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn parse_offset(option: &str, text: &str) -> Result<u64> {
    bytes_of(text).filter(|n| n.is_multiple_of(512)).ok_or_else(|| {
        let what = format!("option \"{option}\": not a multiple of 512 such as 1048576 or 1M");
        Error::new(ErrorKind::InvalidArgument, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/support.md has each switch with its positions.
    #[test]
    fn each_switch_is_in_the_documentation() {
        let text = include_str!("../../../docs/support.md").replace("\\|", "|");
        for switch in OpenOptions::switches() {
            let spelled = match switch.is_flag || !switch.values.is_empty() {
                true => format!("`{switch}`"),
                false => format!("`{}=", switch.name),
            };
            assert!(text.contains(&spelled), "{spelled}");
        }
    }

    #[test]
    fn each_switch_is_set_to_each_of_its_values() {
        for switch in OpenOptions::switches() {
            for value in &switch.values {
                let mut o = OpenOptions::default();
                assert!(o.set(&switch.option(value)).unwrap(), "{}", switch.option(value));
            }
            assert!(OpenOptions::default().set(&switch.option(&switch.default)).unwrap(), "{switch}");
        }
        let e = OpenOptions::default().parse("discard,usrquota=x").unwrap_err().to_string();
        assert!(e.starts_with("unknown option \"usrquota=x\""), "{e}");
    }
}
