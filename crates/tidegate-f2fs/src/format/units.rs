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
    /// A 4 KiB block of the volume, counted from its first.
    BlockAddr(u32)
);
unit!(
    /// A node's number: an index into the NAT.
    Nid(u32)
);
unit!(
    /// A segment of the main area, counted from its first.
    SegNo(u32)
);

impl From<Nid> for tidegate_vfs::Ino {
    /// The number of the inode whose node this is, if it is an inode's node.
    fn from(nid: Nid) -> Self {
        tidegate_vfs::Ino(nid.0.into())
    }
}

impl Nid {
    /// The node, as the place of an error.
    pub fn place(self) -> tidegate_vfs::At {
        tidegate_vfs::At::Part("node", self.0.into())
    }
}

impl SegNo {
    /// No segment: the segment of a log that is closed.
    pub(crate) const NONE: SegNo = SegNo(u32::MAX);
}

impl BlockAddr {
    /// The block, as the place of an error.
    pub fn place(self) -> tidegate_vfs::At {
        tidegate_vfs::At::Block(self.0.into())
    }

    /// A hole: no block.
    pub const NULL: BlockAddr = BlockAddr(0);
    /// A reserved block that has no place yet.
    pub const NEW: BlockAddr = BlockAddr(u32::MAX);
    /// Marks a compressed cluster.
    pub const COMPRESS: BlockAddr = BlockAddr(u32::MAX - 1);

    /// Whether this is a place on the volume rather than one of the three marks.
    pub fn is_data(self) -> bool {
        self != Self::NULL && self < Self::COMPRESS
    }

    /// The block `n` further on.
    pub fn plus(self, n: u32) -> BlockAddr {
        BlockAddr(self.0 + n)
    }

    /// The block's first sector.
    pub fn sector(self) -> tidegate_block::Sector {
        tidegate_block::Sector(u64::from(self.0) * 8)
    }
}
