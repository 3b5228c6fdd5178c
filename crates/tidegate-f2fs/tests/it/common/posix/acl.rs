//! POSIX.1e access control lists as Linux applies them, implemented independently.

use tidegate_vfs::Cred;

pub const ACCESS: &[u8] = b"system.posix_acl_access";
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;

/// Tag, permissions, id.
pub type Entry = (u16, u16, u32);

/// The attribute's value, version 2.
pub fn encode(list: &[Entry]) -> Vec<u8> {
    let mut out = vec![2, 0, 0, 0];
    for &(tag, perm, id) in list {
        out.extend(tag.to_le_bytes());
        out.extend(perm.to_le_bytes());
        out.extend(id.to_le_bytes());
    }
    out
}

pub fn decode(value: &[u8]) -> Vec<Entry> {
    let half = |b: &[u8]| u16::from_le_bytes([b[0], b[1]]);
    value[4..]
        .chunks_exact(8)
        .map(|e| (half(e), half(&e[2..]), u32::from_le_bytes([e[4], e[5], e[6], e[7]])))
        .collect()
}

/// A few well-formed lists, chosen by number.
pub fn sample(n: u8) -> Vec<Entry> {
    let perm = |shift: u8| u16::from(n >> shift & 7);
    let none = u32::MAX;
    match n % 5 {
        0 => vec![(USER_OBJ, perm(2), none), (GROUP_OBJ, perm(4), none), (OTHER, perm(3), none)],
        1 => vec![
            (USER_OBJ, 7, none),
            (USER, perm(3), 1000),
            (GROUP_OBJ, perm(1), none),
            (MASK, perm(2), none),
            (OTHER, perm(4), none),
        ],
        2 => vec![
            (USER_OBJ, 6, none),
            (GROUP_OBJ, perm(2), none),
            (GROUP, 7, 2000),
            (MASK, 7, none),
            (OTHER, 0, none),
        ],
        3 => vec![
            (USER_OBJ, 7, none),
            (USER, 7, 1000),
            (USER, perm(1), 1001),
            (GROUP_OBJ, 5, none),
            (GROUP, perm(3), 1001),
            (MASK, perm(4), none),
            (OTHER, 5, none),
        ],
        _ => vec![(USER_OBJ, 7, none), (GROUP_OBJ, 7, none), (MASK, perm(2), none), (OTHER, perm(3), none)],
    }
}

fn perm_of(list: &[Entry], tag: u16) -> Option<u16> {
    list.iter().find(|e| e.0 == tag).map(|e| e.1)
}

/// The permission bits that the list stands for.
pub fn mode(list: &[Entry]) -> u32 {
    let group = perm_of(list, MASK).or(perm_of(list, GROUP_OBJ)).unwrap_or(0);
    let bits = |tag| u32::from(perm_of(list, tag).unwrap_or(0));
    bits(USER_OBJ) << 6 | u32::from(group) << 3 | bits(OTHER)
}

/// Whether the list says no more than permission bits can.
pub fn is_trivial(list: &[Entry]) -> bool {
    list.iter().all(|e| matches!(e.0, USER_OBJ | GROUP_OBJ | OTHER))
}

fn bits_for(list: &[Entry], tag: u16, mode: u32) -> Option<u16> {
    let has_mask = perm_of(list, MASK).is_some();
    let bits = match tag {
        USER_OBJ => mode >> 6,
        MASK => mode >> 3,
        GROUP_OBJ if !has_mask => mode >> 3,
        OTHER => mode,
        _ => return None,
    };
    Some(bits as u16 & 7)
}

/// The list after a chmod.
pub fn chmod(list: &[Entry], mode: u32) -> Vec<Entry> {
    list.iter().map(|&(t, p, i)| (t, bits_for(list, t, mode).unwrap_or(p), i)).collect()
}

/// The list that a new inode of `mode` gets from a directory's default list.
pub fn inherit(list: &[Entry], mode: u32) -> Vec<Entry> {
    list.iter().map(|&(t, p, i)| (t, bits_for(list, t, mode).map_or(p, |b| p & b), i)).collect()
}

/// Whether a user other than the owner may do `want`. Of several matching group entries one must allow all of
/// it.
pub fn permits(list: &[Entry], cred: &Cred, gid: u32, want: u32) -> bool {
    let mask = u32::from(perm_of(list, MASK).unwrap_or(7));
    let grants = |perm: u16, mask: u32| u32::from(perm) & mask & want == want;
    if let Some(e) = list.iter().find(|e| e.0 == USER && e.2 == cred.uid) {
        return grants(e.1, mask);
    }
    let in_group = |g: u32| cred.gid == g || cred.groups.contains(&g);
    let mut mine =
        list.iter().filter(|e| e.0 == GROUP_OBJ && in_group(gid) || e.0 == GROUP && in_group(e.2)).peekable();
    if mine.peek().is_some() {
        return mine.any(|e| grants(e.1, mask));
    }
    grants(perm_of(list, OTHER).unwrap_or(0), 7)
}
