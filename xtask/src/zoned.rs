//! `cargo xtask zoned`: a shell script under a real kernel with zoned devices.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use tidegate_testing::zoned::{Geometry, Image, Machine, image};

/// The guest's devices, and its script.
#[derive(Args)]
pub struct ZonedArgs {
    /// A conventional disk, $DISK0 and so on.
    #[arg(long)]
    disk: Vec<PathBuf>,
    /// A zoned disk, $ZONED0 and so on; made when there is none.
    #[arg(long)]
    zoned: Vec<PathBuf>,
    /// Of a zoned disk that is made: how many zones.
    #[arg(long, default_value_t = Geometry::DEFAULT.zones)]
    zones: u32,
    /// Of a zoned disk that is made: MiB from zone to zone.
    #[arg(long, default_value_t = Geometry::DEFAULT.zone_size >> 20)]
    size: u64,
    /// Of a zoned disk that is made: MiB that can be written in a zone, all unless told.
    #[arg(long)]
    capacity: Option<u64>,
    /// Of a zoned disk that is made: how many zones are conventional.
    #[arg(long, default_value_t = 0)]
    conventional: u32,
    /// Of a zoned disk that is made: how many zones can be partly written.
    #[arg(long, default_value_t = Geometry::DEFAULT.max_active)]
    active: u32,
    /// A directory of the host's that the guest may write to.
    #[arg(long)]
    share: Vec<PathBuf>,
    /// The shell script; of several, each but the last has to call power-cut.
    #[arg(long, required = true)]
    script: Vec<PathBuf>,
    /// Seconds until the guest is killed.
    #[arg(long, default_value_t = 240)]
    timeout: u64,
}

/// Runs the script, prints its output, and returns its exit status.
///
/// # Errors
/// An oracle is missing; a file is not a valid image; the guest dies or runs out of time.
pub fn run(args: &ZonedArgs) -> Result<ExitCode> {
    let geometry = Geometry {
        zones: args.zones,
        zone_size: args.size << 20,
        capacity: args.capacity.unwrap_or(args.size) << 20,
        conventional: args.conventional,
        max_open: args.active,
        max_active: args.active,
    };
    let mut machine = Machine::new().timeout(Duration::from_secs(args.timeout));
    for image in args.zoned.iter().filter(|i| !i.exists()) {
        image::Image::create(image, geometry)?;
    }
    machine = args.disk.iter().fold(machine, Machine::disk);
    machine = args.zoned.iter().fold(machine, Machine::zoned);
    machine = args.share.iter().fold(machine, Machine::share);
    let read = |p: &PathBuf| std::fs::read_to_string(p).with_context(|| p.display().to_string());
    let scripts = args.script.iter().map(read).collect::<Result<Vec<_>>>()?;
    let mut guest = machine.spawn(&scripts.iter().map(String::as_str).collect::<Vec<_>>())?;
    while let Some(line) = guest.next_line()? {
        writeln!(std::io::stdout(), "{line}")?;
    }
    let status = guest.wait()?.status;
    for image in &args.zoned {
        let written: Vec<_> = Image::open(image)?.zones.into_iter().filter(|z| z.data() > 0).collect();
        eprintln!("{}: {} zones with data", image.display(), written.len());
    }
    Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)))
}
