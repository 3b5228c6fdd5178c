//! Every rule of the check: its stable name and its meaning.

/// Declares one constant for each rule, and the table of all.
macro_rules! rules {
    ($($id:ident $name:literal $text:literal;)*) => {
        $(#[doc = $text] pub(super) const $id: &str = $name;)*
        /// All rules: name and one sentence each.
        pub(super) const ALL: &[(&str, &str)] = &[$(($name, $text)),*];
    };
}

rules! {
    SB_STATE "sb-state" "The superblock says that the volume is valid and without errors.";
    SB_FLEX "sb-flex" "The superblock's s_log_groups_per_flex is at most 31.";
    SB_REVISION "sb-revision" "A volume of revision 0 names no features.";
    SB_LARGE_FILE "sb-large-file" "A volume with a file of 2 GiB or more has the feature large_file.";
    SB_FEATURES "sb-features" "Features fit each other, and what they keep: meta_bg without resize_inode, blocks for descriptors with it.";
    SB_CLUSTERS "sb-clusters" "Without bigalloc, a cluster is a block.";
    SB_RESERVED "sb-reserved-blocks" "At most half of the blocks are kept for the superuser.";
    SB_FREE_BLOCKS "sb-free-blocks" "The superblock of a clean volume counts the free blocks.";
    SB_FREE_INODES "sb-free-inodes" "The superblock of a clean volume counts the free inodes.";
    UNREAD "unread" "Each block of tables, maps, directories and attributes can be read.";
    GROUP_DESC "group-desc" "A group descriptor's checksum matches and its tables lie on the volume.";
    GROUP_OVERLAP "group-overlap" "Superblocks, descriptors, bitmaps and inode tables share no block.";
    GROUP_FREE_BLOCKS "group-free-blocks" "A group counts its free blocks.";
    GROUP_FREE_INODES "group-free-inodes" "A group counts its free inodes.";
    GROUP_DIRS "group-directories" "A group counts its directories.";
    BLOCK_BITMAP "block-bitmap" "The block bitmap marks those blocks that are in use, and no others.";
    INODE_BITMAP "inode-bitmap" "The inode bitmap marks those inodes that are in use, and no others.";
    BITMAP_PADDING "bitmap-padding" "Bits of bitmaps behind the last block or inode are set.";
    BITMAP_CHECKSUM "bitmap-checksum" "A bitmap's checksum matches the one in the descriptor.";
    JOURNAL "journal" "The journal's inode leads to a journal that can be read and recovered.";
    JOURNAL_FLAG "journal-flag" "A journal that holds something has needs_recovery set.";
    ORPHAN_LIST "orphan-list" "The list of orphans ends, and holds inodes that can be there, each once.";
    ORPHAN_FILE "orphan-file" "Blocks of the orphan file carry their magic and checksum, and known inode numbers.";
    SB_ORPHAN_FILE "sb-orphan-file" "A volume with orphan_file has a journal, and its superblock names the file's inode.";
    RESIZE_INODE "resize-inode" "The resize inode maps the blocks kept for group descriptors, and no others.";
    BAD_BLOCKS_INODE "bad-blocks-inode" "The inode of bad blocks has blocks, and no type, owner, link or attributes.";
    INODE_CHECKSUM "inode-checksum" "An inode's checksum matches.";
    INODE_MODE "inode-mode" "An inode in use is of a known file type.";
    INODE_EXTRA "inode-extra" "The extra fields of an inode end inside it.";
    INODE_FLAGS "inode-flags" "Flags fit the type and the volume's features.";
    INODE_UNUSED "inode-unused" "Fields of an inode that nothing uses are 0.";
    INODE_DTIME "inode-dtime" "An inode in use has no time of deletion, one that was freed has one, which is no inode's number.";
    INODE_TIMES "inode-times" "Times of an inode lie before the year 2310: later ones were meant to lie before 1970.";
    INODE_SIZE "inode-size" "The size fits the file type and the blocks.";
    INODE_BLOCKS "inode-blocks" "i_blocks counts the blocks of data, of the map and of attributes.";
    LINK_COUNT "link-count" "The link count is the number of names; of a directory 2 and its subdirectories.";
    LINK_TARGET "link-target" "A symbolic link's target has i_size bytes, none of them zero.";
    EXTENT_HEADER "extent-header" "A node of an extent tree has its magic, fitting counts, and one level less than its parent.";
    EXTENT_ORDER "extent-order" "Extents and index entries rise without overlap and begin where their parent says.";
    EXTENT_CHECKSUM "extent-checksum" "The checksum of a block of extents matches.";
    BLOCK_RANGE "block-range" "Blocks of a file lie on the volume.";
    BLOCK_SHARED "block-shared" "A block has one owner.";
    DIR_HOLE "dir-hole" "A directory has no holes.";
    DIR_DOTS "dir-dots" "A directory begins with \".\" and \"..\", which name itself and its parent, and end with a zero byte.";
    DIR_ENTRY "dir-entry" "Directory entries fill their block and hold names of 1 to 255 bytes without NUL or \"/\".";
    DIR_TAIL "dir-tail" "A directory block ends with a checksum that matches.";
    DIR_DUPLICATE "dir-duplicate" "A directory holds a name once.";
    DIR_INODE "dir-inode" "A directory entry names an inode in use that may have a name.";
    DIR_TYPE "dir-type" "A directory entry's file type is that of its inode.";
    DIR_LINKED_TWICE "dir-linked-twice" "A directory has one name.";
    DIR_UNREACHED "dir-unreached" "A way leads from the root to every directory.";
    HTREE "htree" "Nodes of a hash tree have sane counts and point to blocks of the directory, each once.";
    HTREE_CHECKSUM "htree-checksum" "The checksum of a hash tree's node matches.";
    HTREE_ORDER "htree-order" "Hashes rise in the tree, and names lie in the block that their hash chooses.";
    XATTR "xattr" "Extended attributes lie inside their area, with names.";
    XATTR_HASH "xattr-hash" "The hash of an attribute is that of its name and value.";
    XATTR_CHECKSUM "xattr-checksum" "The checksum of a block of attributes matches.";
    XATTR_REFCOUNT "xattr-refcount" "A block of attributes counts the inodes that use it.";
}
