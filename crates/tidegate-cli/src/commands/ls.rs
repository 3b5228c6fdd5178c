//! `tidegate ls`.

use crate::entry::{self, Entry};
use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use serde::Serialize;
use std::ffi::OsString;
use std::sync::Arc;
use tidegate::error::show;
use tidegate::paths::join;
use tidegate::vfs::{FileType, Inode};
use tidegate::{Result, Volume};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// One entry a line, with mode, links, owner, group, size and time (UTC)
    #[arg(short)]
    long: bool,
    /// Directories below, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Names that begin with a dot, too
    #[arg(short, long)]
    all: bool,
    /// Directories themselves, not what is in them
    #[arg(short, long)]
    directory: bool,
    /// What to list
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

#[derive(Serialize)]
struct Listing {
    path: String,
    entries: Vec<Entry>,
}

/// Lists.
///
/// # Errors
/// What is in the way.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let mut out = Out::new();
    let mut json = Vec::new();
    let headed = args.places.len() > 1 || args.recursive;
    for (n, place) in args.places.iter().map(|p| Place::parse(p)).enumerate() {
        let volume = global.read(&place)?;
        let mut stack = vec![place.path.clone()];
        let mut first = n == 0;
        while let Some(path) = stack.pop() {
            let (names, is_dir) = names(&volume, &path, args)?;
            if args.recursive && is_dir {
                let below = names.iter().rev().filter(|(_, i)| i.is_dir());
                stack.extend(below.map(|(n, _)| join(&path, n)));
            }
            if global.json {
                let entry =
                    |(n, i): &(Vec<u8>, Arc<Inode>)| Entry::new(&volume, i, n, &join(&path, n), false);
                let entries = names.iter().map(entry).collect::<Result<_>>()?;
                json.push(Listing { path: show(&path), entries });
                continue;
            }
            if headed && is_dir {
                let gap = if first { "" } else { "\n" };
                out.line(format_args!("{gap}{}:{}:", place.image.display(), show(&path)))?;
            }
            first = false;
            if args.long { long(&mut out, &volume, &path, &names)? } else { short(&mut out, &names)? }
        }
        volume.unmount()?;
    }
    if global.json {
        out.json(&json)?;
    }
    out.finish()
}

/// What is to be listed at `path`, by name.
#[allow(clippy::type_complexity)]
fn names(volume: &Volume, path: &[u8], args: &Args) -> Result<(Vec<(Vec<u8>, Arc<Inode>)>, bool)> {
    let inode = volume.resolve(path, !(args.long || args.directory))?;
    if !inode.is_dir() || args.directory {
        return Ok((vec![(path.to_vec(), inode)], false));
    }
    let mut out = Vec::new();
    for e in volume.list(path)? {
        if args.all || !e.name.starts_with(b".") {
            let inode = volume.vfs().iget(e.ino);
            let inode = inode.map_err(|x| volume.complain(&join(path, &e.name), x))?;
            out.push((e.name, inode));
        }
    }
    Ok((out, true))
}

fn short(out: &mut Out, names: &[(Vec<u8>, Arc<Inode>)]) -> Result<()> {
    names.iter().try_for_each(|(n, _)| out.line(show(n)))
}

fn long(out: &mut Out, volume: &Volume, path: &[u8], names: &[(Vec<u8>, Arc<Inode>)]) -> Result<()> {
    let mut rows = Vec::with_capacity(names.len());
    for (name, inode) in names {
        let a = inode.attr().clone();
        let mut shown = show(name);
        if a.file_type == FileType::Symlink {
            let target = volume.vfs().readlink(inode).map_err(|e| volume.complain(&join(path, name), e))?;
            shown = format!("{shown} -> {}", show(&target));
        }
        let columns = [a.nlink.to_string(), a.uid.to_string(), a.gid.to_string(), entry::size(&a)];
        rows.push((entry::letters(&a), columns, entry::mtime(&a), shown));
    }
    let width = |i: usize| rows.iter().map(|r| r.1[i].len()).max().unwrap_or(0);
    let w = [width(0), width(1), width(2), width(3)];
    for (mode, c, time, name) in &rows {
        out.line(format_args!(
            "{mode} {:>w0$} {:>w1$} {:>w2$} {:>w3$} {time} {name}",
            c[0],
            c[1],
            c[2],
            c[3],
            w0 = w[0],
            w1 = w[1],
            w2 = w[2],
            w3 = w[3]
        ))?;
    }
    Ok(())
}
