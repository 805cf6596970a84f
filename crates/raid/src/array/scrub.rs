//! Scrub: whether every stripe can be read and is consistent.
//!
//! An unreadable strip is reconstructed from the others and rewritten. Where data and parity do not
//! match, the wrong strip is located, sector by sector: P and Q identify one, and of three copies
//! or more the majority is correct. It is repaired then. Checksums are checked before that
//! (`verify`): those of an integrity region, where they are valid, and those of a layer above the
//! array (`verifier`). Otherwise the wrong one is unknown: it is reported, and nothing is changed.
//!
//! **Not here**: stripes with a missing strip that no equation is left to check, and parity that
//! was never computed; these are only read.

use std::rc::Rc;
use std::time::Duration;

use headpond_block::sync::join_all;
use headpond_block::{Buffer, Buffers, ByteRange, DeviceError, Outcome, Request, Submission};
use smallvec::SmallVec;

use super::columns::{Columns, ParityMemory};
use super::rebuild::{ReadFailure, Rebuild};
use super::scratch::{Allowance, Payload};
use super::verify::{Judged, JudgedCopies, Sums, blocks_that_differ};
use super::{Array, Member, Progress};
use crate::history::Trouble;
use crate::integrity::BLOCK_BYTES;
use crate::layout::{Strip, StripCell, Stripe};
use crate::parity::{self, Culprit};
use crate::plan::{ParityTrust, StripRead};
use crate::split::Piece;

/// What a cut costs at most.
const RECORDED_EVERY: Duration = Duration::from_secs(30);
/// A mismatch is located in units of so many bytes.
pub(super) const SECTOR_BYTES: usize = 512;
/// Attempts to read a stripe, each after a repair.
const ATTEMPTS_MAX: usize = 4;

/// How [`Array::scrub`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scrubbed {
    Whole,
    /// The caller did not let it go on; the next call goes on from there.
    Paused,
}

/// The strips of one stripe as they were read.
pub(super) type Strips = SmallVec<[(StripRead, Buffers); 8]>;
/// The copies of one strip.
pub(super) type Copies = SmallVec<[(StripCell, Buffer); 3]>;

