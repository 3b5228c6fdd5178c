//! Bytes that need not be text, written as text and read back unchanged.

use anyhow::{Context, Result, bail};

/// Writes bytes as text: printable UTF-8 stays, the rest becomes `\xNN`.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                c if c.is_control() => {
                    let mut buf = [0; 4];
                    push_hex(&mut out, c.encode_utf8(&mut buf).as_bytes());
                }
                c => out.push(c),
            }
        }
        push_hex(&mut out, chunk.invalid());
    }
    out
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    for b in bytes {
        out.push_str(&format!("\\x{b:02x}"));
    }
}

/// Reads back what [`escape`] wrote.
pub fn unescape(text: &str) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first != b'\\' {
            out.push(first);
            rest = after;
            continue;
        }
        rest = match after {
            [b'\\', tail @ ..] => {
                out.push(b'\\');
                tail
            }
            [b'x', a, b, tail @ ..] => {
                let digits = [*a, *b];
                let digits = std::str::from_utf8(&digits).context("bad escape")?;
                out.push(u8::from_str_radix(digits, 16).context("bad escape")?);
                tail
            }
            _ => bail!("bad escape in {text:?}"),
        };
    }
    Ok(out)
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&all[..], b"plain/path", "grün\\x41\u{85}".as_bytes(), b"\xff\\\n", b""] {
            assert_eq!(unescape(&escape(bytes)).unwrap(), bytes);
        }
        assert_eq!(escape("añb\n\\".as_bytes()), "añb\\x0a\\\\");
        assert!(unescape("\\q").is_err());
        assert!(unescape("\\x4").is_err());
    }
}
