//! POSIX ACLs: in the user-space form, `posix_acl_xattr` version 2, and in the form that volumes keep.
//!
//! ext4 and F2FS keep one form: version 1, and an id only in entries that name a user or group.

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
/// Tag of the entry for all others.
pub const OTHER: u16 = 0x20;

/// The id of entries that name no user or group.
pub const NO_ID: u32 = u32::MAX;
const VERSION: u32 = 2;
const DISK_VERSION: u32 = 1;

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The class of users that the entry applies to.
    pub tag: u16,
    /// Permissions, 0 to 7.
    pub perm: u16,
    /// User or group, for entries that name one.
    pub id: u32,
}

impl Entry {
    fn names_somebody(&self) -> bool {
        matches!(self.tag, USER | GROUP)
    }

    /// Whether the tag and the permissions are valid.
    fn is_known(&self) -> bool {
        (self.names_somebody() || matches!(self.tag, USER_OBJ | GROUP_OBJ | MASK | OTHER)) && self.perm <= 7
    }
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
        entries.iter().all(Entry::is_known).then_some(Acl(entries))
    }

    /// Reads the form that volumes keep. `None` when it is malformed, or when [`Acl::parse`] would refuse its
    /// user-space form.
    pub fn from_disk(v: &[u8]) -> Option<Acl> {
        let (version, mut rest) = v.split_first_chunk::<4>()?;
        if u32::from_le_bytes(*version) != DISK_VERSION {
            return None;
        }
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let (head, mut tail) = rest.split_first_chunk::<4>()?;
            let (tag, perm) =
                (u16::from_le_bytes([head[0], head[1]]), u16::from_le_bytes([head[2], head[3]]));
            let mut entry = Entry { tag, perm, id: NO_ID };
            if entry.names_somebody() {
                let (id, behind) = tail.split_first_chunk::<4>()?;
                (entry.id, tail) = (u32::from_le_bytes(*id), behind);
            }
            entries.push(entry);
            rest = tail;
        }
        entries.iter().all(Entry::is_known).then_some(Acl(entries))
    }

    /// The form that volumes keep.
    pub fn to_disk(&self) -> Vec<u8> {
        let mut v = DISK_VERSION.to_le_bytes().to_vec();
        for e in &self.0 {
            v.extend(e.tag.to_le_bytes());
            v.extend(e.perm.to_le_bytes());
            if e.names_somebody() {
                v.extend(e.id.to_le_bytes());
            }
        }
        v
    }

    /// The user-space form.
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut v = VERSION.to_le_bytes().to_vec();
        for e in &self.0 {
            v.extend(e.tag.to_le_bytes());
            v.extend(e.perm.to_le_bytes());
            v.extend(if e.names_somebody() { e.id } else { NO_ID }.to_le_bytes());
        }
        v
    }

    fn perm(&self, tag: u16) -> Option<u16> {
        self.0.iter().find(|e| e.tag == tag).map(|e| e.perm)
    }

    /// Whether the entries are complete and in order: owner, named users, owning group, named groups, a mask
    /// if there are named entries, others.
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
        let named = self.0.iter().any(Entry::names_somebody);
        self.0.windows(2).all(|w| place(&w[0]) <= place(&w[1]))
            && [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|t| count(t) == 1)
            && count(MASK) <= 1
            && (!named || count(MASK) == 1)
            && self.0.iter().all(|e| !e.names_somebody() || e.id != NO_ID)
    }

    /// Whether `cred`, which is not the owner, may do all of `want`. Of the matching group entries, a single
    /// one must allow all of `want`.
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

    /// Whether the ACL says no more than permission bits do.
    pub fn is_trivial(&self) -> bool {
        self.0.iter().all(|e| matches!(e.tag, USER_OBJ | GROUP_OBJ | OTHER))
    }

    /// Restricts the ACL to the permission bits `mode`, as chmod and creation do.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_on_disk_are_as_long_as_their_tags_say() {
        let disk =
            [1, 0, 0, 0, 1, 0, 7, 0, 2, 0, 5, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0, 0x10, 0, 7, 0, 0x20, 0, 0, 0];
        let acl = Acl::from_disk(&disk).unwrap();
        assert!(acl.is_valid());
        assert_eq!(
            acl.0.iter().map(|e| (e.tag, e.perm)).collect::<Vec<_>>(),
            [(1, 7), (2, 5), (4, 4), (16, 7), (32, 0)]
        );
        assert_eq!(acl.0[1].id, 1000);
        assert_eq!(acl.to_disk(), disk);
        assert_eq!(Acl::parse(&acl.to_xattr()).as_ref(), Some(&acl));
        assert_eq!(Acl::from_disk(&disk[..14]), None);
        assert_eq!(Acl::from_disk(&disk[..3]), None);
    }

    #[test]
    fn a_list_that_user_space_would_refuse_is_none() {
        assert_eq!(Acl::from_disk(&[1, 0, 0, 0, 3, 0, 7, 0]), None, "an unknown tag");
        assert_eq!(Acl::from_disk(&[1, 0, 0, 0, 1, 0, 8, 0]), None, "unknown permissions");
        assert_eq!(Acl::from_disk(&[2, 0, 0, 0]), None, "another version");
    }
}
