//! POSIX ACLs in the form user space sees: `posix_acl_xattr` version 2.

use crate::types::Cred;

/// Name of the access ACL.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of a directory's default ACL.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Tag of the owner's entry.
pub const USER_OBJ: u16 = 0x01;
/// Tag of a named user's entry.
pub const USER: u16 = 0x02;
/// Tag of the owning group's entry.
pub const GROUP_OBJ: u16 = 0x04;
/// Tag of a named group's entry.
pub const GROUP: u16 = 0x08;
/// Tag of the mask.
pub const MASK: u16 = 0x10;
/// Tag of everybody else's entry.
pub const OTHER: u16 = 0x20;

/// The id of entries that name nobody.
pub const NO_ID: u32 = u32::MAX;
const VERSION: u32 = 2;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The class of users that it is about.
    pub tag: u16,
    /// Permissions, 0 to 7.
    pub perm: u16,
    /// User or group, for entries that name one.
    pub id: u32,
}

/// A list of entries, in the order of their tags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(pub Vec<Entry>);

impl Acl {
    /// Reads the user-space form; `None` when it is malformed.
    pub fn parse(v: &[u8]) -> Option<Acl> {
        let (head, rest) = v.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*head) != VERSION || rest.len() % 8 != 0 {
            return None;
        }
        let entries: Vec<Entry> = rest
            .chunks_exact(8)
            .map(|e| Entry {
                tag: u16::from_le_bytes([e[0], e[1]]),
                perm: u16::from_le_bytes([e[2], e[3]]),
                id: u32::from_le_bytes([e[4], e[5], e[6], e[7]]),
            })
            .collect();
        let known = entries
            .iter()
            .all(|e| matches!(e.tag, USER_OBJ | USER | GROUP_OBJ | GROUP | MASK | OTHER) && e.perm <= 7);
        known.then_some(Acl(entries))
    }

    /// The user-space form.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut v = VERSION.to_le_bytes().to_vec();
        for e in &self.0 {
            v.extend(e.tag.to_le_bytes());
            v.extend(e.perm.to_le_bytes());
            v.extend(if matches!(e.tag, USER | GROUP) { e.id } else { NO_ID }.to_le_bytes());
        }
        v
    }

    fn perm(&self, tag: u16) -> Option<u16> {
        self.0.iter().find(|e| e.tag == tag).map(|e| e.perm)
    }

    /// Whether the entries are complete and in order: owner, named users, owning group, named groups, a
    /// mask if anybody is named, everybody else.
    pub fn is_valid(&self) -> bool {
        let place = |e: &Entry| match e.tag {
            USER_OBJ => 0,
            USER => 1,
            GROUP_OBJ => 2,
            GROUP => 3,
            MASK => 4,
            _ => 5,
        };
        let count = |tag| self.0.iter().filter(|e| e.tag == tag).count();
        let named = self.0.iter().any(|e| matches!(e.tag, USER | GROUP));
        self.0.windows(2).all(|w| place(&w[0]) <= place(&w[1]))
            && [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|t| count(t) == 1)
            && count(MASK) <= 1
            && (!named || count(MASK) == 1)
            && self.0.iter().all(|e| !matches!(e.tag, USER | GROUP) || e.id != NO_ID)
    }

    /// Whether somebody who is not the owner may do all of `want`. Of the group entries that match, one
    /// must allow all of it.
    pub fn allows(&self, cred: &Cred, gid: u32, want: u32) -> bool {
        let mask = self.perm(MASK).unwrap_or(7) as u32;
        let grants = |perm: u32| perm & want == want;
        if let Some(e) = self.0.iter().find(|e| e.tag == USER && e.id == cred.uid) {
            return grants(e.perm as u32 & mask);
        }
        let mine = |e: &&Entry| match e.tag {
            GROUP_OBJ => cred.in_group(gid),
            GROUP => cred.in_group(e.id),
            _ => false,
        };
        let mut groups = self.0.iter().filter(mine).peekable();
        if groups.peek().is_some() {
            return groups.any(|e| grants(e.perm as u32 & mask));
        }
        grants(self.perm(OTHER).unwrap_or(0) as u32)
    }

    /// The permission bits that this access ACL implies.
    pub fn mode(&self) -> u32 {
        let group = self.perm(MASK).or(self.perm(GROUP_OBJ)).unwrap_or(0);
        (self.perm(USER_OBJ).unwrap_or(0) as u32) << 6
            | (group as u32) << 3
            | self.perm(OTHER).unwrap_or(0) as u32
    }

    /// Whether it says no more than permission bits do.
    pub fn is_trivial(&self) -> bool {
        self.0.iter().all(|e| matches!(e.tag, USER_OBJ | GROUP_OBJ | OTHER))
    }

    /// Narrows it to the permission bits `mode`, as chmod and creation do.
    pub fn restrict(&mut self, mode: u32, keep: bool) {
        let has_mask = self.perm(MASK).is_some();
        for e in &mut self.0 {
            let bits = match e.tag {
                USER_OBJ => mode >> 6,
                MASK => mode >> 3,
                GROUP_OBJ if !has_mask => mode >> 3,
                OTHER => mode,
                _ => continue,
            } as u16
                & 7;
            e.perm = if keep { e.perm & bits } else { bits };
        }
    }
}
