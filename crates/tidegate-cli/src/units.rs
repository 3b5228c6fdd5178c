//! Sizes, UUIDs and times as people write them.

use tidegate::Timespec;

/// The message about a text that is no size.
const NO_SIZE: &str = "not a size such as 64M, 1G or 1.5T";

pub use tidegate::units::{bytes, uuid_text};

/// A size such as `64M`, `1G`, `1.5T` or `4096`; units are powers of 1024. Not 0.
pub fn size(text: &str) -> Result<u64, String> {
    size_or_0(text).and_then(|n| if n > 0 { Ok(n) } else { Err(format!("{text}: {NO_SIZE}")) })
}

/// A size as [`size`] reads it, or 0.
pub fn size_or_0(text: &str) -> Result<u64, String> {
    let bad = || format!("{text}: {NO_SIZE}");
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let at = lower.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(lower.len());
    let (number, unit) = lower.split_at(at);
    let shift = match unit.trim() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return Err(bad()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.len() > 9 || fraction.contains('.') {
        return Err(bad());
    }
    let digits = |s: &str| if s.is_empty() { Some(0) } else { s.parse::<u64>().ok() };
    let unit = 1u64 << shift;
    let whole = digits(whole).and_then(|n| n.checked_mul(unit)).ok_or_else(bad)?;
    let scale = 10u128.pow(fraction.len() as u32);
    let part = digits(fraction).ok_or_else(bad)? as u128 * unit as u128 / scale;
    whole.checked_add(part as u64).ok_or_else(bad)
}

/// A size as `ls -lh` shows it: `64M`, `1.5K`, `100`.
pub fn short(n: u64) -> String {
    bytes(n).trim_end_matches('B').trim_end_matches('i').replace(' ', "")
}

/// A time of so many nanoseconds in the unit that leaves a number below 1000, with at least three digits.
pub fn duration(ns: u64) -> String {
    let (mut v, mut unit) = (ns as f64, 0);
    const UNITS: [&str; 4] = ["ns", "µs", "ms", "s"];
    while v >= 999.5 && unit < 3 {
        v /= 1000.0;
        unit += 1;
    }
    let digits = if unit == 0 || v >= 99.95 { 0 } else { 1 + (v < 9.995) as usize };
    format!("{v:.digits$} {}", UNITS[unit])
}

/// A UUID in its usual form, with or without dashes.
pub fn uuid(text: &str) -> Result<[u8; 16], String> {
    let bad = || format!("{text}: not a UUID such as 01234567-89ab-cdef-0123-456789abcdef");
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    let dashes: Vec<usize> = text.match_indices('-').map(|(i, _)| i).collect();
    if digits.len() != 32 || !(dashes.is_empty() || dashes == [8, 13, 18, 23]) {
        return Err(bad());
    }
    let mut out = [0; 16];
    for (byte, pair) in out.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| bad())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| bad())?;
    }
    Ok(out)
}

/// A time in UTC: `2024-02-29 12:00:00`, with nanoseconds if `full`.
pub fn time(t: Timespec, full: bool) -> String {
    let days = t.secs.div_euclid(86_400);
    let second = t.secs.rem_euclid(86_400);
    let (y, m, d) = date(days);
    let (h, min, s) = (second / 3600, second / 60 % 60, second % 60);
    if full {
        format!("{y:04}-{m:02}-{d:02} {h:02}:{min:02}:{s:02}.{:09}", t.nanos)
    } else {
        format!("{y:04}-{m:02}-{d:02} {h:02}:{min:02}")
    }
}

/// A time to the second, as RFC 3339 writes it, in UTC. Years of more than four digits, which RFC 3339 does not know,
/// keep them.
pub fn rfc3339(t: Timespec) -> String {
    let whole = rfc3339_nanos(t);
    whole.split('.').next().unwrap_or_default().to_string() + "Z"
}

/// A time to the nanosecond, as RFC 3339 writes it, in UTC.
pub fn rfc3339_nanos(t: Timespec) -> String {
    time(t, true).replacen(' ', "T", 1) + "Z"
}

