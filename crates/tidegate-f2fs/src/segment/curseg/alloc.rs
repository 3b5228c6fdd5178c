//! Allocation of runs of blocks, and the moves of logs to other segments.

use super::*;

impl F2fs {
    /// Allocates up to `want` neighbouring blocks from `log`; `summary` gives the owner of the i-th block.
    /// Takes the log's `curseg_mutex`, then `sentry_lock`, once for the run.
    ///
    /// # Errors
    /// `NoSpace` when there is no segment to go to; nothing is allocated then.
    pub(crate) fn allocate(
        &self,
        log: Log,
        want: u32,
        summary: impl FnMut(u32) -> RawSummary,
    ) -> Result<Allocated> {
        self.close_streams_if_short()?;
        let log = LogId::from(log);
        self.allocate_locked(&mut self.cursegs.lock(log), log, Reserve::Checkpoint, want, summary)
    }

    /// Allocates up to `want` blocks from `log` in as few pieces as the log allows, with no other thread's
    /// blocks between. It leaves as many free segments as `whom` must leave. `summary` gives the owner of the
    /// i-th block.
    ///
    /// # Errors
    /// `NoSpace` when not even one block could be had.
    pub(crate) fn allocate_extents(
        &self,
        log: LogId,
        whom: Reserve,
        want: u32,
        mut summary: impl FnMut(u32) -> RawSummary,
    ) -> Result<Vec<Allocated>> {
        self.close_streams_if_short()?;
        let (mut log, mut c) = self.lock_with_room(log)?;
        let mut out: Vec<Allocated> = Vec::new();
        let mut done = 0;
        while done < want {
            if log.is_extra() && self.room(&c)? == 0 {
                // Free segments became short meanwhile.
                break;
            }
            match self.allocate_locked(&mut c, log, whom, want - done, |i| summary(done + i)) {
                Ok(a) => {
                    done += a.blocks;
                    match out.last_mut() {
                        // No bio spans two zones.
                        Some(last)
                            if last.log == log
                                && last.start.plus(last.blocks) == a.start
                                && !self.begins_zone(a.start) =>
                        {
                            last.blocks += a.blocks
                        }
                        _ => out.push(a),
                    }
                }
                // The blocks allocated so far must be written; the next allocation meets the error again.
                Err(_) if done > 0 => break,
                Err(e) if e.kind() == ErrorKind::NoSpace && log.is_extra() => {
                    // Free segments became short since the stream was opened; the log of its kind may fill
                    // holes instead.
                    self.close_stream(&mut c, log)?;
                    drop(c);
                    log = log.kind.into();
                    c = self.cursegs.lock(log);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(out)
    }

    fn allocate_locked(
        &self,
        c: &mut Curseg,
        log: LogId,
        whom: Reserve,
        want: u32,
        mut summary: impl FnMut(u32) -> RawSummary,
    ) -> Result<Allocated> {
        if whom != Reserve::Checkpoint && self.checkpoint_comes_first(0) {
            return Err(Error::new(ErrorKind::NoSpace, "a checkpoint must write nodes first"));
        }
        // On zones a log goes to no other section for these blocks.
        let stays = self.is_zoned()
            && whom != Reserve::Checkpoint
            && !log.is_extra()
            && self.sit.free_segments().free <= self.kept_free(whom);
        let mut room = self.room(c)?;
        let is_bad = self.write_io.is_bad(self.sit.segment_start(c.segno));
        if stays && (is_bad || self.cursegs.left.of(log) == 0) {
            return Err(Error::new(ErrorKind::NoSpace, "free sections are short"));
        }
        if room == 0 || is_bad {
            // The log could not leave the segment when it became full, or the segment's zone takes no more
            // writes.
            self.next_segment(c, log)?;
            room = self.room(c)?;
        }
        // A log always has a segment, as the checkpoint needs one; a fresh segment may be reserved for
        // others.
        if !self.is_zoned() && self.is_fresh(c) && self.sit.free_segments().free < self.kept_free(whom) {
            let may_fill = !log.is_extra() && self.alloc_mode() == AllocMode::Adaptive;
            if !may_fill || !self.fill_holes(c, log)? {
                return Err(Error::new(ErrorKind::NoSpace, "free segments are short"));
            }
            room = self.room(c)?;
        }
        if c.ssr && self.nodes_come_first(whom) {
            return Err(Error::new(ErrorKind::NoSpace, "a checkpoint must write nodes first"));
        }
        // A log that stops one block before its section's end needs no other section at the next checkpoint.
        let end = if stays { self.cursegs.left.of(log).saturating_sub(1) } else { u32::MAX };
        let n = want.min(room).min(end);
        if n == 0 {
            return Err(Error::new(ErrorKind::NoSpace, "no segment has room"));
        }
        let start = self.sit.segment_start(c.segno).plus(c.next_blkoff as u32);
        self.sit.allocated(start, n, log.kind)?;
        for i in 0..n {
            let at = c.next_blkoff + i as usize;
            c.sum.entries[at] = summary(i);
        }
        c.next_blkoff += n as usize;
        self.note_left(c, log);
        if self.is_zoned() && self.cursegs.left.of(log) == 0 {
            self.write_io.filled(start);
        }
        // Without a segment to go to, the log stays at its last block. The caller gets the allocated blocks
        // all the same: lost blocks would be a gap in a zone. The next allocation meets the error again, with
        // nothing allocated.
        if self.move_on(c, log).is_err() && log.kind == Log::WarmNode {
            self.cursegs.chain_broken.store(true, Relaxed);
        }
        self.cursegs.allocated.fetch_add(n as u64, Relaxed);
        let next = match c.next_blkoff {
            at if at < self.sit.usable(c.segno) as usize => self.sit.segment_start(c.segno).plus(at as u32),
            _ => BlockAddr::NULL,
        };
        Ok(Allocated { log, start, blocks: n, next })
    }

    /// Moves a log that something was allocated from to its next block.
    fn move_on(&self, c: &mut Curseg, log: LogId) -> Result<()> {
        let room = self.advance(c)?;
        match room == 0 {
            true if log.is_extra() => self.next_of_stream(c, log),
            true => self.next_segment(c, log),
            false => Ok(()),
        }
    }

    /// Takes a log to another segment, however much room is left in its own.
    ///
    /// # Errors
    /// `NoSpace` when there is no segment to go to.
    pub(crate) fn leave_segment(&self, log: Log) -> Result<()> {
        self.next_segment(&mut self.cursegs.lock(log), log.into())
    }

    /// Lets a log go on in its own segment, in the holes that are left.
    pub(crate) fn stay_in_holes(&self, log: Log) -> Result<()> {
        let mut c = self.cursegs.lock(log);
        c.ssr = true;
        // A log that fills holes is expected to find the other blocks' owners in the SSA.
        self.meta.write(self.sb.ssa_blkaddr + c.segno.0, PageBuf::from_slice(c.sum.as_bytes()));
        self.advance(&mut c).map(drop)
    }

    /// Takes the log to another segment: a free one, or a segment with holes while free segments are short.
    fn next_segment(&self, c: &mut Curseg, log: LogId) -> Result<()> {
        let free = self.sit.free_segments().free;
        let fills_holes = self.alloc_mode() == AllocMode::Adaptive && free <= self.ssr_threshold();
        // A hole is better than no checkpoint, whatever the mode. A zone has no holes.
        let holes = match (fills_holes || free == 0) && !self.is_zoned() {
            true => self.fill_holes(c, log),
            false => Ok(false),
        };
        if let Ok(true) = holes {
            return Ok(());
        }
        let goes_on = self.room(c)? == 0 && !self.write_io.is_bad(self.sit.segment_start(c.segno));
        let Some(seg) = self.sit.take_free(log, true, goes_on)? else {
            return Err(holes.err().unwrap_or_else(|| Error::new(ErrorKind::NoSpace, "no free segment")));
        };
        self.enter(c, log, seg, 0, false, Box::new(RawSummaryBlock::new_zeroed()));
        Ok(())
    }

    /// Moves on the logs whose segment is full. For the checkpoint, which must name a next block for each
    /// log.
    pub(crate) fn settle_logs(&self, umount: bool) -> Result<()> {
        for log in Log::ALL {
            let mut c = self.cursegs.lock(log);
            if self.room(&c)? == 0 {
                self.next_segment(&mut c, log.into())?;
            }
        }
        self.settle_streams(umount)
    }

    /// Sets the order of each log's blocks to begin where the checkpoint left the log. Called when the volume
    /// is opened.
    pub(crate) fn begin_order(&self) {
        for log in Log::ALL.into_iter().filter(|_| self.is_zoned()) {
            let c = self.cursegs.lock(log);
            let at = self.sit.segment_start(c.segno).plus(c.next_blkoff as u32);
            self.write_io.turn(log.into(), BlockAddr::NULL, at);
            self.note_left(&c, log.into());
        }
    }
}
