//! Mounts a file system that only answers: it shows the cost of FUSE itself on this machine.
//!
//! `floor DIR [OPTIONS [contents]]`; serves until it is unmounted. With `contents` it also keeps written
//! data.

mod tree;

use std::path::PathBuf;
use tidegate_fuse::MountOptions;
use tidegate_fuse::mount::mount;
use tidegate_fuse::transport::dev::{Device, Rings};
use tidegate_fuse::transport::{Connection, Transport, TransportKind};
use tree::{Floor, Tree};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let mountpoint =
        PathBuf::from(args.next().ok_or("usage: floor DIR [OPTIONS [contents]]")?).canonicalize()?;
    let options = MountOptions::parse(&args.next().unwrap_or_default())?;
    let keeps_contents = args.next().is_some_and(|word| word == "contents");
    let rings = match options.transport {
        TransportKind::Uring => Rings::Always,
        TransportKind::Best => Rings::Maybe,
        _ => Rings::Never,
    };
    let fd = mount("floor", &mountpoint, &options, None)?;
    let (threads, keep_awake) = (options.threads, options.keep_awake);
    let served = mountpoint.clone();
    let connection = Connection { fd, mountpoint, threads, keep_awake };
    let tree = Tree::new(keeps_contents);
    let device = Device::answered_by(move || Floor(tree.clone()), connection, rings)?;
    tidegate_fuse::mount::tune(&served);
    Ok(Box::new(device).run()?)
}
