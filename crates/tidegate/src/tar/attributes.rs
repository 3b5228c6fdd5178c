//! Extended attributes for which tar has special records, with text as the value. `tar --acls` and `tar --selinux` read
//! and write no other records.

use super::acl;
use crate::node::Xattr;

/// An attribute and the record for its text.
struct Kind {
    xattr: &'static [u8],
    key: &'static [u8],
    to_text: fn(&[u8]) -> Option<Vec<u8>>,
    from_text: fn(&[u8]) -> Option<Vec<u8>>,
}

const KINDS: [Kind; 3] = [
    Kind {
        xattr: b"system.posix_acl_access",
        key: b"SCHILY.acl.access",
        to_text: acl::to_text,
        from_text: acl::from_text,
    },
    Kind {
        xattr: b"system.posix_acl_default",
        key: b"SCHILY.acl.default",
        to_text: acl::to_text,
        from_text: acl::from_text,
    },
    Kind {
        xattr: b"security.selinux",
        key: b"RHT.security.selinux",
        // The attribute ends with a NUL, the record does not.
        to_text: |value| Some(value.strip_suffix(b"\0").unwrap_or(value).to_vec()),
        from_text: |text| Some([text.strip_suffix(b"\0").unwrap_or(text), b"\0"].concat()),
    },
];

/// The key and text of the special record of an attribute, which stands beside the record of its name and
/// bytes.
pub fn to_text((name, value): &Xattr) -> Option<(&'static [u8], Vec<u8>)> {
    let kind = KINDS.iter().find(|k| k.xattr == name)?;
    Some((kind.key, (kind.to_text)(value)?))
}

/// Whether `key` is that of such a record.
pub fn is_text(key: &[u8]) -> bool {
    KINDS.iter().any(|k| k.key == key)
}

/// The attribute of a record. Without a value where the text cannot be converted, as with users known only by name.
pub fn from_text(key: &[u8], text: &[u8]) -> Option<(&'static [u8], Option<Vec<u8>>)> {
    let kind = KINDS.iter().find(|k| k.key == key)?;
    Some((kind.xattr, (kind.from_text)(text)))
}
