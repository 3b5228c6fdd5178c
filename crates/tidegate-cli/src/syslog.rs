//! The system's log, for messages of a process in the background.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// A daemon's error.
const PRIORITY: u8 = 3 << 3 | 3;

/// Logs an error. Where there is no log daemon, a process of the superuser writes to the kernel's log; else
/// the message is lost.
pub fn error(what: &str) {
    let line = format!("<{PRIORITY}>tidegate[{}]: {what}", std::process::id());
    let _ = send(Path::new("/dev/log"), &line)
        .or_else(|_| OpenOptions::new().write(true).open("/dev/kmsg")?.write_all(line.as_bytes()));
}

fn send(to: &Path, line: &str) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // A log daemon that hangs must not hold up the end of a mount.
    socket.set_nonblocking(true)?;
    socket.send_to(line.as_bytes(), to).map(drop)
}
