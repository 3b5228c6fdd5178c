//! Units as types: no bare number crosses a module.

/// Declares a number newtype with `Display`.
macro_rules! unit {
    ($(#[$m:meta])* $name:ident($t:ty)) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $t);
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
        impl From<$name> for u64 {
            fn from(n: $name) -> u64 {
                n.0.into()
            }
        }
    };
}

unit!(
    /// A block of the volume, counted from its first, in the volume's block size.
    BlockAddr(u64)
);
unit!(
    /// A block of a file, counted from its first, in the volume's block size.
    FileBlock(u64)
);
unit!(
    /// A block group, counted from the first.
    GroupNo(u32)
);

impl GroupNo {
    /// The group, as the place of an error.
    pub fn place(self) -> tidegate_vfs::At {
        tidegate_vfs::At::Part("group", self.0.into())
    }
}

impl BlockAddr {
    /// The block `n` further on.
    pub fn plus(self, n: u64) -> BlockAddr {
        BlockAddr(self.0 + n)
    }
}

impl BlockAddr {
    /// The block, as the place of an error.
    pub fn place(self) -> tidegate_vfs::At {
        tidegate_vfs::At::Block(self.0)
    }
}

impl FileBlock {
    /// The block of a file or directory, as the place of an error; the file comes first.
    pub fn place(self) -> tidegate_vfs::At {
        tidegate_vfs::At::Part("block", self.0)
    }

    /// The block `n` further on.
    pub fn plus(self, n: u64) -> FileBlock {
        FileBlock(self.0 + n)
    }
}
