//! Standard output and standard error: text, JSON, and readers that go away.

use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use tidegate::error::show;
use tidegate::{Error, Result};

/// The name of standard output in errors.
const NAME: &str = "standard output";

/// Buffered standard output with errors of this crate.
pub struct Out {
    to: BufWriter<StdoutLock<'static>>,
    terminal: bool,
}

impl Out {
    /// Standard output.
    pub fn new() -> Self {
        let to = io::stdout().lock();
        Out { terminal: to.is_terminal(), to: BufWriter::with_capacity(64 << 10, to) }
    }

    /// The output form of a name: escaped for a terminal, the bytes for a program.
    pub fn name<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        if self.terminal { Cow::Owned(show(name).into_bytes()) } else { Cow::Borrowed(name) }
    }

    /// Writes the pieces as one line.
    ///
    /// # Errors
    /// Those of writing.
    pub fn pieces(&mut self, pieces: &[&[u8]]) -> Result<()> {
        pieces.iter().try_for_each(|p| self.bytes(p))?;
        self.bytes(b"\n")
    }

    /// Writes bytes.
    ///
    /// # Errors
    /// Those of writing.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.write_all(bytes).map_err(error)
    }

    /// Writes a line.
    ///
    /// # Errors
    /// Those of writing.
    pub fn line(&mut self, text: impl Display) -> Result<()> {
        writeln!(self.to, "{text}").map_err(error)
    }

    /// Writes a value as JSON on lines of its own.
    ///
    /// # Errors
    /// Those of writing.
    pub fn json(&mut self, value: &impl Serialize) -> Result<()> {
        serde_json::to_writer_pretty(&mut self.to, value).map_err(|e| error(e.into()))?;
        self.bytes(b"\n")
    }

    /// Writes out what is buffered.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> Result<()> {
        self.to.flush().map_err(error)
    }
}

/// Lines of at most `width` characters, broken between words. A longer word has a line of its own.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.into()),
        }
    }
    lines
}

/// An error of standard output.
pub fn error(e: io::Error) -> Error {
    Error::Os(NAME.into(), e)
}

/// Prints notes on what could not be kept.
pub fn notes(notes: &[String]) {
    notes.iter().for_each(note);
}

/// Prints a line on standard error about something that is not as asked for.
pub fn note(text: impl Display) {
    say(format_args!("note: {text}"));
}

/// Prints a line on standard error, after the program's name.
pub fn say(text: impl Display) {
    line(format_args!("tidegate: {text}"));
}

/// Prints a line on standard error. An error is ignored: the reader closed it.
pub fn line(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}
