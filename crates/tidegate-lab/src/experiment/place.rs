//! The place of an experiment, by name.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use tidegate::observe::Wanted;
use tidegate_block::Preset;

/// The place of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Where {
    /// A device model, in simulated time.
    Preset(#[serde(with = "by_name")] Preset),
    /// A device model with its zones, in simulated time: F2FS with `blkzoned`, on a device that refuses a
    /// write that is not at a write pointer.
    Zoned(#[serde(with = "by_name")] Preset),
    /// A device model, in real time: with this machine's CPUs, threads and noise.
    Real(#[serde(with = "by_name")] Preset),
    /// An image file that is made for it, in real time.
    File(PathBuf),
}

/// Device models as text, between processes of this program.
mod by_name {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use tidegate_block::Preset;

    pub fn serialize<S: Serializer>(preset: &Preset, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(preset)
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Preset, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

impl Where {
    pub(super) fn is_simulated(&self) -> bool {
        matches!(self, Where::Preset(_) | Where::Zoned(_))
    }

    /// The recordings of one more run of each position. In simulated time that is the median run again, which
    /// gives an equal run. In real time it is another run, which does not count, since recording takes time
    /// there.
    pub(super) fn looked_at(&self, wanted: Wanted) -> Option<Wanted> {
        match self {
            Where::Preset(_) | Where::Zoned(_) | Where::Real(_) => Some(Wanted { calls: true, ..wanted }),
            Where::File(_) => wanted.anything().then_some(wanted),
        }
    }
}

impl FromStr for Where {
    type Err = String;

    fn from_str(s: &str) -> std::result::Result<Self, String> {
        let preset = |s: &str| preset(s).map_err(|e| format!("{e}, zoned:zns, real:PRESET or file:PATH"));
        match s.split_once(':') {
            Some(("file", "")) => Err("file: needs the path of a file to make".into()),
            Some(("file", path)) => Ok(Where::File(path.into())),
            Some(("real", name)) => preset(name).map(Where::Real),
            Some(("zoned", name)) => match name.parse::<Preset>() {
                Ok(p) if p.spec().zones.is_some() => Ok(Where::Zoned(p)),
                _ => Err(format!("\"{name}\": no device model with zones; there is zns")),
            },
            _ => preset(s).map(Where::Preset),
        }
    }
}

/// The device model of this name, if a volume works on it.
pub(super) fn preset(name: &str) -> std::result::Result<Preset, String> {
    match name.parse() {
        Ok(p @ Preset::Zns) => {
            Err(format!("{p}: has zones, on which experiments alone run (zoned:{p}); there are {PRESETS}"))
        }
        Ok(p) => Ok(p),
        Err(_) => Err(format!("no device model is called \"{name}\"; there are {PRESETS}")),
    }
}

const PRESETS: &str = "ramdisk, hdd, raid-bbwc, ufs, nvme";

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Where::Preset(p) => write!(f, "{p}"),
            Where::Zoned(p) => write!(f, "{p}, zoned"),
            Where::Real(p) => write!(f, "{p}, real time"),
            Where::File(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_those_that_a_volume_works_on() {
        assert_eq!("real:hdd".parse(), Ok(Where::Real(Preset::Hdd)));
        assert_eq!("zoned:zns".parse(), Ok(Where::Zoned(Preset::Zns)));
        assert_eq!("file:/x:y".parse(), Ok(Where::File("/x:y".into())));
        for (text, word) in [
            ("zns", "zoned:zns"),
            ("real:zns", "zoned:zns"),
            ("zoned:nvme", "no device model with zones"),
            ("nvme2", "\"nvme2\"; there are ramdisk"),
            ("file:", "path"),
            ("", "file:PATH"),
        ] {
            let e = text.parse::<Where>().unwrap_err();
            assert!(e.contains(word), "{text}: {e}");
        }
    }
}