/// Year, month and day of a number of days since 1970 (Gregorian). Eras of 400 years begin on 1 March.
fn date(days: i64) -> (i64, i64, i64) {
    let z = days.saturating_add(719_468);
    let era = z.div_euclid(146_097);
    let day = z.rem_euclid(146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let d = of_year - (153 * month + 2) / 5 + 1;
    let m = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + (m <= 2) as i64, m, d)
}

/// The days from 1970 to a date (Gregorian).
fn days(year: i64, month: i64, day: i64) -> i64 {
    // Years that begin on 1 March, so that the leap day is the last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * m + 2) / 5 + day - 1;
    365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + of_year - 719_468
}

/// Reads a time in UTC: `2024-02-29`, `2024-02-29 12:00`, `2024-02-29T12:00:00.5Z`, or `@SECONDS` since 1970.
///
/// # Errors
/// A description of the expected value.
pub fn point_in_time(text: &str) -> Result<Timespec, String> {
    let read = match text.strip_prefix('@') {
        Some(seconds) => since_1970(seconds),
        None => date_and_time(text),
    };
    read.ok_or_else(|| format!("{text}: not a time such as 2024-02-29T12:00:00 (UTC) or @1709208000"))
}

fn since_1970(text: &str) -> Option<Timespec> {
    let (secs, nanos) = match text.split_once('.') {
        Some((secs, fraction)) => (secs, fraction_of_second(fraction)?),
        None => (text, 0),
    };
    let whole: i64 = secs.parse().ok()?;
    // Nanoseconds count forwards also before 1970.
    let back = secs.starts_with('-') && nanos > 0;
    Some(Timespec {
        secs: whole.checked_sub(back.into())?,
        nanos: if back { 1_000_000_000 - nanos } else { nanos },
    })
}

fn date_and_time(text: &str) -> Option<Timespec> {
    let text = text.strip_suffix('Z').or_else(|| text.strip_suffix(" UTC")).unwrap_or(text);
    let (date_text, clock) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let number = |t: &str| t.parse::<i64>().ok().filter(|_| t.bytes().all(|c| c.is_ascii_digit()));
    let [year, month, day] = numbers(date_text.split('-').map(number))?;
    let (clock, nanos) = match clock.split_once('.') {
        Some((clock, fraction)) => (clock, fraction_of_second(fraction)?),
        None => (clock, 0),
    };
    let seconds = if clock.matches(':').count() == 1 { Some(Some(0)) } else { None };
    let [h, min, s] = numbers(clock.split(':').map(number).chain(seconds))?;
    let at = days(year, month, day);
    // A day that the month does not have comes back as another date.
    let is_real = (1..=12).contains(&month) && date(at) == (year, month, day) && h < 24 && min < 60 && s < 60;
    is_real.then(|| Timespec { secs: at * 86_400 + h * 3600 + min * 60 + s, nanos })
}

fn numbers(mut parts: impl Iterator<Item = Option<i64>>) -> Option<[i64; 3]> {
    let three = [parts.next()??, parts.next()??, parts.next()??];
    if parts.next().is_none() && three.iter().all(|n| *n < 1_000_000) { Some(three) } else { None }
}

/// Nanoseconds of the digits behind the point.
fn fraction_of_second(digits: &str) -> Option<u32> {
    let is_number = !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit());
    is_number.then(|| format!("{digits:0<9}")[..9].parse().ok()).flatten()
}

