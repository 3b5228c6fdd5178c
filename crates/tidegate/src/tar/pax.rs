//! Pax records: `length key=value\n`.

use super::invalid;
use crate::node::Xattr;
use std::io;
use tidegate_rt::Timespec;

const SCHILY_XATTR: &[u8] = b"SCHILY.xattr.";
const LIBARCHIVE_XATTR: &[u8] = b"LIBARCHIVE.xattr.";

/// Splits the content of a pax header into keys and values.
///
/// # Errors
/// A malformed record.
pub fn records(mut bytes: &[u8]) -> io::Result<Vec<(&[u8], &[u8])>> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        // Some writers fill the block up with NULs.
        if bytes[0] == 0 {
            break;
        }
        let (record, rest) = record(bytes).ok_or_else(|| invalid("a pax header with a bad record"))?;
        out.push(record);
        bytes = rest;
    }
    Ok(out)
}

type Record<'a> = ((&'a [u8], &'a [u8]), &'a [u8]);

fn record(bytes: &[u8]) -> Option<Record<'_>> {
    let space = bytes.iter().take(20).position(|&b| b == b' ')?;
    let len: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    let body = bytes.get(space + 1..len)?.strip_suffix(b"\n")?;
    let eq = body.iter().position(|&b| b == b'=')?;
    Some(((&body[..eq], &body[eq + 1..]), &bytes[len..]))
}

/// Adds a record to a header's content.
pub fn put(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    // The length counts its own digits.
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    out.extend_from_slice(len.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// A decimal number.
pub fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.trim().parse().ok()
}

/// A time: decimal seconds, perhaps negative, perhaps with a fraction.
pub fn time(value: &[u8]) -> Option<Timespec> {
    let text = std::str::from_utf8(value).ok()?.trim();
    let (negative, text) = match text.strip_prefix('-') {
        Some(t) => (true, t),
        None => (false, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let secs: i64 = whole.parse().ok()?;
    if !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9}")[..9].parse().ok()?;
    Some(match (negative, nanos) {
        (false, _) => Timespec { secs, nanos },
        (true, 0) => Timespec { secs: -secs, nanos: 0 },
        (true, _) => Timespec { secs: -secs - 1, nanos: 1_000_000_000 - nanos },
    })
}

/// A time as [`time`] reads it.
pub fn time_text(t: Timespec) -> String {
    if t.nanos == 0 {
        return t.secs.to_string();
    }
    let (sign, secs, nanos) = match t.secs {
        s if s >= 0 => ("", s, t.nanos),
        s => ("-", -(s + 1), 1_000_000_000 - t.nanos),
    };
    format!("{sign}{secs}.{nanos:09}").trim_end_matches('0').to_string()
}

/// The extended attribute in a record, if there is one.
pub fn xattr(key: &[u8], value: &[u8]) -> Option<Xattr> {
    if let Some(name) = key.strip_prefix(SCHILY_XATTR) {
        return Some((percent_decode(name, b"3D25"), value.to_vec()));
    }
    let name = key.strip_prefix(LIBARCHIVE_XATTR)?;
    Some((percent_decode(name, b""), base64(value)?))
}

/// Adds the record for an extended attribute. A name's `=` would end the key, so it is written as `%3D`.
pub fn put_xattr(out: &mut Vec<u8>, (name, value): &Xattr) {
    let mut key = SCHILY_XATTR.to_vec();
    for &b in name {
        match b {
            b'=' => key.extend_from_slice(b"%3D"),
            b'%' => key.extend_from_slice(b"%25"),
            _ => key.push(b),
        }
    }
    put(out, &key, value);
}

/// Decodes `%XX`: only those in `only` (pairs of digits) unless it is empty.
fn percent_decode(name: &[u8], only: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut i = 0;
    while i < name.len() {
        let code = name.get(i + 1..i + 3).filter(|_| name[i] == b'%');
        let wanted = code.filter(|c| only.is_empty() || only.chunks(2).any(|o| o.eq_ignore_ascii_case(c)));
        let byte = wanted.and_then(|c| u8::from_str_radix(std::str::from_utf8(c).ok()?, 16).ok());
        out.push(byte.unwrap_or(name[i]));
        i += if byte.is_some() { 3 } else { 1 };
    }
    out
}

/// Decodes base64. Padding may be missing, as libarchive leaves it out.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut acc, mut bits) = (0u32, 0);
    for &b in text.iter().filter(|b| !b.is_ascii_whitespace() && **b != b'=') {
        let v = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        acc = acc << 6 | v as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((acc >> bits) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_their_own_length() {
        for n in [1, 2, 88, 89, 90, 91, 92, 93, 94, 95, 96, 97, 980, 990, 991, 992, 993, 994, 9990] {
            let mut out = Vec::new();
            let value = vec![b'\n'; n];
            put(&mut out, b"k", &value);
            put(&mut out, b"path", b"a=b");
            assert_eq!(records(&out).unwrap(), [(&b"k"[..], &value[..]), (b"path", b"a=b")]);
        }
        for bad in [&b"6 a=\n"[..], b"x", b"99 a=b\n", b"6 a=bc", b"18446744073709551615 a=b\n", b"0 a=b\n"] {
            assert!(records(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn times_before_and_after_everything() {
        let t = |secs, nanos| Timespec { secs, nanos };
        for (text, want) in [
            ("0", t(0, 0)),
            ("1.5", t(1, 500_000_000)),
            ("-1.5", t(-2, 500_000_000)),
            ("-0.000000001", t(-1, 999_999_999)),
            ("4102444800.123456789", t(4_102_444_800, 123_456_789)),
            ("-86400", t(-86400, 0)),
        ] {
            assert_eq!(time(text.as_bytes()), Some(want), "{text}");
            assert_eq!(time_text(want), text);
        }
        assert_eq!(time(b"1.0000000019"), Some(t(1, 1)));
        assert_eq!(time(b"1.x"), None);
        assert_eq!(time(b""), None);
    }

    #[test]
    fn attributes_of_both_kinds() {
        let x = (b"user.a=b%".to_vec(), b"\0v\n".to_vec());
        let mut out = Vec::new();
        put_xattr(&mut out, &x);
        let r = records(&out).unwrap();
        assert_eq!(xattr(r[0].0, r[0].1), Some(x));
        let l = xattr(b"LIBARCHIVE.xattr.user.%61", b"AAEC/w").unwrap();
        assert_eq!(l, (b"user.a".to_vec(), vec![0, 1, 2, 255]));
        assert_eq!(xattr(b"SCHILY.xattr.user.100%", b"").unwrap().0, b"user.100%");
        assert_eq!(xattr(b"path", b"x"), None);
    }
}
