//! ACLs: version 1, and no id in entries that name nobody.

use crate::format::raw::{ACL_VERSION, le16, le32};
use tidegate_vfs::acl::{self, Acl, Entry};

/// The form user space sees of the form that the volume keeps; `None` when that is malformed.
pub(super) fn from_disk(value: &[u8]) -> Option<Vec<u8>> {
    if value.len() < 4 || le32(value, 0) != ACL_VERSION {
        return None;
    }
    let (mut rest, mut entries) = (&value[4..], Vec::new());
    while !rest.is_empty() {
        let (tag, perm) = (le16(rest, 0), le16(rest, 2));
        let named = match tag {
            acl::USER | acl::GROUP => true,
            acl::USER_OBJ | acl::GROUP_OBJ | acl::MASK | acl::OTHER => false,
            _ => return None,
        };
        let len = if named { 8 } else { 4 };
        let id = if named { le32(rest, 4) } else { acl::NO_ID };
        rest = rest.get(len..)?;
        entries.push(Entry { tag, perm, id });
    }
    Some(Acl(entries).to_xattr())
}

/// The form that the volume keeps of the form user space sees; `None` when that is malformed.
pub(super) fn to_disk(value: &[u8]) -> Option<Vec<u8>> {
    let mut out = ACL_VERSION.to_le_bytes().to_vec();
    for e in Acl::parse(value)?.0 {
        out.extend(e.tag.to_le_bytes());
        out.extend(e.perm.to_le_bytes());
        if matches!(e.tag, acl::USER | acl::GROUP) {
            out.extend(e.id.to_le_bytes());
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_as_long_as_their_tags_say() {
        let disk =
            [1, 0, 0, 0, 1, 0, 7, 0, 2, 0, 5, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0, 0x10, 0, 7, 0, 0x20, 0, 0, 0];
        let acl = Acl::parse(&from_disk(&disk).unwrap()).unwrap();
        assert!(acl.is_valid());
        assert_eq!(
            acl.0.iter().map(|e| (e.tag, e.perm)).collect::<Vec<_>>(),
            [(1, 7), (2, 5), (4, 4), (16, 7), (32, 0)]
        );
        assert_eq!(acl.0[1].id, 1000);
        assert_eq!(to_disk(&acl.to_xattr()).unwrap(), disk);
        assert_eq!(from_disk(&disk[..14]), None);
        assert_eq!(from_disk(&disk[..3]), None);
    }
}
