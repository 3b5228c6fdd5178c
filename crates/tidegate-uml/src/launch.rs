//! A guest's process under a guard, for every kind of kernel.

use crate::error::{Error, Result};
use crate::handle::Running;
use crate::job::ERRORS;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Starts the guard, then becomes the kernel. The guard kills the kernel when its starter goes away, by
/// whatever signal: the kernel is several processes, which would otherwise stay. The guard's standard input
/// is a pipe that ends with the starter. The kernel has to lead the process group that begins here, since
/// that group is killed: otherwise the kernel begins a group of its own.
const GUARDED: &str = "exec 3<&0; { read -r never <&3; kill -9 0; } >/dev/null & exec \"$@\" </dev/null 3<&-";

/// Starts a guest: `program` with its arguments and variables. Its standard output is the guest's console.
/// The guest ends with its starter, or when `timeout` is over. `job` is the directory that host and guest
/// share (see [`crate::job`]).
///
/// # Errors
/// The host cannot start the program.
pub fn launch(program: &Command, job: TempDir, timeout: Duration) -> Result<Running> {
    let errors = job.path().join(ERRORS);
    let stderr = File::create(&errors).map_err(Error::file(&errors))?;
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", GUARDED, "guard"])
        .arg(program.get_program())
        .args(program.get_args())
        .envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .process_group(0);
    let child = command.spawn().map_err(Error::io("starting a guest by /bin/sh"))?;
    Running::new(child, job, timeout)
}
