//! Questions and answers, a line of JSON each.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use tidegate::Sample;
use tidegate::observe::why::Report;
use tidegate::observe::{ProfileForm, TraceForm};

/// The version of the protocol. A program of another version gets an error that says so.
pub const VERSION: u32 = 1;

/// Longest question in bytes.
const MAX_QUESTION: u64 = 64 << 10;
/// Longest line of an answer in bytes.
const MAX_ANSWER: u64 = 16 << 20;
/// Bytes of a chunk.
const CHUNK: usize = 64 << 10;

/// A question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ask {
    /// The version that the client speaks.
    pub v: u32,
    /// The request.
    #[serde(flatten)]
    pub what: What,
}

/// The request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum What {
    /// A sample. With `locks`, lock statistics are collected from now until the client hangs up.
    Sample {
        /// Whether to collect lock statistics.
        locks: bool,
    },
    /// A recording from now on. The requested parts follow the answer, in this order, in chunks.
    Record(Record),
    /// Switches of the volume are set, from now on.
    Set {
        /// The switches as in a list of mount options.
        switches: String,
    },
    /// Why the slowest fsyncs, syncs and checkpoints from now on are slow.
    Why(Why),
    /// A report on how the mount ends. The mount answers at once, again when the kernel has released it, and once more
    /// when the volume is unmounted; that answer has the error, if there was one. The connection lasts as long as the
    /// process.
    End,
}

/// A recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its length.
    pub seconds: f64,
    /// Events that are kept of each thread.
    pub events: usize,
    /// Lock statistics.
    #[serde(default)]
    pub locks: bool,
    /// Events in this form.
    #[serde(default)]
    pub trace: Option<TraceForm>,
    /// Call trees in this form.
    #[serde(default)]
    pub profile: Option<ProfileForm>,
}

/// The operations to be explained.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// How long to watch.
    pub seconds: f64,
    /// Events that are kept of each thread.
    pub events: usize,
    /// An operation that takes no longer than so many nanoseconds is not slow.
    pub over_ns: u64,
    /// The most operations of each kind.
    pub most: usize,
}

/// An answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// The version that the mount speaks.
    pub v: u32,
    /// The reason why there is no other answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The sample asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Box<Sample>>,
    /// The figures of the recording that was asked for. Its parts follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Found>,
    /// The explanation asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Box<Report>>,
}

/// The figures of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// Events that were kept.
    pub events: u64,
    /// Events that were dropped, since more came than are kept.
    pub dropped: u64,
}

impl Answer {
    /// A refusal.
    pub fn error(why: impl Into<String>) -> Answer {
        Answer { v: VERSION, error: Some(why.into()), ..Answer::default() }
    }
}

/// Reads a question. `None` when the other side has hung up. The version is not checked.
///
/// # Errors
/// Those of reading; `InvalidData` for a line that is no question.
pub fn read_question(from: &mut impl BufRead) -> io::Result<Option<Result<Ask, String>>> {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    let Some(line) = read_line(from, MAX_QUESTION)? else { return Ok(None) };
    // Questions of a newer version may look different, but the version number does not.
    let version = serde_json::from_slice::<Version>(&line).map(|v| v.v);
    Ok(Some(match (version, serde_json::from_slice(&line)) {
        (Ok(v), _) if v != VERSION => Err(format!("this mount speaks version {VERSION}, not {v}")),
        (_, Ok(ask)) => Ok(ask),
        (_, Err(e)) => Err(format!("not a question: {e}")),
    }))
}

/// Reads an answer.
///
/// # Errors
/// Those of reading; `InvalidData` for a line that is no answer; `UnexpectedEof` when the mount is gone.
pub fn read_answer(from: &mut impl BufRead) -> io::Result<Answer> {
    let line = read_line(from, MAX_ANSWER)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    serde_json::from_slice(&line).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Writes a question or an answer.
///
/// # Errors
/// Those of writing.
pub fn write(to: &mut impl Write, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    to.write_all(&line)
}

fn read_line(from: &mut impl BufRead, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    from.by_ref().take(most).read_until(b'\n', &mut line)?;
    match line.last() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) if line.len() as u64 == most => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "a line without end"))
        }
        Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Writes any number of bytes as chunks, each after a line with its length. An empty chunk ends them.
pub struct ChunkWriter<W: Write> {
    to: W,
    buf: Vec<u8>,
}

impl<W: Write> ChunkWriter<W> {
    /// Writes chunks to `to`.
    pub fn new(to: W) -> Self {
        ChunkWriter { to, buf: Vec::with_capacity(CHUNK) }
    }

    /// Writes the remaining bytes, and the end.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(mut self) -> io::Result<()> {
        self.send()?;
        self.to.write_all(b"0\n")
    }

    fn send(&mut self) -> io::Result<()> {
        if !self.buf.is_empty() {
            writeln!(self.to, "{}", self.buf.len())?;
            self.to.write_all(&self.buf)?;
            self.buf.clear();
        }
        Ok(())
    }
}

impl<W: Write> Write for ChunkWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(CHUNK - self.buf.len());
        self.buf.extend_from_slice(&bytes[..n]);
        if self.buf.len() == CHUNK {
            self.send()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send()?;
        self.to.flush()
    }
}

/// Reads chunks up to their end and writes their bytes to `to`.
///
/// # Errors
/// Those of reading and writing; `InvalidData` for a malformed chunk.
pub fn copy_chunks(from: &mut impl BufRead, to: &mut impl Write) -> io::Result<()> {
    loop {
        let line = read_line(from, 32)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let number = std::str::from_utf8(&line).ok().and_then(|l| l.trim_end().parse::<u64>().ok());
        let left = number.ok_or(io::ErrorKind::InvalidData)?;
        if left == 0 {
            return Ok(());
        }
        if io::copy(&mut from.by_ref().take(left), to)? < left {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_of_another_version_are_known_by_it() {
        let read = |line: &str| read_question(&mut line.as_bytes()).unwrap().unwrap();
        let ask = read("{\"v\":1,\"ask\":\"sample\",\"locks\":true}\n").unwrap();
        assert_eq!(ask.what, What::Sample { locks: true });
        assert!(read("{\"v\":2,\"ask\":\"anything\"}\n").unwrap_err().contains("version 1, not 2"));
        assert!(read("{\"v\":1,\"ask\":\"nothing\"}\n").unwrap_err().starts_with("not a question"));
        assert!(read("\n").unwrap_err().starts_with("not a question"));
        assert!(read_question(&mut &b""[..]).unwrap().is_none());
        assert!(read_question(&mut &[b'x'; 1 << 20][..]).is_err());
    }

    #[test]
    fn chunks_carry_any_bytes() {
        let bytes: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let mut wire = Vec::new();
        let mut w = ChunkWriter::new(&mut wire);
        w.write_all(&bytes).unwrap();
        w.finish().unwrap();
        let (mut out, mut from) = (Vec::new(), &wire[..]);
        copy_chunks(&mut from, &mut out).unwrap();
        assert!(out == bytes && from.is_empty());
        let mut cut = &wire[..wire.len() - 3];
        assert!(copy_chunks(&mut cut, &mut Vec::new()).is_err());
    }
}
