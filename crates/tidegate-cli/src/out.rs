//! Standard output: text, JSON, and a reader that goes away.

use serde::Serialize;
use std::io::{self, BufWriter, StdoutLock, Write};
use tidegate::{Error, Result};

/// What errors call it.
const NAME: &str = "standard output";

/// Buffered standard output whose errors are ours.
pub struct Out(BufWriter<StdoutLock<'static>>);

impl Out {
    /// Standard output.
    pub fn new() -> Self {
        Out(BufWriter::with_capacity(64 << 10, io::stdout().lock()))
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// Those of writing.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).map_err(error)
    }

    /// Writes a line.
    ///
    /// # Errors
    /// Those of writing.
    pub fn line(&mut self, text: impl std::fmt::Display) -> Result<()> {
        writeln!(self.0, "{text}").map_err(error)
    }

    /// Writes a value as JSON on lines of its own.
    ///
    /// # Errors
    /// Those of writing.
    pub fn json(&mut self, value: &impl Serialize) -> Result<()> {
        serde_json::to_writer_pretty(&mut self.0, value).map_err(|e| error(e.into()))?;
        self.bytes(b"\n")
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> Result<()> {
        self.0.flush().map_err(error)
    }
}

/// An error of standard output.
pub fn error(e: io::Error) -> Error {
    Error::Os(NAME.into(), e)
}

/// Prints what could not be kept.
pub fn notes(notes: &[String]) {
    for note in notes {
        eprintln!("tidegate: note: {note}");
    }
}
