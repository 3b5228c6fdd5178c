//! Numbers in headers: octal text, or GNU's base-256 for those that are too large or negative.

/// Reads a numeric field. `None` when it is neither.
pub fn parse(field: &[u8]) -> Option<i64> {
    match field.first()? {
        0x80 => base256(0, &field[1..]),
        0xff => base256(-1, &field[1..]),
        b if b & 0x80 != 0 => base256((b & 0x3f) as i64, &field[1..]),
        _ => octal(field),
    }
}

fn base256(start: i64, bytes: &[u8]) -> Option<i64> {
    bytes.iter().try_fold(start, |n, &b| n.checked_mul(256)?.checked_add(b as i64))
}

fn octal(field: &[u8]) -> Option<i64> {
    let is_pad = |b: &u8| *b == b' ' || *b == 0;
    let start = field.iter().position(|b| !is_pad(b)).unwrap_or(field.len());
    let digits = &field[start..];
    let digits = &digits[..digits.iter().position(is_pad).unwrap_or(digits.len())];
    digits.iter().try_fold(0i64, |n, &b| match b {
        b'0'..=b'7' => n.checked_mul(8)?.checked_add((b - b'0') as i64),
        _ => None,
    })
}

/// A number of 32 bits, such as that of a user. Some writers write it as negative.
pub fn narrow(n: i64) -> Option<u32> {
    u32::try_from(n).ok().or_else(|| i32::try_from(n).ok().map(i32::cast_unsigned))
}

/// Writes `n` as octal text if the field can hold it, else as base-256.
pub fn write(field: &mut [u8], n: i64) {
    let digits = field.len() - 1;
    if n >= 0 && (digits * 3 >= 63 || n < 1 << (digits * 3)) {
        let text = format!("{n:0digits$o}");
        field[..digits].copy_from_slice(text.as_bytes());
        field[digits] = 0;
        return;
    }
    let bytes = n.to_be_bytes();
    field.fill(if n < 0 { 0xff } else { 0 });
    let take = field.len().min(8);
    let at = field.len() - take;
    field[at..].copy_from_slice(&bytes[8 - take..]);
    field[0] = if n < 0 { 0xff } else { 0x80 | field[0] };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for n in [0, 1, 0o777, 0o7777777, 0o10000000, i64::MAX, -1, -5_000_000_000, 1 << 33] {
            let mut f = [0; 12];
            write(&mut f, n);
            assert_eq!(parse(&f), Some(n), "{n} as {f:?}");
        }
    }

    #[test]
    fn padding_of_old_writers() {
        assert_eq!(parse(b"   644 \0"), Some(0o644));
        assert_eq!(parse(b"\0\0\0\0\0\0\0\0"), Some(0));
        assert_eq!(parse(b"0000644 "), Some(0o644));
        assert_eq!(parse(b"12x4567\0"), None);
    }
}
