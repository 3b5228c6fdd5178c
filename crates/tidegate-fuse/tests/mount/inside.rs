//! A serving process that can be inspected, built from the parts of a mount: its device fails writes on
//! demand, and it tells how many inodes the kernel knows.

use crate::rig::{Rig, asked, end, say_ready};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tidegate::{Error, Result, Volume, error::Refusal};
use tidegate_block::{BioData, Errno, Fault, Faulty, Op, QueueLimits, Request, RequestQueue, Rule};
use tidegate_fuse::transport::{self, Connection};
use tidegate_fuse::{MountOptions, Server, mount};

/// The first bytes of pages that cannot be written while [`fail`] says so.
pub const UNLUCKY: &[u8] = b"unlucky!";

/// Mounts `rig` by such a process.
pub fn mount_inspected(rig: &mut Rig, words: &str) {
    rig.mount_by("inspected_process", words).unwrap();
}

/// Makes writes of unlucky pages fail, or succeed again.
pub fn fail(rig: &Rig, on: bool) {
    let switch = beside(&rig.image, "fail");
    if on { std::fs::write(switch, "").unwrap() } else { std::fs::remove_file(switch).unwrap() }
}

/// How many inodes the kernel knew a moment ago.
pub fn known(rig: &Rig) -> usize {
    let text = std::fs::read_to_string(beside(&rig.image, "known")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

fn beside(image: &Path, what: &str) -> PathBuf {
    image.with_extension(what)
}

fn is_unlucky(rq: &Request) -> bool {
    let unlucky = |bytes: &[u8]| bytes.chunks(4096).any(|page| page.starts_with(UNLUCKY));
    rq.bios
        .iter()
        .any(|b| matches!(&b.data, BioData::Write(parts) if parts.iter().any(|s| unlucky(s.bytes()))))
}

/// Serves the mount that the environment names, and ends the process.
pub fn serve_if_asked() {
    if let Some((image, dir, words)) = asked() {
        end(serve(&image, &dir, &MountOptions::parse(&words).unwrap()));
    }
}

fn serve(image: &Path, dir: &Path, options: &MountOptions) -> Result<()> {
    let name = image.display().to_string();
    let switch = beside(image, "fail");
    let rule =
        Rule::new(Fault::Fail(Errno::IO)).op(Op::Write).when(move |rq| switch.exists() && is_unlucky(rq));
    let device = tidegate_block::file::open(image, Default::default())
        .map_err(|e| Error::refused(Refusal::Failed, &name, e))?;
    let queue = Arc::new(RequestQueue::new(Faulty::new(device, [rule]), QueueLimits::default()));
    let open =
        tidegate::OpenOptions { memory: options.memory(), noatime: options.noatime, ..Default::default() };
    let volume = Arc::new(Volume::from_queue(&name, queue, &open)?);
    let server = Server::new(volume.clone(), options.view.clone());
    let fd =
        mount::mount(&name, dir, options, None).map_err(|e| Error::refused(Refusal::Failed, &name, e))?;
    let (threads, keep_awake) = (options.threads, options.keep_awake);
    let connection = Connection { fd, mountpoint: dir.to_path_buf(), threads, keep_awake };
    let transport = transport::connect(options.transport, server.clone(), connection);
    let transport = transport.map_err(|e| Error::refused(Refusal::Failed, &name, e))?;
    let (told, looked) = (beside(image, "known"), server.clone());
    std::thread::spawn(move || {
        loop {
            std::fs::write(&told, looked.known_nodes().0.to_string()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    say_ready();
    let served = transport.run().map_err(|e| Error::refused(Refusal::Failed, &name, e));
    server.detach();
    served.and(volume.vfs().unmount().map_err(|e| Error::refused(Refusal::Failed, &name, e)))
}
