//! Continuing where a stripe has more unreadable blocks than its redundancy tolerates.
//!
//! 1. every strip is read, and an unreadable one block by block; 2. where more is unknown than the
//!    redundancy tolerates, the data concerned goes on the list of lost blocks; 3. there, as many
//!    of the unreadable blocks as exceed it count as zeros. The remaining unknown ones can be
//!    solved then, consistently: the results are undefined data where they are on the list; 4. they
//!    are written, and last of all the zeros; 5. where enough could be read, the unreadable blocks
//!    are reconstructed as usual.
//!
//! **Invariants**
//! - Before the list is stable nothing is written in a lost block's place.
//! - Each write here is stable by itself, and after each the stripe is consistent: solved blocks
//!   come before the zeros that they were solved from, which until then are as unknown as before.
//!   In case they can be read after a cut, the stripe is marked in the intent bitmap, or a record
//!   of the stripe journal has all writes.
//! - Records of earlier writes in the journal are not replayed without what was written here since.
//! - Only medium errors of members that are readable elsewhere lose data, and suspect parity, which
//!   counts as unreadable. A member that is gone, or does not respond, may be available again
//!   later.

use std::collections::BTreeSet;
use std::rc::Rc;

use headpond_block::sync::join_all;
use headpond_block::{
    BlockDevice, Buffer, Buffers, ByteRange, Cause, DeviceError, Hints, Outcome, Request,
    RequestFlags, RequestKind, Submission,
};
use smallvec::SmallVec;

use super::parity_write::{StripWrite, StripeWrite, told};
use super::rebuild::Rebuild;
use super::scratch::Payload;
use super::{Array, Member};
use crate::damage::{self, Run};
use crate::layout::{Strip, StripCell, Stripe};
use crate::plan::{Extent, ParityTrust, Span, StripRead};
use crate::split::Piece;
use crate::superblock::{COPY_OFFSETS, SUPERBLOCK_BYTES};

/// What cannot be read of a stripe.
struct Damage {
    /// Every strip, or every copy of the one strip, and where it lies.
    strips: SmallVec<[(StripCell, Strip); 8]>,
    /// The missing ones.
    absent: SmallVec<[usize; 4]>,
    runs: Vec<Run>,
}

impl Array {
    /// Makes all of a stripe readable again; blocks that cannot be reconstructed are lost from then
    /// on. The bytes that were lost are answered; parity that was never computed has nothing to
    /// say, and then nothing is done. The stripe is locked by the caller.
    ///
    /// # Errors
    /// Where something else than media stands in the way, where a block cannot be written either,
    /// or more would be lost than may be.
    pub(super) async fn mend(&self, stripe: Stripe) -> Result<u64, DeviceError> {
        self.check_writable()?;
        let is_computed =
            self.layout.parity_strips() == 0 || self.parity_trust(stripe) == ParityTrust::Valid;
        if !is_computed {
            return Ok(0);
        }
        let damage = self.look_for_damage(stripe).await?;
        let lost_bytes = self.list_damage(stripe, &damage).await?;
        if damage.runs.iter().any(|run| self.excess(&damage, run) > 0) {
            // Reconstructed blocks are those that a scrub signed; made up ones are not.
            self.unsign(stripe..=stripe).await?;
        }
        // What is made up fits only what a member has that is given it.
        self.mark_absent(stripe..=stripe).await?;
        for run in &damage.runs {
            match self.excess(&damage, run) {
                0 => self.make_anew(stripe, &damage, run).await?,
                excess => self.make_up(stripe, &damage, run, excess).await?,
            }
            self.check_intact()?;
            // It fits now, whatever it tells of what is on the list.
            self.clear_suspect_parity(stripe, &run.span);
        }
        Ok(lost_bytes)
    }

    fn excess(&self, damage: &Damage, run: &Run) -> usize {
        run.excess(damage.absent.len(), self.layout.redundancy())
    }

    async fn look_for_damage(&self, stripe: Stripe) -> Result<Damage, DeviceError> {
        let strips = self.places_of(stripe);
        let mut absent = SmallVec::new();
        let mut unreadable = Vec::with_capacity(strips.len());
        for (place, (cell, strip)) in strips.iter().enumerate() {
            match self.members.holder(*cell) {
                Some(member) => {
                    let mut blocks = self.unreadable_blocks(&member, cell.row).await?;
                    if matches!(strip, Strip::P | Strip::Q) {
                        blocks.extend(self.suspect_blocks_of(stripe));
                    }
                    unreadable.push(blocks);
                }
                None => {
                    absent.push(place);
                    unreadable.push(BTreeSet::new());
                }
            }
        }
        let runs = damage::runs(&unreadable, self.geometry.now().logical_block_bytes);
        Ok(Damage { strips, absent, runs })
    }

