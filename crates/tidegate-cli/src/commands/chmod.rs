//! `tidegate chmod`.

use crate::global::Global;
use crate::mode::{ModeChange, umask};
use crate::place::Place;
use crate::report;
use std::ffi::OsString;
use tidegate::Result;
use tidegate::vfs::{FileType, SetAttr};

/// Arguments of `tidegate chmod`.
#[derive(clap::Args)]
pub struct Args {
    /// Directories, with all that is in them
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Permission bits, octal or as changes, such as 755, u+x or g=rX,o=
    #[arg(value_parser = ModeChange::parse, allow_hyphen_values = true)]
    mode: ModeChange,
    /// The files and directories to change
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

/// Changes permission bits. Symbolic links below a directory are left as they are.
///
/// # Errors
/// The volume cannot be opened, or a file cannot be changed.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let places: Vec<Place> = args.places.iter().map(|p| Place::parse(p)).collect();
    let volume = global.write_all(&places)?;
    let umask = umask();
    for p in &places {
        volume.set_each(
            &p.path,
            (true, args.recursive),
            &|inode| {
                // A link has no permission bits that count.
                let mode = (inode.file_type != FileType::Symlink)
                    .then(|| args.mode.of(inode.attr().mode, inode.is_dir(), umask));
                mode.map(|mode| SetAttr { mode: Some(mode), ..SetAttr::default() })
            },
            &mut |e| global.fail(&e),
        );
    }
    report::after_change(global, Ok(()), volume)
}
