//! The targets of a workload by name: directories, images, device models, kernels' own file systems.

use super::Opening;
use super::place::preset;
use super::rounds::world;
use super::setting::on_volume;
use crate::error::{Error, Result};
use crate::kernel::{Format, Guest, Named, Ran, What, joined, with_mounted};
use crate::target::{Directory, Rig, Target, VolumeTarget};
use crate::workload::{Spec, run};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use tidegate::detect::Format as VolumeFormat;
use tidegate::{Elevator, OpenOptions, Volume};
use tidegate_block::Preset;
use tidegate_rt::{Nanos, sim};

/// A target to run a workload on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contestant {
    /// A directory of any mounted file system: `dir:PATH`.
    Dir(PathBuf),
    /// A volume in an image, opened in this process: `image:PATH`.
    Image(PathBuf),
    /// A new volume on a device model, in real time: `preset:NAME`.
    Preset(Preset),
    /// A new volume on a device model, in simulated time: `sim:NAME`.
    Simulated(Preset),
    /// Linux's own file system in a guest: `kernel:f2fs`, `kernel:ext4` or `kernel:IMAGE`, with `,OPTIONS`
    /// for mount options.
    Kernel(Named),
    /// This host's file system, on a new volume mounted by a loop device: `host:ext4` or `host:f2fs`, with
    /// options as above.
    Host(Format, String),
}

/// The forms of targets' names.
const TARGETS: &str =
    "dir:PATH, image:PATH, preset:NAME, sim:NAME, kernel:f2fs, kernel:ext4, kernel:IMAGE or host:ext4";

/// The device of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct Hardware {
    /// Bytes of the device.
    pub size: u64,
    /// CPUs of a simulated world.
    pub cpus: usize,
    /// The order of requests on a device model.
    pub elevator: Elevator,
    /// The format of a volume on a device model.
    pub format: VolumeFormat,
}

impl Default for Hardware {
    fn default() -> Self {
        Hardware { size: 2 << 30, cpus: 4, elevator: Elevator::None, format: VolumeFormat::default() }
    }
}

impl FromStr for Contestant {
    type Err = String;

    fn from_str(s: &str) -> std::result::Result<Self, String> {
        match s.split_once(':') {
            Some(("dir" | "image", "")) => Err(format!("{s} needs a path")),
            Some(("dir", path)) => Ok(Contestant::Dir(path.into())),
            Some(("image", path)) => Ok(Contestant::Image(path.into())),
            Some(("preset", name)) => preset(name).map(Contestant::Preset),
            Some(("sim", name)) => preset(name).map(Contestant::Simulated),
            Some((kind @ ("kernel" | "host"), name)) => {
                let named: Named = name.parse().map_err(|e| format!("{s}: {e}"))?;
                match (kind, named.what) {
                    ("kernel", what) => Ok(Contestant::Kernel(Named { what, ..named })),
                    (_, What::New(format)) => Ok(Contestant::Host(format, named.options)),
                    (_, What::Image(_)) => {
                        Err(format!("{s}: there are host:ext4 and host:f2fs; kernel:IMAGE takes an image"))
                    }
                }
            }
            _ => Err(format!("\"{s}\": a target is {TARGETS}")),
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
            Contestant::Kernel(n) => write!(f, "kernel:{n}"),
            Contestant::Host(format, options) => {
                let (what, options) = (What::New(*format), options.clone());
                write!(f, "host:{}", Named { what, options })
            }
        }
    }
}

impl Contestant {
    /// Whether time is virtual on it.
    pub fn is_simulated(&self) -> bool {
        matches!(self, Contestant::Simulated(_))
    }

    /// Whether it belongs to the user, and stays.
    pub(super) fn stays(&self) -> bool {
        matches!(self, Contestant::Dir(_) | Contestant::Image(_))
    }

    /// Whether it is a new volume on a device model.
    pub fn is_model(&self) -> bool {
        matches!(self, Contestant::Preset(_) | Contestant::Simulated(_))
    }

    /// Whether this process opens the volume.
    pub(super) fn is_ours(&self) -> bool {
        self.is_model() || matches!(self, Contestant::Image(_))
    }

    /// Whether it is a new volume for the run.
    pub(super) fn is_new(&self) -> bool {
        let image = matches!(self, Contestant::Kernel(Named { what: What::Image(_), .. }));
        !self.stays() && !image
    }

