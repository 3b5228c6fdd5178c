//! The compression of a stream, recognised by its first bytes.

use super::reader::{Input, Plain};
use super::{BLOCK, header, invalid};
use flate2::bufread::GzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};

/// Bytes read from the stream at once.
const BUFFER: usize = 256 << 10;

/// Opens an archive's stream. gzip and zstd are decompressed; other content is taken as it is.
///
/// # Errors
/// The stream's; the name of another compression, or of content that is no archive.
pub fn open(from: impl Read + Send + 'static) -> io::Result<Box<dyn Input + Send>> {
    let mut from = from;
    let mut head = Vec::with_capacity(BLOCK);
    from.by_ref().take(BLOCK as u64).read_to_end(&mut head)?;
    let kind = kind(&head)?;
    let whole = BufReader::with_capacity(BUFFER, Cursor::new(head).chain(from));
    undo(kind, whole)
}

/// As [`open`], for a file: skipping bytes costs nothing if it is not compressed.
///
/// # Errors
/// As [`open`].
pub fn open_file(mut file: File) -> io::Result<Box<dyn Input + Send>> {
    use std::io::Seek;
    let mut head = Vec::with_capacity(BLOCK);
    let is_file = file.metadata()?.is_file();
    if !is_file {
        return open(file);
    }
    file.by_ref().take(BLOCK as u64).read_to_end(&mut head)?;
    let kind = kind(&head)?;
    file.rewind()?;
    let size = file.metadata()?.len();
    let reader = BufReader::with_capacity(BUFFER, file);
    match kind {
        Kind::Plain => Ok(Box::new(SeekInput { reader, at: 0, size })),
        _ => undo(kind, reader),
    }
}

enum Kind {
    Plain,
    Gzip,
    Zstd,
}

fn kind(head: &[u8]) -> io::Result<Kind> {
    let unsupported = |what| Err(invalid(format!("{what} compression is not supported; gzip and zstd are")));
    match head {
        [0x1f, 0x8b, ..] => Ok(Kind::Gzip),
        // The second is a skippable frame, with which parallel compressors begin.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Ok(Kind::Zstd),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => unsupported("xz"),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => unsupported("bzip2"),
        [0x04, 0x22, 0x4d, 0x18, ..] => unsupported("lz4"),
        _ => {
            let block: Option<&[u8; BLOCK]> = head.try_into().ok();
            match block {
                Some(b) if header::is_header(b) || header::is_end(b) => Ok(Kind::Plain),
                _ => Err(invalid("not a tar archive")),
            }
        }
    }
}

fn undo(kind: Kind, from: impl BufRead + Send + 'static) -> io::Result<Box<dyn Input + Send>> {
    Ok(match kind {
        Kind::Plain => Box::new(Plain(from)),
        Kind::Gzip => Box::new(Plain(buffered(Members { from: Some(GzDecoder::new(from)) }))),
        Kind::Zstd => {
            let mut d = zstd::stream::read::Decoder::with_buffer(from)?;
            // The window of `zstd --long=27`, the largest that zstd decompresses without an option.
            d.window_log_max(27)?;
            Box::new(Plain(buffered(d)))
        }
    })
}

/// The members of a gzip stream, one after the other. Zeros may follow the last: archives are padded to the blocks of
/// their medium, and gzip(1) takes them as they are.
struct Members<R> {
    /// `None` at the end, and after an error.
    from: Option<GzDecoder<R>>,
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.from {
            let n = member.read(to)?;
            if n > 0 || to.is_empty() {
                return Ok(n);
            }
            let mut rest = self.from.take().map(GzDecoder::into_inner);
            if let Some(from) = &mut rest
                && skip_zeros(from)?
            {
                self.from = rest.map(GzDecoder::new);
            }
        }
        Ok(0)
    }
}

/// Skips zeros; false at the end of the stream.
fn skip_zeros(from: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let (len, zeros) = match from.fill_buf() {
            Ok(bytes) => (bytes.len(), bytes.iter().take_while(|b| **b == 0).count()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        from.consume(zeros);
        if zeros < len || len == 0 {
            return Ok(len > 0);
        }
    }
}

fn buffered<R: Read>(from: R) -> BufReader<R> {
    BufReader::with_capacity(BUFFER, from)
}

/// A plain file. Bytes are skipped by seeking.
struct SeekInput {
    reader: BufReader<File>,
    at: u64,
    size: u64,
}

impl Read for SeekInput {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let n = self.reader.read(to)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Input for SeekInput {
    fn skip(&mut self, n: u64) -> io::Result<()> {
        if n > self.size.saturating_sub(self.at) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += n;
        self.reader.seek_relative(n as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn member(bytes: &[u8]) -> Vec<u8> {
        let mut to = GzEncoder::new(Vec::new(), Compression::fast());
        to.write_all(bytes).unwrap();
        to.finish().unwrap()
    }

    /// The content of a gzip stream, read through a small buffer.
    fn unpacked(stream: Vec<u8>) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        let from = BufReader::with_capacity(100, Cursor::new(stream));
        undo(Kind::Gzip, from)?.read_to_end(&mut all).map(|_| all)
    }

    #[test]
    fn members_follow_each_other_and_zeros_the_last() {
        let (one, two) = (member(b"one"), member(&[7; 5000]));
        let both = [b"one".to_vec(), vec![7; 5000]].concat();
        for zeros in [0, 1, 99, 100, 20_000] {
            let stream = [one.clone(), two.clone(), vec![0; zeros]].concat();
            assert_eq!(unpacked(stream).unwrap(), both, "{zeros}");
        }
        let mut damaged = two.clone();
        let crc = damaged.len() - 8;
        damaged[crc] ^= 1;
        for wrong in [damaged, two[..two.len() - 4].to_vec(), [two, b"\0garbage".to_vec()].concat()] {
            assert!(unpacked([one.clone(), wrong, vec![0; 500]].concat()).is_err());
        }
    }
}
