//! `tidegate mkdir`.

use crate::global::Global;
use crate::place::Place;
use crate::report;
use std::ffi::OsString;
use tidegate::Result;

/// Arguments of `tidegate mkdir`.
#[derive(clap::Args)]
pub struct Args {
    /// Make missing parents; existing directories are no error
    #[arg(short, long)]
    parents: bool,
    /// Permission bits, octal
    #[arg(short, long, value_parser = mode, default_value = "755")]
    mode: u32,
    /// The directories to make
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

fn mode(text: &str) -> std::result::Result<u32, String> {
    let bits = u32::from_str_radix(text, 8).ok().filter(|m| *m <= 0o7777);
    bits.ok_or_else(|| format!("{text}: not permission bits such as 755"))
}

/// Makes directories.
///
/// # Errors
/// The volume cannot be opened, or a directory cannot be made.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let places: Vec<Place> = args.places.iter().map(|p| Place::parse(p)).collect();
    let volume = global.write_all(&places)?;
    for p in &places {
        global.or_fail(volume.mkdir(&p.path, args.mode, args.parents));
    }
    report::after_change(global, Ok(()), volume)
}
