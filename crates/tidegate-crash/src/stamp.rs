//! Content that identifies its origin: each 16 bytes of a written range name file, version and place.

/// Bytes in a stamp.
const STAMP: usize = 16;
/// Bytes in a page.
pub const PAGE: usize = 4096;

/// Fills `to` with the bytes at `pos` that operation `version` writes to file `file`.
pub fn fill(file: u32, version: u32, pos: u64, to: &mut [u8]) {
    let mut done = 0;
    while done < to.len() {
        let at = pos + done as u64;
        let stamp = stamp(file, version, at / STAMP as u64);
        let from = &stamp[(at % STAMP as u64) as usize..];
        let n = from.len().min(to.len() - done);
        to[done..done + n].copy_from_slice(&from[..n]);
        done += n;
    }
}

fn stamp(file: u32, version: u32, n: u64) -> [u8; STAMP] {
    let mut s = [0; STAMP];
    s[..4].copy_from_slice(&(file | MARK).to_le_bytes());
    s[4..8].copy_from_slice(&version.to_le_bytes());
    s[8..12].copy_from_slice(&(n as u32).to_le_bytes());
    s[12..].copy_from_slice(b"tide");
    s
}

/// Set in the file's number, so that no stamp begins with zeros.
const MARK: u32 = 0x5a00_0000;

/// Says in words what a page holds.
pub fn describe(bytes: &[u8]) -> String {
    let Some(at) = bytes.iter().position(|&b| b != 0) else { return "zeros".into() };
    let stamps = bytes.chunks_exact(STAMP).map(|s| {
        let word = |n: usize| u32::from_le_bytes([s[n], s[n + 1], s[n + 2], s[n + 3]]);
        (&s[12..] == b"tide").then(|| (word(0) & !MARK, word(4), word(8)))
    });
    let mut found: Vec<(u32, u32)> = Vec::new();
    let mut text = Vec::new();
    for (file, version, n) in stamps.flatten() {
        if !found.contains(&(file, version)) {
            found.push((file, version));
            text.push(format!("page {} of file {file} as of {version}", n as usize * STAMP / PAGE));
        }
    }
    match text.is_empty() {
        true => format!("unknown bytes from {at} on"),
        false => text.join(" and "),
    }
}

/// Bytes for names, values and targets of operation `version`: printable.
pub fn text(version: u32, len: usize) -> Vec<u8> {
    format!("v{version}.").bytes().cycle().take(len).collect()
}
