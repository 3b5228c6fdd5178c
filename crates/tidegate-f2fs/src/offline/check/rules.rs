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
    SB_COPY "sb-copy" "Both copies of the superblock are valid and hold the same bytes.";
    CP_PACK "cp-pack" "The pack in use holds its summaries, orphans and journals in well-formed blocks.";
    CP_NEWEST "cp-newest" "The newest checkpoint that was written to its end says what can be.";
    CHAIN "fsync-chain" "The chain of fsynced nodes behind the checkpoint ends, and names nodes that can be.";
    CP_ORPHAN "cp-orphan" "Orphan blocks carry a matching checksum, a sane count and known inode numbers.";
    CP_JOURNAL "cp-journal" "NAT and SIT journals hold no more entries than fit, each for a number that exists, once.";
    CP_CURSEG "cp-curseg" "A log's next block is free, and so is all behind it when the log appends.";
    CP_CURSEG_TYPE "cp-curseg-type" "The SIT gives a log's segment the log's own type.";
    CP_BLOCKS "cp-valid-block-count" "The checkpoint counts the blocks that are in use or reserved.";
    CP_NODES "cp-valid-node-count" "The checkpoint counts the nodes that are in use.";
    CP_INODES "cp-valid-inode-count" "The checkpoint counts the inodes that are in use.";
    CP_FREE_SEGS "cp-free-segment-count" "The checkpoint counts the segments that are empty and not a log's.";
    NAT_BITS_KEY "nat-bits-key" "After a clean unmount nat_bits carry the checkpoint's version and checksum.";
    NAT_BITS "nat-bits" "nat_bits say rightly which NAT blocks are full and which are empty.";
    NAT_NONE "nat-none" "The NAT gives node 0, which no node is, no block.";
    NAT_RESERVED "nat-reserved" "The NAT gives the node inode and the meta inode to themselves, at block 1.";
    NAT_ADDRESS "nat-address" "A NAT entry points into the main area.";
    NAT_SHARED "nat-block-shared" "No two NAT entries point to one block.";
    NAT_UNREACHED "nat-unreached" "Every node in the NAT belongs to a file in the tree, an orphan or a quota file.";
    NAT_MISSING "nat-missing" "A node that something refers to has a NAT entry.";
    NAT_INO "nat-ino" "A NAT entry names the inode that the node belongs to.";
    NODE_FOOTER "node-footer" "A node's footer names the node and its inode.";
    NODE_OFFSET "node-offset" "A node's footer says where in its file's tree the node stands.";
    NODE_NID "node-nid" "Node numbers in inodes and indirect nodes exist and are not reserved.";
    NODE_SHARED "node-shared" "A node has one place in one file.";
    INODE_MODE "inode-mode" "An inode's mode is of a known file type.";
    INODE_CHECKSUM "inode-checksum" "An inode's checksum matches, where the volume has them.";
    INODE_EXTRA "inode-extra" "Extra attributes and the inline xattr area fit into the inode.";
    INODE_INLINE "inode-inline" "Inline flags fit the file type, and a file with inline content has no blocks.";
    INODE_RESERVED "inode-reserved" "The word before inline content is 0.";
    INODE_XATTR_SIZE "inode-xattr-size" "An inode with inline xattrs says how large their area is, where sizes differ.";
    INODE_COMPRESSED "inode-compressed" "Inodes are compressed only where the volume has that feature.";
    INODE_CASEFOLD "inode-casefold" "Only directories ignore case, and only where the volume has that feature.";
    INODE_SIZE "inode-size" "The size fits the file type, the inline area and the blocks.";
    LINK_TARGET "inode-link-target" "A symbolic link's target has i_size bytes, none of them zero.";
    INODE_BLOCKS "inode-blocks" "i_blocks counts the inode, its nodes and its blocks.";
    INODE_EXTENT "inode-extent" "i_ext agrees with the block addresses of the file.";
    INODE_NAMELEN "inode-namelen" "i_namelen is at most 255.";
    LINK_COUNT "link-count" "The link count is the number of names; of a directory 2 and its subdirectories.";
    ORPHAN_LINKED "orphan-linked" "An orphan has no name in the tree.";
    DIR_LINKED_TWICE "dir-linked-twice" "A directory has one name.";
    DIR_PARENT "dir-parent" "A directory's i_pino names the directory that holds it.";
    DIR_DOTS "dir-dots" "A directory begins with \".\" and \"..\", which name itself and its parent.";
    DIR_DEPTH "dir-depth" "i_current_depth and i_dir_level are in range and cover every level with entries.";
    DENTRY_BITMAP "dentry-bitmap" "The bitmap marks each slot of a name, and no entry runs over its block.";
    DENTRY_NAME "dentry-name" "A name has 1 to 255 bytes, none of them NUL or \"/\".";
    DENTRY_HASH "dentry-hash" "An entry's hash is the hash of its name.";
    DENTRY_BUCKET "dentry-bucket" "An entry lies in the bucket its hash chooses.";
    DENTRY_TYPE "dentry-type" "An entry's file type is that of its inode.";
    DENTRY_INO "dentry-ino" "An entry names an inode.";
    DENTRY_DUPLICATE "dentry-duplicate" "A directory holds a name once.";
    XATTR "xattr" "An xattr area has its magic; its entries end inside it, have names, each once; ACLs are well-formed.";
    DATA_ADDRESS "data-address" "A file's block addresses point into the main area.";
    DATA_SHARED "block-shared" "A block has one owner.";
    SUM_OWNER "summary-owner" "A block's summary names its owner: node, place in the node, version.";
    SUM_TYPE "summary-type" "A segment's summary is of the kind of its blocks.";
    SIT_ENTRY "sit-entry" "A SIT entry's type is known and its count is that of its bitmap.";
    SIT_MAP "sit-valid-map" "The SIT marks those blocks that are in use, and no others.";
    SIT_TYPE "sit-type" "Node segments hold nodes and data segments data.";
}
