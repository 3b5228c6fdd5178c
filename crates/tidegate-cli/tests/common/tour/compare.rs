//! The output of a command beside the output that a document shows.

/// Compares line by line.
///
/// # Errors
/// Lines of the document that the command did not print.
pub fn lines(expected: &[String], said: &[String]) -> Result<(), String> {
    let Some((first, rest)) = expected.split_first() else {
        return if said.is_empty() {
            Ok(())
        } else {
            Err(format!("it is to print nothing more, not: {}", said[0]))
        };
    };
    if first.trim() == "…" {
        let found = (0..=said.len()).find(|&n| lines(rest, &said[n..]).is_ok());
        return found.map(drop).ok_or_else(|| match rest.first() {
            Some(next) => format!("not found as it stands, with what is below it: {next}"),
            None => "nothing".into(),
        });
    }
    match said.split_first() {
        Some((line, others)) if like(first, line) => lines(rest, others),
        Some((line, _)) => Err(format!("the document has: {first}\nthe program has:  {line}")),
        None => Err(format!("it does not print: {first}")),
    }
}

/// Whether a line matches a pattern in which `…` matches anything.
fn like(pattern: &str, line: &str) -> bool {
    let (pattern, line) = (settled(pattern), settled(line));
    let mut parts = pattern.split('…');
    let Some(rest) = parts.next().and_then(|first| line.strip_prefix(first)) else { return false };
    let (mut rest, mut last) = (rest, "");
    let mut any = false;
    for part in parts {
        any = true;
        let Some(at) = rest.find(part) else { return false };
        (last, rest) = (part, &rest[at + part.len()..]);
    }
    rest.is_empty() || any && (last.is_empty() || line.ends_with(last))
}

/// Units of values that differ from run to run.
const UNITS: [&str; 4] = ["s", "ms", "µs", "ns"];

/// A line without values that differ from run to run: times, dates, rates, ratios and identities. Several blanks count
/// as one.
fn settled(line: &str) -> String {
    // A bracket is a separate word, so that its content is recognised.
    let apart = line.replace('(', "( ");
    let words: Vec<&str> = apart.split_whitespace().collect();
    let mut out: Vec<String> = Vec::new();
    let mut i = 0;
    while i < words.len() {
        let (core, tail) = split_tail(words[i]);
        let next = words.get(i + 1).map(|w| split_tail(w));
        let timed = |u: &str| UNITS.contains(&u) || u.ends_with("B/s");
        if let (true, Some((unit, end))) = (is_number(core), next.filter(|n| timed(n.0))) {
            let kind = if UNITS.contains(&unit) { "TIME" } else { "RATE" };
            out.push(format!("{kind}{end}"));
            i += 2;
            continue;
        }
        out.push(format!("{}{tail}", kind(core).unwrap_or(core)));
        i += 1;
    }
    out.join(" ")
}

/// The kind of a word that differs from run to run.
fn kind(word: &str) -> Option<&'static str> {
    let digits = |w: &str, more: &str| {
        w.starts_with(|c: char| c.is_ascii_digit())
            && w.chars().all(|c| c.is_ascii_digit() || more.contains(c))
    };
    let is_uuid = word.len() == 36 && word.matches('-').count() == 4;
    match word {
        w if is_uuid && w.chars().all(|c| c.is_ascii_hexdigit() || c == '-') => Some("UUID"),
        w if w.strip_suffix('×').is_some_and(is_number) => Some("RATIO"),
        w if w.split_once('–').is_some_and(|(a, b)| is_number(a) && is_number(b)) => Some("RANGE"),
        w if w.len() == 10 && digits(w, "-") => Some("DATE"),
        w if w.contains(':') && digits(w, ":.") => Some("CLOCK"),
        w if w.contains('.') && is_number(w) => Some("DECIMAL"),
        _ => None,
    }
}

fn is_number(word: &str) -> bool {
    word.parse::<f64>().is_ok_and(f64::is_finite) && word.starts_with(|c: char| c.is_ascii_digit())
}

/// A word and the punctuation that ends it.
fn split_tail(word: &str) -> (&str, &str) {
    let core = word.trim_end_matches([',', ';', ')']);
    word.split_at(core.len())
}

#[test]
fn what_differs_from_run_to_run_is_taken_as_said() {
    let same = |a: &str, b: &str| assert!(like(a, b), "{a}\n{b}");
    same("2 files in 0.13 s (23.4 MiB/s", "2 files in 11 ms (9 KiB/s");
    same("a 2026-11-24 23:57 b", "a  2027-01-02 00:00  b");
    same("uuid: 42cdb0bd-317f-43fa-ab09-d26edd102703", "uuid: a3c417ee-5c5f-40a3-9b5a-7362f02ef7b8");
    same("without / with   1.3×  1.29–1.31  1.42×  yes", "without / with 1.5× 1.4–1.6 1.42× yes");
    same("a … d", "a b c d");
    same("…/x.img: f2fs", "/tmp/y/x.img: f2fs");
    let differ = |a: &str, b: &str| assert!(!like(a, b), "{a}\n{b}");
    differ("2 files", "3 files");
    differ("size: 40 MiB", "size: 41 MiB");
    differ("1.3× yes", "1.3× no");
    differ("a … d", "a b c");
    differ("took 2 s", "took 2 MiB");
    let own = |text: &str| text.lines().map(str::to_string).collect::<Vec<_>>();
    assert!(lines(&own("a\n…\nc"), &own("a\nb\nb\nc")).is_ok() && lines(&own("a\n…"), &own("a")).is_ok());
    assert!(lines(&own("a\n…\nc"), &own("a\nb")).is_err() && lines(&own("a"), &own("a\nb")).is_err());
    assert!(lines(&own("a\nb"), &own("a")).is_err());
}
