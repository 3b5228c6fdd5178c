//! `tidegate stat`.

use crate::entry::{self, Entry};
use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use crate::units::time;
use std::ffi::OsString;
use tidegate::error::show;
use tidegate::vfs::Inode;
use tidegate::{Result, Volume};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Follow a symbolic link at the end of the path
    #[arg(short = 'L', long)]
    dereference: bool,
    /// What to show
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

/// Shows attributes.
///
/// # Errors
/// What is in the way.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let mut out = Out::new();
    let mut json = Vec::new();
    for place in args.places.iter().map(|p| Place::parse(p)) {
        let volume = global.read(&place)?;
        let inode = volume.resolve(&place.path, args.dereference)?;
        if global.json {
            json.push(Entry::new(&volume, &inode, &place.path, &place.path, true)?);
        } else {
            text(&mut out, &volume, &inode, &place)?;
        }
        drop(inode);
        volume.unmount()?;
    }
    if global.json {
        out.json(&json)?;
    }
    out.finish()
}

fn text(out: &mut Out, volume: &Volume, inode: &Inode, place: &Place) -> Result<()> {
    let e = Entry::new(volume, inode, &place.path, &place.path, true)?;
    let a = inode.attr().clone();
    let arrow = e.target.as_ref().map(|t| format!(" -> {}", show(t.as_bytes()))).unwrap_or_default();
    out.line(format_args!("  File: {}{arrow}", show(&place.path)))?;
    out.line(format_args!("  Type: {}", e.kind))?;
    out.line(format_args!("  Size: {} ({} blocks of 512 bytes)", a.size, a.blocks))?;
    out.line(format_args!(" Inode: {}, {} links, generation {}", e.inode, a.nlink, a.generation))?;
    if let Some((major, minor)) = e.device {
        out.line(format_args!("Device: {major}, {minor}"))?;
    }
    out.line(format_args!("  Mode: {} ({})", e.mode, entry::letters(&a)))?;
    out.line(format_args!(" Owner: {}:{}", a.uid, a.gid))?;
    out.line(format_args!("Access: {} UTC", time(a.atime, true)))?;
    out.line(format_args!("Modify: {} UTC", time(a.mtime, true)))?;
    out.line(format_args!("Change: {} UTC", time(a.ctime, true)))?;
    if let Some(t) = a.crtime {
        out.line(format_args!(" Birth: {} UTC", time(t, true)))?;
    }
    e.xattrs.iter().try_for_each(|(n, v)| out.line(format_args!(" Xattr: {n} = {v}")))
}
