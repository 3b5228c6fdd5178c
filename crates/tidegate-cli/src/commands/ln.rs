//! `tidegate ln`.

use crate::global::Global;
use crate::place::{Place, Where};
use crate::report;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use tidegate::Result;
use tidegate::paths::join;

/// Arguments of `tidegate ln`.
#[derive(clap::Args)]
pub struct Args {
    /// Make a symbolic link: TARGET is its text
    #[arg(short, long)]
    symbolic: bool,
    /// Replace an existing file or link
    #[arg(short, long)]
    force: bool,
    /// The target of the link: IMAGE:/path, or a path in the volume
    target: OsString,
    /// The link, or a directory to put it in
    #[arg(value_name = "IMAGE:/PATH")]
    link: OsString,
}

/// Makes the link.
///
/// # Errors
/// The volume cannot be opened, or the link cannot be made.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let link = Place::parse(&args.link);
    let target = match Where::parse(&args.target) {
        Where::Volume(p) if !args.symbolic => p,
        _ => Place { image: link.image.clone(), path: args.target.as_bytes().to_vec() },
    };
    let volume = global.write_all(&[link.clone(), target.clone()])?;
    let mut path = link.path;
    // A link that leads nowhere is no directory, and may be what is to be replaced.
    if volume.find(&path, true).is_ok_and(|d| d.is_some_and(|d| d.is_dir()))
        && let Some(name) = target.name()
    {
        path = join(&path, name);
    }
    let made = match args.symbolic {
        true => volume.symlink(&target.path, &path, args.force),
        false => volume.link(&target.path, &path, args.force),
    };
    report::after_change(global, made, volume)
}
