//! Units as types: no bare number crosses a module.

use std::fmt;

/// A block of the journal, counted from its superblock, which is block 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogBlock(pub u32);

impl LogBlock {
    /// The block, as the place of an error.
    pub fn place(self) -> tidegate_vfs::At {
        tidegate_vfs::At::Part("journal, log block", self.0.into())
    }
}

/// A block of a device, counted from its first byte in units of the journal's block size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FsBlock(pub u64);

/// A transaction's number. It wraps, so numbers are compared by [`Tid::is_after`] and are not ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tid(pub u32);

impl Tid {
    /// The next number.
    pub fn next(self) -> Tid {
        Tid(self.0.wrapping_add(1))
    }

    /// The previous number.
    pub fn prev(self) -> Tid {
        Tid(self.0.wrapping_sub(1))
    }

    /// Whether this number is later than `other`: less than half of all numbers behind it.
    pub fn is_after(self, other: Tid) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }

    /// Whether this is `other` or later.
    pub fn reaches(self, other: Tid) -> bool {
        !other.is_after(self)
    }
}

macro_rules! shown {
    ($($t:ident)*) => { $(impl fmt::Display for $t {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.fmt(f)
        }
    })* };
}

shown!(LogBlock FsBlock Tid);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap() {
        let last = Tid(u32::MAX);
        assert_eq!((last.next(), Tid(0).prev()), (Tid(0), last));
        assert!(Tid(3).is_after(last) && !last.is_after(Tid(3)) && !last.is_after(last));
        assert!(last.reaches(last) && Tid(3).reaches(last) && !last.reaches(Tid(3)));
    }
}
