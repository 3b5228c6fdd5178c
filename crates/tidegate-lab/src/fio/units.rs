//! Sizes and times as fio writes them.

use std::time::Duration;

/// Splits a number from what follows it.
fn split(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    Some((number.parse().ok()?, unit))
}

/// Bytes: a number, perhaps with `k`, `m`, `g`, `t` or `p` (1024 of the unit before) and a `b`. With an `i`
/// it is 1000 of the unit before: fio's default reverses the standards' meaning.
pub(super) fn size(text: &str) -> Option<u64> {
    let (n, unit) = split(text)?;
    let lower = unit.to_ascii_lowercase();
    let prefix = match lower.as_str() {
        "" | "b" => return Some(n),
        u => u.strip_suffix('b').unwrap_or(u),
    };
    let (prefix, base) = match prefix.strip_suffix('i') {
        Some(p) => (p, 1000u64),
        None => (prefix, 1024),
    };
    let power = ["k", "m", "g", "t", "p"].iter().position(|p| *p == prefix)? as u32 + 1;
    n.checked_mul(base.pow(power))
}

/// A time: a number, perhaps with `us`, `ms`, `s`, `m`, `h` or `d`; without a unit, of `unit_us` µs.
pub(super) fn time(text: &str, unit_us: u64) -> Option<Duration> {
    let (n, unit) = split(text)?;
    let us = match unit {
        "" => unit_us,
        "us" | "usec" => 1,
        "ms" | "msec" => 1000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return None,
    };
    Some(Duration::from_micros(n.checked_mul(us)?))
}

/// Yes or no; a key alone is yes.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "" | "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

/// One value for both directions, or one for reads and one for writes; fio's third, for trims, is not
/// supported.
pub(super) fn both(text: &str, one: impl Fn(&str) -> Option<u64>) -> Option<[u64; 2]> {
    let values: Vec<&str> = text.split(',').collect();
    match values[..] {
        [v] => one(v).map(|v| [v, v]),
        [r, w] | [r, w, _] => Some([one(r)?, one(w)?]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_as_fio_has_them() {
        assert_eq!(
            ["4k", "1M", "2gb", "512", "7b"].map(size).map(Option::unwrap),
            [4096, 1 << 20, 2 << 30, 512, 7]
        );
        assert_eq!((size("1mi"), size("2KiB")), (Some(1_000_000), Some(2000)));
        assert!(["", "k", "4x", "1i", "99999999999p"].iter().all(|t| size(t).is_none()));
        assert_eq!(time("3", 1_000_000), Some(Duration::from_secs(3)));
        assert_eq!(time("3", 1), Some(Duration::from_micros(3)));
        assert_eq!(time("250ms", 1), Some(Duration::from_millis(250)));
        assert_eq!((time("2m", 1), time("2w", 1)), (Some(Duration::from_secs(120)), None));
        assert_eq!((both("4k", size), both("4k,8k", size)), (Some([4096; 2]), Some([4096, 8192])));
        assert_eq!((both("4k,8k,1m", size), both("1,2,3,4", size)), (Some([4096, 8192]), None));
        assert_eq!((boolean(""), boolean("0"), boolean("yes")), (Some(true), Some(false), None));
    }
}