    /// Logical blocks of a parity strip that are as good as unreadable.
    fn suspect_blocks_of(&self, stripe: Stripe) -> impl Iterator<Item = u32> + '_ {
        let block_bytes = self.geometry.now().logical_block_bytes;
        self.suspect_in(stripe)
            .flat_map(move |span| span.start / block_bytes..span.end / block_bytes)
    }

    /// Every strip of a stripe, or every copy, and where it lies.
    fn places_of(&self, stripe: Stripe) -> SmallVec<[(StripCell, Strip); 8]> {
        if self.layout.level().is_mirrored() {
            let copy = |copy| (self.layout.cell_of_copy(stripe, copy), Strip::Data(0));
            return (0..self.layout.copies()).map(copy).collect();
        }
        self.layout.strips().map(|strip| (self.layout.cell(stripe, strip), strip)).collect()
    }

    /// The blocks of a strip that a member cannot read.
    ///
    /// # Errors
    /// Where that is no matter of its medium.
    async fn unreadable_blocks(
        &self,
        member: &Rc<Member>,
        row: u64,
    ) -> Result<BTreeSet<u32>, DeviceError> {
        let (len, block_bytes) =
            (self.layout.strip_bytes(), self.geometry.now().logical_block_bytes);
        let memory = self.scratch.allow(len as usize, Payload::Bytes).await;
        let content: Buffers = memory.take(len as usize).into();
        let mut unreadable = BTreeSet::new();
        if self.is_readable(member, row, 0..len, &content).await? {
            return Ok(unreadable);
        }
        self.check_reads_at_all(member).await?;
        // Each by itself: what takes a drive long is a block that it cannot read.
        for block in 0..len / block_bytes {
            let span = block * block_bytes..(block + 1) * block_bytes;
            if !self.is_readable(member, row, span, &content).await? {
                unreadable.insert(block);
            }
        }
        Ok(unreadable)
    }

    /// # Errors
    /// Where a member does not even read its superblock: that is more than bad sectors, and may
    /// pass.
    async fn check_reads_at_all(&self, member: &Rc<Member>) -> Outcome {
        let mut outcome = Ok(());
        for offset in COPY_OFFSETS {
            let read = Request::read(offset, Buffer::zeroed(SUPERBLOCK_BYTES));
            let read = Submission::on(Rc::clone(&member.device), read);
            outcome = self.watched(member, read, RequestKind::Read).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    async fn is_readable(
        &self,
        member: &Rc<Member>,
        row: u64,
        span: Span,
        content: &Buffers,
    ) -> Result<bool, DeviceError> {
        let part = content.slice(span.start as usize..span.end as usize);
        let offset = self.layout.row_start(row) + u64::from(span.start);
        match self.operate(member, Request::read(offset, part)).await {
            Ok(()) => Ok(true),
            Err(error) if error.is_damage() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Adds the lost data to the list, and returns how much that is.
    async fn list_damage(&self, stripe: Stripe, damage: &Damage) -> Result<u64, DeviceError> {
        let lost: Vec<ByteRange> = damage
            .runs
            .iter()
            .filter(|run| self.excess(damage, run) > 0)
            .flat_map(|run| {
                damage.data_of(run).map(|strip| self.range_of(stripe, strip, &run.span))
            })
            .collect();
        if lost.is_empty() {
            return Ok(0);
        }
        let bytes: u64 = lost.iter().map(|range| range.len()).sum();
        if self.lost_bytes() + bytes > self.lost_bytes_max() {
            return Err(self.cannot_list_more());
        }
        self.record_lost(&lost).await?;
        Ok(bytes)
    }

    /// Reconstructs unreadable blocks from readable ones.
    async fn make_anew(&self, stripe: Stripe, damage: &Damage, run: &Run) -> Outcome {
        if !self.layout.level().is_mirrored() {
            return self.rebuild(damage.repair(stripe, run, 0, self.unread(stripe, run))).await;
        }
        let len = run.span.len();
        let memory = self.scratch.allow(len, Payload::Bytes).await;
        let content: Buffers = memory.take(len).into();
        let extent = Extent { strip: 0, span: run.span.clone() };
        let piece = Piece { stripe, extent, at: 0 };
        for place in &run.unreadable {
            let (cell, _) = damage.strips[*place];
            let error = self.unread(stripe, run);
            self.mirror_reread(&piece, &content, cell.role, error).await?;
        }
        Ok(())
    }

    /// Writes consistent contents where blocks are lost: zeros in place of `excess` of them.
    async fn make_up(&self, stripe: Stripe, damage: &Damage, run: &Run, excess: usize) -> Outcome {
        let all = || run.unreadable.iter().map(|place| damage.strips[*place]);
        if self.layout.level().is_mirrored() {
            let zeros = all().map(|(cell, _)| (cell, run.span.start, self.zeros(run.span.len())));
            let (members, outcomes) = self.write_stably(zeros).await;
            return self.conclude_mending(&members, outcomes).await;
        }
        if excess < run.unreadable.len() {
            // A block that could not be read may yet read as before after a cut.
            let _mark = self.mark(stripe..=stripe, RequestFlags::empty()).await?;
            let error = self.unread(stripe, run);
            return self.rebuild(damage.repair(stripe, run, excess, error)).await;
        }
        let strips: SmallVec<[Strip; 4]> = all().map(|(_, strip)| strip).collect();
        self.put_made_up(stripe, Vec::new(), (&strips, run.span.clone())).await
    }

    /// Writes what was solved, and then zeros in some strips.
    pub(super) async fn put_made_up(
        &self,
        stripe: Stripe,
        solved: Vec<StripWrite>,
        (zeroed, span): (&[Strip], Span),
    ) -> Outcome {
        let zero = |strip: &Strip| (*strip, span.start, self.zeros(span.len()));
        let zeros: Vec<StripWrite> = zeroed.iter().map(zero).collect();
        let all = || told(stripe, &[solved.as_slice(), &zeros].concat());
        let pass = self.announce(stripe..=stripe, all).await?;
        let (mut members, mut outcomes) = (Vec::new(), Vec::new());
        for writes in [&solved, &zeros] {
            let writes = writes.iter().map(|(strip, start, content)| {
                (self.layout.cell(stripe, *strip), *start, content.clone())
            });
            let (of_these, ended) = self.write_stably(writes).await;
            members.extend(of_these);
            outcomes.extend(ended);
        }
        let lease = pass.leave(&members, &outcomes);
        let outcome = self.conclude_mending(&members, outcomes).await;
        if let Some(lease) = lease {
            self.torn.borrow_mut().entry(stripe).or_default().push(lease);
        }
        outcome
    }

    /// Writes contents to the holders of the cells, each from a byte of its strip on.
    async fn write_stably(
        &self,
        writes: impl Iterator<Item = (StripCell, u32, Buffers)>,
    ) -> (Vec<Rc<Member>>, Vec<Outcome>) {
        let (mut members, mut submissions) = (Vec::new(), Vec::new());
        for (cell, start, content) in writes {
            let offset = self.layout.row_start(cell.row) + u64::from(start);
            let write = Request::write(offset, content).with_flags(RequestFlags::FUA);
            for member in self.members.holders(cell) {
                submissions.push(self.operate(&member, write.clone()));
                members.push(member);
            }
        }
        (members, join_all(submissions).await)
    }

    /// Members that failed these writes are excluded, where the group tolerates it.
    async fn conclude_mending(&self, members: &[Rc<Member>], outcomes: Vec<Outcome>) -> Outcome {
        let mut refused = Ok(());
        for (member, outcome) in members.iter().zip(outcomes) {
            match outcome {
                Ok(()) => member.note_write(),
                Err(_) if self.members.can_lose(member) => self.drop_member(member),
                Err(error) => refused = Err(error),
            }
        }
        self.settle().await;
        refused
    }

    /// Puts zeros, and parity that fits them, where data that is on the list cannot be read, and
    /// says whether there was any. The caller holds the lock of the stripe, and its mark.
    pub(super) async fn zero_lost(&self, stripe: Stripe) -> Result<bool, DeviceError> {
        let damage = self.look_for_damage(stripe).await?;
        let mut any = false;
        for run in &damage.runs {
            let unreadable = run.unreadable.iter().filter_map(|place| damage.data_at(*place));
            let is_lost = |k: &u16| self.is_lost(self.range_of(stripe, *k, &run.span));
            let extent = |strip| Extent { strip, span: run.span.clone() };
            let extents: SmallVec<[Extent; 8]> = unreadable.filter(is_lost).map(extent).collect();
            if extents.is_empty() {
                continue;
            }
            let write = StripeWrite {
                stripe,
                data: extents.iter().map(|it| self.zeros(it.span.len())).collect(),
                extents,
                flags: RequestFlags::FUA | RequestFlags::RECOMPUTE_PARITY,
                hints: Hints::default(),
            };
            self.write_content(&write).await?;
            any = true;
        }
        Ok(any)
    }

    fn unread(&self, stripe: Stripe, run: &Run) -> DeviceError {
        let range = self.range_of(stripe, 0, &run.span);
        DeviceError::new(self.name(), Cause::Media { range })
    }
}

impl Damage {
    /// The data strips of which nothing is known in a run.
    fn data_of<'a>(&'a self, run: &'a Run) -> impl Iterator<Item = u16> + 'a {
        let unknown = self.absent.iter().chain(&run.unreadable);
        unknown.filter_map(|place| self.data_at(*place))
    }

    /// The number of a data strip.
    fn data_at(&self, place: usize) -> Option<u16> {
        match self.strips[place].1 {
            Strip::Data(k) => Some(k),
            Strip::P | Strip::Q => None,
        }
    }

    /// The repair of what cannot be read in a run, but for the first `zeroed` strips, which are
    /// taken for zeros.
    fn repair(&self, stripe: Stripe, run: &Run, zeroed: usize, error: DeviceError) -> Rebuild {
        let (zeroed, solved) = run.unreadable.split_at(zeroed);
        let strip = |place: &usize| self.strips[*place].1;
        let rebuild = Rebuild::of(stripe).taking_for_zeros(zeroed.iter().map(strip).collect());
        solved.iter().map(strip).fold(rebuild, |rebuild, strip| {
            rebuild.with_suspect(StripRead { strip, span: run.span.clone() }, error.clone())
        })
    }
}
