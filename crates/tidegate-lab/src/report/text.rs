//! Text: escaping, and numbers as people read them.

/// `s`, made safe between tags and within quoted attributes. Characters that XML does not allow become
/// U+FFFD.
pub fn esc(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && !matches!(c, '\n' | '\t') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Three significant digits; from 10,000 on with separated thousands.
pub fn num(x: f64) -> String {
    if !x.is_finite() {
        return "–".into();
    }
    let a = x.abs();
    if a >= 99.95 {
        return grouped(x.round());
    }
    let digits = match a {
        a if a >= 9.995 => 1,
        a if a >= 0.9995 => 2,
        a if a >= 0.09995 => 3,
        a if a >= 0.009995 => 4,
        0.0 => 0,
        _ => return format!("{x:.2e}"),
    };
    trimmed(format!("{x:.digits$}"))
}

/// A count; from 10,000 on with separated thousands.
pub fn count(n: u64) -> String {
    grouped(n as f64)
}

fn grouped(x: f64) -> String {
    let plain = format!("{x:.0}");
    if x.abs() < 10_000.0 {
        return plain;
    }
    let (sign, digits) = plain.strip_prefix('-').map_or(("", &*plain), |d| ("-", d));
    let mut out = String::from(sign);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

fn trimmed(s: String) -> String {
    match s.contains('.') {
        true => s.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => s,
    }
}

/// `x` in the largest of `units` (name, size) that it reaches.
fn scaled(x: f64, units: &[(&str, f64)]) -> String {
    let (unit, size) = units.iter().rev().find(|(_, size)| x.abs() >= *size).unwrap_or(&units[0]);
    format!("{}\u{a0}{unit}", num(x / size))
}

/// A time given in nanoseconds.
pub fn nanos(ns: f64) -> String {
    match ns {
        0.0 => "0".into(),
        _ => scaled(ns, &[("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)]),
    }
}

/// A size in bytes.
pub fn bytes(n: f64) -> String {
    match n {
        0.0 => "0".into(),
        _ => scaled(n, &[("B", 1.0), ("KiB", 1024.0), ("MiB", 1048576.0), ("GiB", 1073741824.0)]),
    }
}

/// A ratio.
pub fn times(x: f64) -> String {
    format!("{}×", num(x))
}

/// `s`, or its beginning and `…`, in at most `most` characters.
pub fn cut(s: &str, most: usize) -> String {
    if s.chars().count() <= most {
        return s.to_string();
    }
    s.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (x, s) in [(0.0, "0"), (52.44, "52.4"), (6.9, "6.9"), (0.1234, "0.123"), (1283.4, "1283")] {
            assert_eq!(num(x), s);
        }
        for (x, s) in [(1234567.0, "1,234,567"), (-10_000.0, "-10,000"), (f64::NAN, "–"), (99.96, "100")] {
            assert_eq!(num(x), s);
        }
        assert_eq!(nanos(1.5e6), "1.5\u{a0}ms");
        assert_eq!(bytes(524_288.0), "512\u{a0}KiB");
        assert_eq!(cut("abcdef", 4), "abc…");
    }

    #[test]
    fn nothing_gets_out_of_its_place() {
        assert_eq!(esc("<a b='\"'>&\u{1}"), "&lt;a b=&#39;&quot;&#39;&gt;&amp;\u{fffd}");
    }
}
