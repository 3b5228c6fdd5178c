//! `tidegate cat`.

use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use std::ffi::OsString;
use tidegate::Result;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Files to write to standard output
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

/// Writes files to standard output.
///
/// # Errors
/// What is in the way.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let mut out = Out::new();
    let mut buf = vec![0; CHUNK];
    for place in args.places.iter().map(|p| Place::parse(p)) {
        let volume = global.read(&place)?;
        let file = volume.open_file(&place.path)?;
        let mut at = 0;
        loop {
            let n = file.read_at(at, &mut buf).map_err(|e| volume.complain(&place.path, e))?;
            if n == 0 {
                break;
            }
            out.bytes(&buf[..n])?;
            at += n as u64;
        }
        drop(file);
        volume.unmount()?;
    }
    out.finish()
}
