//! One round of repair: it looks at everything from the root, and writes its changes.

use super::claim::{Ssa, Usage};
use super::disk::Disk;
use super::map::NatTable;
use super::pack::Pack;
use super::*;

impl<'q, 'c> Repair<'q, 'c> {
    pub(super) fn load(
        queue: &'q RequestQueue,
        options: RepairOptions,
        on_change: OnChange<'c>,
    ) -> Result<Self> {
        let (sb, _) = pack::superblock(queue)?;
        let zones = Zones::load(queue, &sb)?;
        let disk = Disk::new(queue);
        let cp = pack::checkpoint(&disk, &sb)?;
        let pack = Pack::load(&disk, &sb, &cp)?;
        let nat = NatTable::load(&disk, &sb, &cp, &pack)?;
        let sit = map::load_sit(&disk, &sb, &cp, &pack)?;
        let main = sb.main_segments as u64 * BLOCKS_PER_SEG as u64;
        let extra = if sb.features.contains(Features::EXTRA_ATTR) { EXTRA_ISIZE } else { 0 };
        let nids = || Bits::new(sb.max_nid as u64);
        let usage = Usage::new(sb.main_segments);
        let mut r = Repair {
            sit,
            nat,
            nat_addrs: Bits::new(main),
            referred: Bits::new(main),
            keeps_ssa: false,
            logs: pack.logs,
            summaries: pack.summaries,
            ssa: Ssa::default(),
            usage,
            zones,
            orphans: pack.orphans,
            lost: None,
            reached: nids(),
            is_inode: nids(),
            is_dir: nids(),
            links: HashMap::default(),
            stack: Vec::new(),
            inserts: Vec::new(),
            no_first_block: Vec::new(),
            lost_found: None,
            full_lost_founds: 0,
            usual: Areas { extra, words: DEFAULT_INLINE_XATTR_ADDRS },
            options,
            on_change,
            changes: 0,
            notes: Vec::new(),
            disk,
            sb,
            cp,
        };
        let mut from = 0;
        while let Some((nid, e)) = r.nat.next_used(from) {
            from = nid + 1;
            if map::in_main(&r.sb, e.block_addr.get()) {
                r.nat_addrs.set(e.block_addr.get() - r.sb.main_blkaddr);
                r.referred.set(e.block_addr.get() - r.sb.main_blkaddr);
            }
        }
        r.keeps_ssa = r.follow_chain()?;
        for c in pack.changes {
            r.tell(c);
        }
        Ok(r)
    }

    /// Repairs everything and writes the changes. `clear_flags`: the check found nothing, so the flags of an
    /// earlier error are cleared.
    pub(super) fn run(&mut self, clear_flags: bool) -> Result<()> {
        self.mend_root()?;
        self.mend_dirs()?;
        self.adopt_lost()?;
        self.free_unreached();
        self.mend_links()?;
        self.mend_logs(true)?;
        self.tell_maps();
        self.insert_all()?;
        let hurt = self.cp.flags & finish::HURT;
        if clear_flags && !hurt.is_empty() {
            self.change("checkpoint", "flags".into(), format!("{hurt:?}"), "none".into());
        }
        self.commit(clear_flags)
    }

    /// Repairs the root directory, which cannot be replaced.
    fn mend_root(&mut self) -> Result<()> {
        let root = self.sb.root_ino;
        if let Some((_, block)) = self.find_node(root, root, 0)?
            && let Ok(a) = Areas::of(&self.sb, &block)
        {
            self.usual = a;
        }
        let found = self.take_inode(root, file_type::DIR)?;
        let Some(i) = found.filter(|i| i.kind == inode::Kind::Directory) else {
            return Err(Error::corrupt("the root directory's inode is gone: nothing was changed"));
        };
        self.keep(i);
        self.stack.push((root, root));
        Ok(())
    }

    /// Notes the blocks that the chain of fsynced nodes behind the checkpoint refers to; true if there is a
    /// chain.
    fn follow_chain(&mut self) -> Result<bool> {
        let (mut at, stamp) = (self.cp.chain_start(&self.sb), self.cp.node_stamp());
        let (mut met, mut any) = (HashSet::default(), false);
        while self.sb.in_main(at) && !self.is_lost(at.0) && met.insert(at) {
            let block = self.disk.block(at.0)?;
            let footer = RawNodeFooter::of(&block[..]);
            if !stamp.is_on(footer.cp_ver.get()) {
                break;
            }
            any = true;
            // Each word that may be an address counts: a block too many does no harm.
            let words = (0..FOOTER_OFFSET / 4).map(|n| word(&block[..], n));
            for addr in words.chain([at.0]).filter(|a| map::in_main(&self.sb, *a)) {
                self.referred.set(addr - self.sb.main_blkaddr);
            }
            at = BlockAddr(footer.next_blkaddr.get());
        }
        Ok(any)
    }
}