    /// Runs a workload on it, with this seed unless the workload has its own; also returns the duration, if
    /// time was virtual.
    ///
    /// # Errors
    /// As of [`Contestant::with`].
    pub(super) fn run(&self, opening: &Opening, seed: u64, spec: &Spec) -> Result<(Ran, Option<Nanos>)> {
        let spec = spec.clone().seeded(seed);
        if let Contestant::Kernel(volume) = self {
            let guest =
                Guest { volume, options: &opening.mounted, size: opening.hardware.size, shares: None };
            return Ok((guest.run(&spec)?, None));
        }
        let (result, virtual_time) = self.with(opening, seed, move |t| run(&spec, t))?;
        Ok((Ran { result, was_there: false }, virtual_time))
    }

    /// Opens it, calls `f` on it and closes it; also returns the duration, if time was virtual.
    ///
    /// # Errors
    /// Those of opening and closing it, and of `f`. A guest cannot run code of this process.
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
            Contestant::Kernel(_) => Err(Error::spec(
                "workloads of `lab compare` and `lab run` go there; for anything else mount it, and give dir:PATH",
            )),
            Contestant::Host(format, options) => {
                let options = joined(options, &opening.mounted);
                let work = |dir: &Path| f(&(Arc::new(Directory::open(dir)?) as Arc<dyn Target>));
                with_mounted(*format, &options, opening.hardware.size, work).and_then(real)
            }
            Contestant::Preset(preset) => on_volume(rig(*preset, opening).build()?, f).and_then(real),
            Contestant::Simulated(preset) => {
                let rig = rig(*preset, opening);
                let done =
                    sim::run_with(&world(seed, opening.hardware.cpus), move || on_volume(rig.build()?, f));
                let done = done.map_err(|deadlock| Error::spec(deadlock.to_string()))?;
                Ok((done.value?, Some(done.elapsed)))
            }
        }
    }
}

fn rig(preset: Preset, opening: &Opening) -> Rig {
    let rig = Rig::new(preset, opening.hardware.size);
    let memory = opening.memory.unwrap_or(rig.memory);
    let Hardware { elevator, format, .. } = opening.hardware;
    Rig { options: opening.options.clone(), elevator, format, memory, ..rig }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_and_written_alike() {
        for text in [
            "dir:/mnt/a:b",
            "image:vol.img",
            "preset:hdd",
            "sim:raid-bbwc",
            "kernel:f2fs,nocheckpoint_merge",
            "kernel:/a/v.img",
            "host:ext4,data=journal",
        ] {
            assert_eq!(text.parse::<Contestant>().unwrap().to_string(), text);
        }
        for (text, word) in [
            ("vol.img", "dir:PATH"),
            ("dir:", "path"),
            ("sim:zns", "zoned:zns"),
            ("kernel:", "path of an image"),
            ("host:v.img", "host:ext4"),
            ("kernel", "kernel:f2fs"),
        ] {
            let e = text.parse::<Contestant>().unwrap_err();
            assert!(e.contains(word), "{text}: {e}");
        }
        for text in ["kernel:ext4", "host:ext4"] {
            let target: Contestant = text.parse().unwrap();
            assert!(!target.is_simulated() && !target.stays(), "{text}: a volume for each run, in real time");
        }
    }

    /// The seed of a round reaches the workload, too.
    #[test]
    fn each_seed_is_a_workload_of_its_own() {
        let _alone = crate::experiment::ALONE.lock();
        let written = |seed| {
            let dir = tempfile::tempdir().unwrap();
            let target: Contestant = format!("dir:{}", dir.path().display()).parse().unwrap();
            let spec = r#"{"workload":"pgioperf","readers":0,"file_size":1048576,"log_size":1048576,"duration_ms":100}"#;
            let spec: Spec = serde_json::from_str(spec).unwrap();
            target.run(&Opening::default(), seed, &spec).unwrap();
            std::fs::read(dir.path().join("pgioperf/log")).unwrap()[..4096].to_vec()
        };
        assert!(written(1) == written(1) && written(1) != written(2));
    }

    #[test]
    fn a_closure_of_this_process_does_not_go_into_a_guest() {
        let target: Contestant = "kernel:f2fs".parse().unwrap();
        let e = target.with(&Opening::default(), 1, |_| Ok(())).unwrap_err().to_string();
        assert!(e.contains("dir:PATH"), "{e}");
    }
}
