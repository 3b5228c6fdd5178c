//! `tidegate tar`.

use crate::bar::Bar;
use crate::global::Global;
use crate::out;
use crate::place::Place;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::Arc;
use tidegate::{Error, Progress, Result, export};

/// Arguments of `tidegate tar`.
#[derive(clap::Args)]
pub struct Args {
    /// The tree
    #[arg(value_name = "IMAGE:/PATH")]
    place: OsString,
}

/// Writes a tree as a tar. A file that cannot be read is reported and left out.
///
/// # Errors
/// The volume cannot be opened, or the output cannot be written.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    global.refuse_json("a tar is not JSON; `ls -R --json` lists a tree")?;
    if std::io::stdout().is_terminal() {
        return Err(Error::argument(
            "standard output",
            "a tar is not for a terminal; send it to a file or a pipe",
        ));
    }
    let place = Place::parse(&args.place);
    let volume = global.read(&place)?;
    let inode = volume.resolve(&place.path, true)?;
    let progress = Arc::new(Progress::default());
    let bar = Bar::new(&progress, global.quiet);
    let name = if inode.is_dir() { None } else { place.name().map(<[u8]>::to_vec) };
    let from = export::From { inode, path: place.path };
    // The file descriptor below `stdout()`, since a tar does not need the line buffer.
    let to = rustix::io::dup(std::io::stdout()).map_err(|e| out::error(e.into()))?;
    let to = Box::new(std::fs::File::from(to));
    let exported = export::to_tar(&volume, &from, to, "standard output", name, &progress, &global.failed());
    drop((bar, from));
    out::notes(&exported?.notes);
    volume.unmount()?;
    Ok(())
}