/// Reads a user and a group, such as 1000:1000.
///
/// # Errors
/// A description of the expected value.
pub fn owner(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once(':').and_then(|(u, g)| Some((u.parse().ok()?, g.parse().ok()?)));
    numbers.ok_or_else(|| format!("{text}: not numbers of a user and a group, such as 1000:1000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_three_digits() {
        let shown = [0, 7, 999, 1000, 9_994, 9_996, 12_345, 999_600, 1_500_000_000, 5_000_000_000_000];
        let want = [
            "0 ns", "7 ns", "999 ns", "1.00 µs", "9.99 µs", "10.0 µs", "12.3 µs", "1.00 ms", "1.50 s",
            "5000 s",
        ];
        assert_eq!(shown.map(duration), want);
    }

    /// Each time is read by date(1), too.
    #[test]
    fn times_are_those_of_date() {
        let texts = [
            "1970-01-01",
            "2024-02-29 12:34",
            "2024-02-29T12:34:56",
            "2000-02-29T23:59:59Z",
            "1969-12-31 23:59:59 UTC",
            "1900-03-01",
            "2100-02-28",
            "0001-01-01",
            "9999-12-31T23:59:59",
            "@0",
            "@1709208000",
            "@-1",
        ];
        for text in texts {
            let out = std::process::Command::new("date").args(["-u", "-d", text, "+%s"]).output().unwrap();
            let theirs: i64 = String::from_utf8(out.stdout).unwrap().trim().parse().unwrap();
            assert_eq!(point_in_time(text), Ok(Timespec { secs: theirs, nanos: 0 }), "{text}");
        }
        let exact = |secs, nanos| Ok(Timespec { secs, nanos });
        assert_eq!(point_in_time("1970-01-01T00:00:01.5Z"), exact(1, 500_000_000));
        assert_eq!(point_in_time("@-1.25"), exact(-2, 750_000_000));
        assert_eq!(point_in_time("@5.000000001"), exact(5, 1));
        let t = Timespec { secs: 1_709_208_000, nanos: 123_456_789 };
        assert_eq!(point_in_time(&time(t, true)), Ok(t));
        assert_eq!(point_in_time(&rfc3339_nanos(t)), Ok(t));
        for text in [
            "",
            "@",
            "now",
            "2023-02-29",
            "2024-13-01",
            "2024-00-01",
            "2024-01-01T24:00",
            "2024-01",
            "-1-01-01",
            "@1.x",
            "2024-9223372036854775807-01",
        ] {
            assert!(point_in_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, want) in [
            ("4096", 4096),
            ("64M", 64 << 20),
            ("64MiB", 64 << 20),
            ("1g", 1 << 30),
            ("1.5T", 3 << 39),
            ("0.5k", 512),
            ("16T", 16 << 40),
            ("100b", 100),
        ] {
            assert_eq!(size(text), Ok(want), "{text}");
        }
        for bad in ["", "M", "1X", "-1", "1.2.3M", "0", "99999999P", "1e3", "."] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!([size_or_0("0"), size_or_0("0K"), size_or_0("2k")], [Ok(0), Ok(0), Ok(2048)]);
        assert_eq!([0, 100, 1536, 64 << 20].map(short), ["0", "100", "1.5K", "64M"]);
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1536), bytes(64 << 20)],
            ["0 B", "1023 B", "1.5 KiB", "64 MiB"]
        );
    }

    #[test]
    fn uuids() {
        let text = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(uuid_text(&uuid(text).unwrap()), text);
        assert_eq!(uuid(&text.replace('-', "")), uuid(text));
        for bad in ["", "0123", &text[1..], &text.replace('a', "g"), "0-1234567-89ab-cdef-0123-456789abcdef"]
        {
            assert!(uuid(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times() {
        let t = |secs| time(Timespec { secs, nanos: 5 }, false);
        assert_eq!(t(0), "1970-01-01 00:00");
        assert_eq!(t(-1), "1969-12-31 23:59");
        assert_eq!(t(951_782_400), "2000-02-29 00:00");
        assert_eq!(t(4_102_444_799), "2099-12-31 23:59");
        assert_eq!(time(Timespec { secs: 1, nanos: 5 }, true), "1970-01-01 00:00:01.000000005");
        assert_eq!(rfc3339(Timespec { secs: 951_782_401, nanos: 5 }), "2000-02-29T00:00:01Z");
        assert_eq!(rfc3339_nanos(Timespec { secs: 1, nanos: 5 }), "1970-01-01T00:00:01.000000005Z");
        assert_eq!(rfc3339(Timespec { secs: 253_402_300_800, nanos: 0 }), "10000-01-01T00:00:00Z");
        assert_eq!(rfc3339_nanos(Timespec { secs: -1, nanos: 1 }), "1969-12-31T23:59:59.000000001Z");
    }
}
