//! A reader that goes away ends a command quietly.

use std::process::{Command, Stdio};

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    // The reader is dropped before anything is printed: the pipe's buffer would hold all of the output.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let child = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["golden", "--list"])
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stderr), "");
    assert_eq!(out.status.code(), Some(141));
}
