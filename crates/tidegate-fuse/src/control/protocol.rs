//! Questions and answers, a line of JSON each.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use tidegate::Sample;
use tidegate::observe::why::Report;
use tidegate::observe::{ProfileForm, TraceForm};

/// The protocol that both sides speak; a program that speaks another is told so.
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
    /// A sample; with `locks`, lock statistics are collected from now until the client hangs up.
    Sample {
        /// Whether locks are wanted.
        locks: bool,
    },
    /// A recording from now on. Behind the answer come the parts that were wanted, in this order, in chunks.
    Record(Record),
    /// Why the slowest fsyncs, syncs and checkpoints from now on are slow.
    Why(Why),
    /// How the mount ends. It answers that it will tell, again when the kernel has let go, and once more when it
    /// has let go of the volume: an error is what went wrong then. The connection lasts as long as the process.
    End,
}

/// A recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// How long.
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
    /// How many operations of each kind.
    pub most: usize,
}

/// An answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Answer {
    /// The version that the mount speaks.
    pub v: u32,
    /// Why there is no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The sample asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Box<Sample>>,
    /// The findings of the recording that was asked for; its parts follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Found>,
    /// The explanation asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Box<Report>>,
}

/// The findings of a recording.
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

/// Reads a question; `None` when the other side has hung up. The version is not looked at.
///
/// # Errors
/// Those of reading; `InvalidData` for what is no question.
pub fn read_question(from: &mut impl BufRead) -> io::Result<Option<Result<Ask, String>>> {
    #[derive(Deserialize)]
    struct Version {
        v: u32,
    }
    let Some(line) = read_line(from, MAX_QUESTION)? else { return Ok(None) };
    // A newer version's questions may look different; its number does not.
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
/// Those of reading; `InvalidData` for what is none; `UnexpectedEof` when the mount has gone.
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

/// Bytes of any number as chunks, each behind a line with its length; an empty one ends them.
pub struct ChunkWriter<W: Write> {
    to: W,
    buf: Vec<u8>,
}

impl<W: Write> ChunkWriter<W> {
    /// Writes chunks to `to`.
    pub fn new(to: W) -> Self {
        ChunkWriter { to, buf: Vec::with_capacity(CHUNK) }
    }

    /// Writes what is left, and the end.
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
/// Those of both sides; `InvalidData` for what is no chunk.
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
