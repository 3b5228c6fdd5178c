//! `tidegate stat`.

use crate::entry::{self, Entry};
use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use crate::units::time;
use std::ffi::OsString;
use tidegate::Result;
use tidegate::error::show;
use tidegate::vfs::Inode;

/// Arguments of `tidegate stat`.
#[derive(clap::Args)]
pub struct Args {
    /// Follow a symbolic link at the end of the path
    #[arg(short = 'L', long)]
    dereference: bool,
    /// The places to show
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

/// Shows attributes.
///
/// # Errors
/// The volume cannot be opened, or a path cannot be found.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let mut out = Out::new();
    let mut json = Vec::new();
    for place in args.places.iter().map(|p| Place::parse(p)) {
        let Some(volume) = global.or_fail(global.read(&place)) else { continue };
        let found = volume.resolve(&place.path, args.dereference).and_then(|inode| {
            let entry = Entry::new(&volume, &inode, &place.path, &place.path, true)?;
            Ok((inode, entry))
        });
        match global.or_fail(found) {
            Some((_, entry)) if global.json => json.push(entry),
            Some((inode, entry)) => text(&mut out, &entry, &inode, &place)?,
            None => {}
        }
        global.or_fail(volume.unmount());
    }
    if global.json {
        out.json(&json)?;
    }
    out.finish()
}

fn text(out: &mut Out, e: &Entry, inode: &Inode, place: &Place) -> Result<()> {
    let a = inode.attr().clone();
    let arrow = e.link.as_ref().map(|t| format!(" -> {}", show(t))).unwrap_or_default();
    out.line(format_args!("  File: {}{arrow}", show(&place.path)))?;
    out.line(format_args!("  Type: {}", e.kind))?;
    out.line(format_args!("  Size: {} ({} blocks of 512 bytes)", a.size, e.blocks))?;
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
