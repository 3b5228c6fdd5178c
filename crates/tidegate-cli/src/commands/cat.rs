//! `tidegate cat`.

use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use std::ffi::OsString;
use tidegate::{Result, Volume};

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// Arguments of `tidegate cat`.
#[derive(clap::Args)]
pub struct Args {
    /// Files to write to standard output
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

/// Writes files to standard output.
///
/// # Errors
/// The volume cannot be opened, or a path cannot be found.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    global.refuse_json("cat writes files as they are; ls and stat --json describe them")?;
    let mut out = Out::new();
    for place in args.places.iter().map(|p| Place::parse(p)) {
        copy(&place, global, &mut out)?;
    }
    out.finish()
}

/// Writes the file at a place to `out`. A failure to read it is reported and is no error.
///
/// # Errors
/// Those of writing.
pub fn copy(place: &Place, global: &Global, out: &mut Out) -> Result<()> {
    let Some(volume) = global.or_fail(global.read(place)) else { return Ok(()) };
    write(&volume, place, global, out)?;
    global.or_fail(volume.unmount());
    Ok(())
}

/// Writes one file. A file that cannot be read is reported, and the command goes on.
fn write(volume: &Volume, place: &Place, global: &Global, out: &mut Out) -> Result<()> {
    let Some(file) = global.or_fail(volume.open_file(&place.path)) else { return Ok(()) };
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    loop {
        let read = file.read_at(at, &mut buf).map_err(|e| volume.error_at(&place.path, e));
        match global.or_fail(read) {
            None | Some(0) => return Ok(()),
            Some(n) => {
                out.bytes(&buf[..n])?;
                at += n as u64;
            }
        }
    }
}
