//! What a workload can be run on by name: directories, images, device models.

use super::Opening;
use super::place::preset;
use super::rounds::world;
use super::setting::on_volume;
use crate::error::{Error, Result};
use crate::target::{Directory, Rig, Target, VolumeTarget};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use tidegate::{OpenOptions, Volume};
use tidegate_block::Preset;
use tidegate_rt::{Nanos, sim};

/// Something to run a workload on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// A directory of any file system that is mounted: `dir:PATH`.
    Dir(PathBuf),
    /// A volume in an image, opened in this process: `image:PATH`.
    Image(PathBuf),
    /// A new volume on a device model, in real time: `preset:NAME`.
    Preset(Preset),
    /// The same in simulated time: `sim:NAME`.
    Simulated(Preset),
}

/// Bytes of a volume on a device model.
const MODEL: u64 = 2 << 30;
/// CPUs of a simulated world.
pub(super) const CPUS: usize = 4;

impl FromStr for Contestant {
    type Err = String;

    fn from_str(s: &str) -> std::result::Result<Self, String> {
        match s.split_once(':') {
            Some(("dir" | "image", "")) => Err(format!("{s} needs a path")),
            Some(("dir", path)) => Ok(Contestant::Dir(path.into())),
            Some(("image", path)) => Ok(Contestant::Image(path.into())),
            Some(("preset", name)) => preset(name).map(Contestant::Preset),
            Some(("sim", name)) => preset(name).map(Contestant::Simulated),
            _ => Err("a target is dir:PATH, image:PATH, preset:NAME or sim:NAME".into()),
        }
    }
}

impl fmt::Display for Contestant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Contestant::Dir(p) => write!(f, "dir:{}", p.display()),
            Contestant::Image(p) => write!(f, "image:{}", p.display()),
            Contestant::Preset(p) => write!(f, "preset:{p}"),
            Contestant::Simulated(p) => write!(f, "sim:{p}"),
        }
    }
}

impl Contestant {
    /// Whether time is virtual on it.
    pub fn is_simulated(&self) -> bool {
        matches!(self, Contestant::Simulated(_))
    }

    /// Whether it is somebody's, and stays.
    pub(super) fn stays(&self) -> bool {
        matches!(self, Contestant::Dir(_) | Contestant::Image(_))
    }

    /// Opens it, does `f` on it and closes it; how long that took, if time was virtual.
    ///
    /// # Errors
    /// Those of opening and closing it, and of `f`.
    pub fn with<R: Send + 'static>(
        &self,
        opening: &Opening,
        seed: u64,
        f: impl FnOnce(&Arc<dyn Target>) -> Result<R> + Send + 'static,
    ) -> Result<(R, Option<Nanos>)> {
        let real = |r| Ok((r, None));
        match self {
            Contestant::Dir(path) => f(&(Arc::new(Directory::open(path)?) as Arc<dyn Target>)).and_then(real),
            Contestant::Image(path) => {
                let mut open = OpenOptions { backend: opening.backend, ..OpenOptions::default() };
                open.memory = opening.memory.unwrap_or(open.memory);
                open.parse(&opening.options).map_err(|e| Error::spec(format!("{}: {e}", opening.options)))?;
                let volume = Volume::open(path, &open)?;
                volume.check_writable()?;
                on_volume(VolumeTarget::new(volume), f).and_then(real)
            }
            Contestant::Preset(preset) => on_volume(rig(*preset, opening).build()?, f).and_then(real),
            Contestant::Simulated(preset) => {
                let rig = rig(*preset, opening);
                let done = sim::run_with(&world(seed, CPUS), move || on_volume(rig.build()?, f));
                let done = done.map_err(|deadlock| Error::spec(deadlock.to_string()))?;
                Ok((done.value?, Some(done.elapsed)))
            }
        }
    }
}

fn rig(preset: Preset, opening: &Opening) -> Rig {
    let rig = Rig::new(preset, MODEL);
    let memory = opening.memory.unwrap_or(rig.memory);
    Rig { options: opening.options.clone(), memory, ..rig }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_written_alike() {
        for text in ["dir:/mnt/a:b", "image:vol.img", "preset:hdd", "sim:raid-bbwc"] {
            assert_eq!(text.parse::<Contestant>().unwrap().to_string(), text);
        }
        for (text, word) in [("vol.img", "dir:PATH"), ("dir:", "path"), ("sim:zns", "not supported yet")] {
            let e = text.parse::<Contestant>().unwrap_err();
            assert!(e.contains(word), "{text}: {e}");
        }
    }
}
