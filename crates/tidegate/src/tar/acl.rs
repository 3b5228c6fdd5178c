//! ACLs in the text form of tar, and in the user-space form of files.

/// Tags of entries in the binary form.
const TAGS: [(&str, &str, u16, u16); 4] = [
    ("user", "u", 0x01, 0x02),
    ("group", "g", 0x04, 0x08),
    ("mask", "m", 0x10, 0x10),
    ("other", "o", 0x20, 0x20),
];
const UNDEFINED: u32 = u32::MAX;
/// The first field of the binary form.
const VERSION: u32 = 2;

/// The value of `system.posix_acl_*` for a text such as `user::rw-,user:1000:r--,mask::r--`. `None` when the
/// text cannot be converted, as with a user known only by name.
pub fn from_text(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut entries = Vec::new();
    for part in text.split([',', '\n']) {
        let part = part.split('#').next().unwrap_or("").trim();
        if !part.is_empty() {
            entries.push(entry(part)?);
        }
    }
    entries.sort();
    let mut out = VERSION.to_le_bytes().to_vec();
    for (tag, id, perm) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&perm.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    Some(out)
}

fn entry(part: &str) -> Option<(u16, u32, u16)> {
    let part = part.strip_prefix("default:").unwrap_or(part);
    let fields: Vec<&str> = part.split(':').collect();
    let (_, _, own, named) = TAGS.into_iter().find(|t| t.0 == fields[0] || t.1 == fields[0])?;
    // Two fields are a form such as `mask:r--`, which some programs write.
    let (who, perm) = match fields[..] {
        [_, perm] => ("", perm),
        [_, who, perm, ..] => (who, perm),
        _ => return None,
    };
    let mut bits = 0;
    for c in perm.trim().chars() {
        bits |= match c {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            '-' => 0,
            _ => return None,
        };
    }
    if who.is_empty() {
        return Some((own, UNDEFINED, bits));
    }
    // A fourth field is the number of a user that is given by name.
    let id = who.parse().ok().or_else(|| fields.get(3)?.parse().ok())?;
    Some((named, id, bits))
}

/// The text, with numbers, of a value of `system.posix_acl_*`. `None` when the value is malformed.
pub fn to_text(value: &[u8]) -> Option<Vec<u8>> {
    let (version, entries) = value.split_first_chunk::<4>()?;
    let (entries, rest) = entries.as_chunks::<8>();
    if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
        return None;
    }
    let mut out = String::new();
    for &[t0, t1, p0, p1, i0, i1, i2, i3] in entries {
        let (tag, perm) = (u16::from_le_bytes([t0, t1]), u16::from_le_bytes([p0, p1]));
        let id = u32::from_le_bytes([i0, i1, i2, i3]);
        let &(name, _, own, _) = TAGS.iter().find(|t| tag == t.2 || tag == t.3)?;
        let who = if tag == own { String::new() } else { id.to_string() };
        let bit = |bit, c| if perm & bit != 0 { c } else { '-' };
        out.push_str(&format!("{name}:{who}:{}{}{}\n", bit(4, 'r'), bit(2, 'w'), bit(1, 'x')));
    }
    Some(out.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_become_the_text_that_they_come_from() {
        let text = b"user::rw-\nuser:1000:r-x\ngroup::r--\ngroup:7:--x\nmask::rwx\nother::---\n";
        let v = from_text(text).unwrap();
        assert_eq!(to_text(&v).unwrap(), text);
        assert_eq!(to_text(&v[..v.len() - 1]), None);
        assert_eq!(to_text(b"\x03\0\0\0"), None);
    }

    #[test]
    fn text_becomes_sorted_entries() {
        let v = from_text(b"user::rw-,other::---,user:1000:r-x,group::r--,mask::rwx").unwrap();
        assert_eq!(v.len(), 4 + 5 * 8);
        assert_eq!(v[..4], 2u32.to_le_bytes());
        let tags: Vec<u16> = v[4..].chunks(8).map(|e| u16::from_le_bytes([e[0], e[1]])).collect();
        assert_eq!(tags, [1, 2, 4, 0x10, 0x20]);
        assert_eq!(v[12..20], [2, 0, 5, 0, 0xe8, 3, 0, 0]);
        assert_eq!(
            from_text(b"user::rw-\nuser:joe:r--:7\ngroup::r--\nother::r--\n").unwrap()[16..20],
            [7, 0, 0, 0]
        );
        assert_eq!(from_text(b"user:joe:r--"), None);
        assert_eq!(from_text(b"nobody::r--"), None);
    }
}