impl Array {
    /// Looks at every stripe from where a scrub before was left, or from the start. Requests are
    /// served meanwhile; between every few stripes `go_on` may wait, and ends the work with
    /// `false`. What is found counts up in the status.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub async fn scrub(
        &self,
        mut go_on: impl AsyncFnMut() -> bool,
    ) -> Result<Scrubbed, DeviceError> {
        self.check_shape_stays("be scrubbed while it is reshaped to more members")?;
        let done = self.recorder.record().work.scrubbed_stripes.unwrap_or(0);
        let done = self.scrub_resumes_at(done);
        self.history.begin_scrub(&self.runtime, done > 0);
        let scrubbed = self.scrub_from(done, &mut go_on).await;
        self.history.end_scrub(&self.runtime, matches!(scrubbed, Ok(Scrubbed::Whole)));
        scrubbed
    }

    async fn scrub_from(
        &self,
        mut done: u64,
        go_on: &mut impl AsyncFnMut() -> bool,
    ) -> Result<Scrubbed, DeviceError> {
        let stripes = self.layout.stripes();
        let mut recorded_at = self.runtime.now();
        while done < stripes {
            self.scrubbing.set(Some(Progress { stripes_done: done, stripes }));
            let end = self.scrub_ends_at(done, stripes.min(done + self.rows_at_a_time()));
            self.prepare_sums(done..end).await;
            let batch = (done..end).map(|it| Submission::pending(self.scrub_stripe(Stripe(it))));
            let outcomes = join_all(batch.collect()).await.into_iter();
            let mut outcome = outcomes.collect::<Outcome>();
            if outcome.is_ok() {
                outcome = self.conclude_sums(done..end).await;
            }
            done = end;
            let goes_on = outcome.is_ok() && go_on().await;
            if !goes_on || self.runtime.now().since(recorded_at) >= RECORDED_EVERY {
                self.history.note_time(&self.runtime);
                self.record_scrubbed(Some(done)).await?;
                recorded_at = self.runtime.now();
            }
            if !goes_on {
                self.scrubbing.set(None);
                return outcome.map(|()| Scrubbed::Paused);
            }
        }
        self.scrubbing.set(None);
        self.record_scrubbed(None).await?;
        Ok(Scrubbed::Whole)
    }

    /// Whether a scrub was left that is to go on.
    pub fn is_scrub_begun(&self) -> bool {
        self.recorder.record().work.scrubbed_stripes.is_some()
    }

    /// Records how far a scrub is; what was put right is stable before.
    async fn record_scrubbed(&self, stripes: Option<u64>) -> Outcome {
        self.flush_members().await?;
        self.write_signed().await?;
        self.record_progress(|record| record.work.scrubbed_stripes = stripes).await
    }

    async fn scrub_stripe(&self, stripe: Stripe) -> Outcome {
        let _lock = self.locks.lock(stripe.0).await;
        self.check_intact()?;
        self.history.note_stripe();
        self.forget_sums(stripe);
        let fits = match self.layout.level().is_mirrored() {
            true => self.scrub_copies(stripe).await?,
            false => self.scrub_parity(stripe).await?,
        };
        if !fits {
            self.note_not_whole();
        }
        self.check_intact()
    }

    /// Whether all of the stripe is present, and consistent now.
    async fn scrub_parity(&self, stripe: Stripe) -> Result<bool, DeviceError> {
        let Some((strips, memory)) = self.read_whole(stripe).await? else { return Ok(false) };
        let is_whole = strips.len() == self.layout.width();
        let whole = 0..self.layout.strip_bytes();
        if !is_whole || self.parity_trust_in(stripe, &whole) == ParityTrust::Stale {
            return Ok(false);
        }
        let copy = |strip| contents(&strips, strip).map(|found| memory.take(found.len_bytes()));
        let p = copy(Strip::P).expect("the stripe is whole");
        let mut remainders = ParityMemory { p, q: copy(Strip::Q) };
        self.take_remainders(&strips, &mut remainders);
        let mut sums = Sums::of_parity(self, stripe);
        let misfits = remainders.blocks_not_zero(BLOCK_BYTES as usize);
        sums.learn(self.verified(stripe, &misfits).await.iter(), &misfits);
        let mut judged = self.locate_by_sums(stripe, &strips, &sums, &misfits);
        if misfits.is_empty() && judged.changed.is_empty() {
            self.note_whole_blocks(stripe, &strips, &judged.suspect);
            return Ok(judged.suspect.is_empty());
        }
        self.take_remainders(&strips, &mut remainders);
        let (p, q) = (remainders.p.to_vec(), remainders.q.as_ref().map(|q| q.to_vec()));
        self.correct(stripe, &strips, (&p, q.as_deref()), &sums, &mut judged);
        let is_changed = |read: &StripRead| judged.changed.contains(&read.strip);
        for (read, content) in strips.iter().filter(|(read, _)| is_changed(read)) {
            let cell = self.layout.cell(stripe, read.strip);
            self.note_misfit(cell);
            let write = Request::write(self.layout.row_start(cell.row), content.clone());
            self.rewrite(cell, write).await;
        }
        self.note_whole_blocks(stripe, &strips, &judged.suspect);
        Ok(judged.suspect.is_empty())
    }

    /// What the parity of a stripe lacks to be that of its data: nothing but zeros where it fits.
    fn take_remainders(&self, strips: &Strips, into: &mut ParityMemory) {
        let columns = strips[..self.layout.data_strips()].iter();
        let columns: Columns = columns.map(|(_, content)| Some(content.clone())).collect();
        for (strip, memory) in [(Strip::P, Some(&into.p)), (Strip::Q, into.q.as_ref())] {
            let found = memory.zip(contents(strips, strip).and_then(Buffers::as_single));
            found.inspect(|(memory, found)| memory.copy_from_buffer(found));
        }
        into.add_columns(&columns);
    }

    /// Puts right in memory what the remainders explain, and no checksum speaks against.
    fn correct(
        &self,
        stripe: Stripe,
        strips: &Strips,
        (p, q): (&[u8], Option<&[u8]>),
        sums: &Sums,
        judged: &mut Judged,
    ) {
        for start in (0..p.len()).step_by(SECTOR_BYTES) {
            let (p, q) = (&p[start..][..SECTOR_BYTES], q.map(|q| &q[start..][..SECTOR_BYTES]));
            let (strip, error) = match parity::locate(p, q, self.layout.data_strips()) {
                Culprit::Nobody => continue,
                Culprit::P => (Some(Strip::P), p),
                Culprit::Data(k) => (Some(Strip::Data(k)), p),
                Culprit::Q => (Some(Strip::Q), q.expect("Q is named by itself")),
                Culprit::Unknown => (None, p),
            };
            let block = start / BLOCK_BYTES as usize;
            if judged.disputed.contains(&block) {
                continue;
            }
            let strip = strip.filter(|it| !sums.verifies(strips, *it, block));
            let Some(strip) = strip else {
                judged.suspect.insert(block);
                self.note_finding(stripe, Trouble::Unexplained);
                continue;
            };
            let content = contents(strips, strip).expect("the stripe is whole");
            add_to(&content.slice(start..start + SECTOR_BYTES), error);
            self.note_repaired(self.layout.cell(stripe, strip), 1, false);
            judged.note_changed(strip);
        }
    }

    /// Whether all copies are there, and alike now.
    async fn scrub_copies(&self, stripe: Stripe) -> Result<bool, DeviceError> {
        let room = 2 * self.layout.copies() * self.layout.strip_bytes() as usize;
        let memory = self.scratch.allow(room, Payload::Bytes).await;
        let mut copies = Copies::new();
        for cell in self.copies_in_use(stripe) {
            match self.read_copy(stripe, cell, &memory).await? {
                Some(content) => copies.push((cell, content)),
                None => {
                    drop((copies, memory));
                    return self.mend_or_note(stripe).await.map(|_| false);
                }
            }
        }
        let mut sums = Sums::of_copies(self, stripe, &copies);
        let misfits = blocks_that_differ(&copies);
        if let [verified] = &*self.verified(stripe, &misfits).await {
            sums.learn(std::iter::repeat_n(verified, copies.len()), &misfits);
        }
        let mut judged = self.compare_with_sums(stripe, &copies, &sums);
        let is_like_first = |(_, copy): &(StripCell, Buffer)| bytes(copy) == bytes(&copies[0].1);
        if !copies.iter().all(is_like_first) {
            self.outvote(stripe, &copies, &mut judged);
        }
        for cell in judged.changed {
            self.note_misfit(cell);
            let (_, content) = copies.iter().find(|(it, _)| *it == cell).expect("it is a copy");
            let write = Request::write(self.layout.row_start(cell.row), content);
            self.rewrite(cell, write).await;
        }
        let are_all_there = copies.len() == self.layout.copies();
        if are_all_there {
            self.note_whole_copies(stripe, &copies, &judged.suspect);
        }
        Ok(are_all_there && judged.suspect.is_empty())
    }

    /// Its holder had other contents there.
    fn note_misfit(&self, cell: StripCell) {
        if let Some(member) = self.members.holder(cell) {
            member.health.note_misfit(self.runtime.utc());
        }
    }

    /// Reads a copy of a strip; where that fails, it is rewritten from another. `None` where it
    /// could not be had.
    async fn read_copy(
        &self,
        stripe: Stripe,
        cell: StripCell,
        memory: &Allowance<'_>,
    ) -> Result<Option<Buffer>, DeviceError> {
        let len = self.layout.strip_bytes() as usize;
        let Some(member) = self.members.holder(cell) else { return Ok(None) };
        let content = memory.take(len);
        let read = Request::read(self.layout.row_start(cell.row), &content);
        let Err(error) = self.operate(&member, read).await else { return Ok(Some(content)) };
        // The read may have been abandoned, and may still write there.
        let content = memory.take(len);
        let piece = Piece::whole(&self.layout, stripe);
        match self.mirror_reread(&piece, &Buffers::from(&content), cell.role, error).await {
            Ok(()) => self.note_rewritten(cell),
            Err(_) => {
                self.check_intact()?;
                return Ok(None);
            }
        }
        Ok(Some(content))
    }

    /// Gives every copy, in memory, the sectors that most of them have. Where no majority is, or a
    /// checksum speaks against it, nothing is changed.
    fn outvote(&self, stripe: Stripe, copies: &Copies, judged: &mut JudgedCopies) {
        for start in (0..self.layout.strip_bytes() as usize).step_by(SECTOR_BYTES) {
            let sector = |copy: &Buffer| copy.slice(start..start + SECTOR_BYTES);
            let sectors: SmallVec<[Buffer; 3]> =
                copies.iter().map(|(_, copy)| sector(copy)).collect();
            let votes =
                |it: &Buffer| sectors.iter().filter(|other| bytes(other) == bytes(it)).count();
            let block = start / BLOCK_BYTES as usize;
            if judged.disputed.contains(&block) {
                continue;
            }
            let Some(right) = sectors.iter().find(|it| votes(it) * 2 > sectors.len()) else {
                judged.suspect.insert(block);
                let place = self.layout.stripe_start(stripe) + start as u64;
                // The contents in place of lost data after a cut do not matter.
                if self.check_known(ByteRange::at(place, SECTOR_BYTES as u64)).is_ok() {
                    self.note_finding(stripe, Trouble::Unexplained);
                }
                continue;
            };
            for ((cell, _), wrong) in copies.iter().zip(&sectors) {
                if bytes(wrong) == bytes(right) {
                    continue;
                }
                wrong.copy_from_buffer(right);
                self.note_repaired(*cell, 1, false);
                judged.note_changed(*cell);
            }
        }
    }

    /// Reads every present strip of a stripe, and repairs unreadable ones. `None` where that did
    /// not help.
    async fn read_whole(
        &self,
        stripe: Stripe,
    ) -> Result<Option<(Strips, Allowance<'_>)>, DeviceError> {
        let span = 0..self.layout.strip_bytes();
        let read_all = |member: &Rc<Member>, request| self.operate(member, request);
        for _ in 0..ATTEMPTS_MAX {
            // Given back before a repair, which needs memory of its own.
            let bytes = (self.layout.width() + self.layout.parity_strips()) * span.len();
            let memory = self.scratch.allow(bytes, Payload::Bytes).await;
            let lost = self.members.lost_strips(&self.layout, stripe);
            let strips = self.layout.strips().filter(|strip| !lost.contains(strip));
            let read = |strip| {
                let buffers = memory.take(span.len()).into();
                (StripRead { strip, span: span.clone() }, buffers)
            };
            let strips: Strips = strips.map(read).collect();
            let Err(failures) = self.read_strips(stripe, &strips, read_all).await else {
                return Ok(Some((strips, memory)));
            };
            drop((strips, memory));
            let cell = |failure: &ReadFailure| self.layout.cell(stripe, failure.read.strip);
            let cells: SmallVec<[StripCell; 4]> = failures.iter().map(cell).collect();
            let repair = failures.into_iter().fold(Rebuild::of(stripe), |repair, failure| {
                let ReadFailure { read, error } = failure;
                repair.with_suspect(read, error)
            });
            match self.rebuild(repair).await {
                Ok(()) => cells.into_iter().for_each(|cell| self.note_rewritten(cell)),
                Err(_) if self.mend_or_note(stripe).await? => {}
                Err(_) => return Ok(None),
            }
        }
        self.check_intact()?;
        self.note_finding(stripe, Trouble::Unreadable);
        Ok(None)
    }

    /// Makes a stripe readable at the price of lost blocks, and returns whether that went well.
    /// What cannot be had is a finding either way.
    async fn mend_or_note(&self, stripe: Stripe) -> Result<bool, DeviceError> {
        let repaired = self.mend(stripe).await;
        self.check_intact()?;
        if !matches!(repaired, Ok(0)) {
            self.note_finding(stripe, Trouble::Unreadable);
        }
        Ok(repaired.is_ok())
    }
}

fn contents(strips: &Strips, wanted: Strip) -> Option<&Buffers> {
    let found = strips.iter().find(|(read, _)| read.strip == wanted);
    found.map(|(_, content)| content)
}

fn add_to(content: &Buffers, error: &[u8]) {
    let content = content.as_single().expect("scratch memory is contiguous");
    // SAFETY: this is scratch memory of one stripe, with no operation on it in flight.
    parity::add(unsafe { content.as_mut_slice() }, &[error]);
}

pub(super) fn bytes(copy: &Buffer) -> &[u8] {
    // SAFETY: this is scratch memory of one stripe, with no operation on it in flight, and changed
    // only while nobody looks at it.
    unsafe { copy.as_slice() }
}
