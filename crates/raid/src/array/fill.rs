//! Giving a spare what a role holds, row by row, while requests are served.
//!
//! 1. a row's stripe is locked; 2. what the role holds there is read from whoever holds it, or made
//!    from the others; 3. it is written to the spare, which holds the row from then on and gets
//!    what is written there; 4. now and then what was filled is flushed and the rows are recorded,
//!    so that a start goes on from there; 5. at the end the spare has the role, and who had it is
//!    out.
//!
//! The spare is a device, or a slot of distributed spare space, whose rows lie on all members. What
//! a role holds in a row is a strip of its own, or one that it was lent, or nothing.
//!
//! **Invariants**: nothing is read from a row of the spare that was not filled; what is recorded as
//! filled is stable; a row is added in the moment when everybody who is to hold it has it.

use std::rc::Rc;
use std::time::Duration;

use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffers, DeviceError, Outcome, Request, Submission};

use super::beside::{ROWS_AT_A_TIME, SCRATCH_SHARE};
use super::members::{FilledRows, Filling, Holders, Lent};
use super::parity_write::REPAIRS_MAX;
use super::rebuild::Rebuild;
use super::scratch::Payload;
use super::{Array, Member};
use crate::layout::{Role, StripCell, Stripe};
use crate::plan::StripRead;

/// The most of them where they lie on all members, each of which is to have some to do.
const SPREAD_ROWS_AT_A_TIME_MAX: u64 = 512;
/// How often it is looked whether a slot that was taken back is free.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// What a cut costs at most.
const RECORDED_EVERY: Duration = Duration::from_secs(30);

/// How [`Array::fill`] ended.
pub enum Filled {
    /// The spare has the role, or stands in for it completely. Whoever had it before still carries
    /// a superblock, which calls it a member; whoever keeps a list of the devices takes it off and
    /// erases that.
    Whole { before: Option<Rc<dyn BlockDevice>> },
    /// The caller did not let it go on; what was filled is recorded.
    Paused,
    /// The spare failed or was removed.
    Gone,
}

/// Who is given what a role holds.
enum Goal {
    Device(Role, Rc<Filling>),
    Slot(Rc<Lent>),
}

impl Goal {
    fn role(&self) -> Role {
        match self {
            Goal::Device(role, _) => *role,
            Goal::Slot(lent) => lent.role,
        }
    }

    fn progress(&self) -> &FilledRows {
        match self {
            Goal::Device(_, filling) => &filling.progress,
            Goal::Slot(lent) => &lent.progress,
        }
    }
}

impl Array {
    /// Fills a role to which a spare has been assigned, from the first row that it lacks. Requests
    /// are served meanwhile; between every few rows `go_on` may wait, to leave them room, and ends
    /// the work with `false`.
    ///
    /// # Errors
    /// The first strip that could neither be read nor done without, and those of the array. What
    /// was filled stays filled.
    pub async fn fill(
        &self,
        role: Role,
        go_on: impl AsyncFnMut() -> bool,
    ) -> Result<Filled, DeviceError> {
        match self.members.slot(role).filling() {
            Some(filling) => self.fill_goal(Goal::Device(role, filling), go_on).await,
            None => Ok(Filled::Gone),
        }
    }

    /// Fills the distributed spare space that stands in for a role, as [`Array::fill`] does a
    /// device.
    ///
    /// # Errors
    /// As there.
    pub async fn fill_slot(
        &self,
        role: Role,
        go_on: impl AsyncFnMut() -> bool,
    ) -> Result<Filled, DeviceError> {
        match self.members.lent_to(role) {
            Some(lent) => self.fill_goal(Goal::Slot(lent), go_on).await,
            None => Ok(Filled::Gone),
        }
    }

    async fn fill_goal(
        &self,
        goal: Goal,
        mut go_on: impl AsyncFnMut() -> bool,
    ) -> Result<Filled, DeviceError> {
        self.forget_records().await?;
        let mut recorded_at = self.runtime.now();
        while goal.progress().rows() < self.layout.rows() {
            self.fill_rows(&goal).await?;
            if !self.is_wanted(&goal) {
                return Ok(Filled::Gone);
            }
            let goes_on = go_on().await;
            if !goes_on || self.runtime.now().since(recorded_at) >= RECORDED_EVERY {
                self.record_filled(&goal).await?;
                recorded_at = self.runtime.now();
            }
            if !goes_on {
                return Ok(Filled::Paused);
            }
        }
        let filled = self.finish_filling(&goal).await?;
        // So that whoever looks for a free slot after this finds it.
        while self.members.is_any_settling() && go_on().await {
            self.runtime.sleep(LOOK_EVERY).await;
        }
        Ok(filled)
    }

    async fn fill_rows(&self, goal: &Goal) -> Outcome {
        let rows = self.next_rows(goal).into_iter();
        let rows = rows.map(|row| Submission::pending(self.fill_row(goal, row)));
        join_all(rows.collect()).await.into_iter().collect()
    }

    /// What is to be filled next: the first rows that are not. Of distributed spare space some rows
    /// from each of several piles.
    fn next_rows(&self, goal: &Goal) -> Vec<u64> {
        let (start, end) = (goal.progress().rows(), self.layout.rows());
        let Goal::Slot(lent) = goal else {
            return (start..end.min(start + self.rows_at_a_time())).collect();
        };
        let pile = self.layout.pile_rows();
        let each = pile.min(ROWS_AT_A_TIME);
        // Never more than usual: that many have all members busy.
        let rows = self.rows_at_a_time().min(ROWS_AT_A_TIME);
        let spread = self.spread_rows_at_a_time() * rows / ROWS_AT_A_TIME;
        let mut piles_left = (spread / each).max(1);
        // A disk that takes part in two piles would go back and forth between them.
        let must_part = self.geometry.now().rotational && each == ROWS_AT_A_TIME;
        let (mut rows, mut busy) = (Vec::new(), Vec::new());
        let window = start / pile..end.div_ceil(pile).min(start / pile + self.window());
        for first in window.map(|index| index * pile) {
            if piles_left == 0 {
                break;
            }
            let lacking = (first..end.min(first + pile)).filter(|row| !lent.progress.holds(*row));
            let lacking: Vec<u64> = lacking.take(each as usize).collect();
            let Some(row) = lacking.first() else { continue };
            let parts = self.parts_in(lent, *row);
            if must_part && parts.iter().any(|part| busy.contains(part)) {
                continue;
            }
            piles_left -= u64::from(!parts.is_empty());
            busy.extend(parts);
            rows.extend(lacking);
        }
        rows
    }

    /// Piles that are looked at for some that can be filled side by side.
    fn window(&self) -> u64 {
        2 * self.layout.members() as u64
    }

    /// Who is read from or written to for a row.
    fn parts_in(&self, lent: &Lent, row: u64) -> Vec<Role> {
        let home = self.members.home(StripCell { role: lent.role, row });
        let Some((stripe, _)) = home.and_then(|home| self.layout.strip_in(home)) else {
            return Vec::new();
        };
        let read = self.layout.strips().map(|strip| self.layout.cell(stripe, strip).role);
        let read = read.filter(|role| *role != lent.role);
        read.chain([self.layout.spare_cell(lent.slot, row).role]).collect()
    }

    fn spread_rows_at_a_time(&self) -> u64 {
        let row_bytes = self.layout.width() as u64 * u64::from(self.layout.strip_bytes());
        let rows = self.scratch.bytes_max() / SCRATCH_SHARE / row_bytes;
        rows.clamp(ROWS_AT_A_TIME, SPREAD_ROWS_AT_A_TIME_MAX)
    }

    /// Whether there is still somebody to be filled.
    fn is_wanted(&self, goal: &Goal) -> bool {
        match goal {
            Goal::Device(_, filling) => self.members.is_present(&filling.member),
            Goal::Slot(lent) => self.members.is_lent(lent),
        }
    }

    /// Those who are to be given a row.
    fn targets(&self, goal: &Goal, row: u64) -> Holders {
        match goal {
            Goal::Device(_, filling) => Holders::from_iter([Rc::clone(&filling.member)]),
            Goal::Slot(lent) => self.members.holders(self.layout.spare_cell(lent.slot, row)),
        }
    }

    async fn fill_row(&self, goal: &Goal, row: u64) -> Outcome {
        let cell = StripCell { role: goal.role(), row };
        loop {
            let home = self.members.home(cell);
            let stripe = home.and_then(|home| self.layout.strip_in(home)).map(|(stripe, _)| stripe);
            let _lock = match stripe {
                Some(stripe) => Some(self.locks.lock(stripe.0).await),
                None => None,
            };
            self.check_writable()?;
            if goal.progress().holds(row) || !self.is_wanted(goal) {
                return Ok(());
            }
            if self.members.home(cell) != home {
                continue;
            }
            let targets = self.targets(goal, row);
            if let (Some(home), Some(stripe), false) = (home, stripe, targets.is_empty()) {
                self.fill_or_mend(home, stripe, &targets).await?;
            }
            // Whoever is to have it by now and was given nothing would be taken to have it.
            if is_same(&targets, &self.targets(goal, row)) {
                if self.is_wanted(goal) {
                    goal.progress().add(row);
                }
                return Ok(());
            }
        }
    }

    /// The same as [`Self::fill_cell`]; what nobody can know any more does not keep the rest from
    /// being made safe.
    async fn fill_or_mend(&self, home: StripCell, stripe: Stripe, targets: &Holders) -> Outcome {
        match self.fill_cell(home, targets).await {
            Err(error) if !matches!(error, DeviceError::Timeout { .. }) => {
                self.mend(stripe).await?;
                self.fill_cell(home, targets).await
            }
            outcome => outcome,
        }
    }

    /// Gives what lies in a cell to the targets. The stripe is locked by the caller.
    async fn fill_cell(&self, home: StripCell, targets: &Holders) -> Outcome {
        let mut repairs = 0;
        while let Some(member) = self.members.holder(home) {
            let error = match self.copy_strip(&member, targets, home.row).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match error {
                DeviceError::Gone { .. } | DeviceError::Timeout { .. } => {
                    self.fail_member(&member).await;
                }
                error if repairs < REPAIRS_MAX => {
                    repairs += 1;
                    self.repair_strip(home, error).await?;
                }
                error => return Err(error),
            }
        }
        self.repair_strip(home, self.gone()).await
    }

    /// # Errors
    /// Where the strip cannot be read.
    async fn copy_strip(&self, member: &Rc<Member>, targets: &Holders, row: u64) -> Outcome {
        let len = self.layout.strip_bytes() as usize;
        let memory = self.scratch.allow(len, Payload::Bytes).await;
        let content: Buffers = memory.take(len).into();
        let offset = self.layout.row_start(row);
        self.operate(member, Request::read(offset, content.clone())).await?;
        let write = || Request::write(offset, content.clone());
        let writes = targets.iter().map(|target| self.operate(target, write()));
        let outcomes = join_all(writes.collect()).await;
        self.conclude_writes(targets, outcomes).await
    }

    /// Makes a strip anew from the others and writes it to whoever has its role, or is being given
    /// it. The stripe is locked by the caller.
    ///
    /// # Errors
    /// `error`, where the others do not suffice.
    pub(super) async fn repair_strip(&self, cell: StripCell, error: DeviceError) -> Outcome {
        let (stripe, strip) = self.layout.strip_in(cell).expect("a strip lies in its cell");
        if self.layout.level().is_mirrored() {
            let len = self.layout.strip_bytes() as usize;
            let memory = self.scratch.allow(len, Payload::Bytes).await;
            let piece = crate::split::Piece::whole(&self.layout, stripe);
            let content: Buffers = memory.take(len).into();
            return self.mirror_reread(&piece, &content, cell.role, error).await;
        }
        let whole = StripRead { strip, span: 0..self.layout.strip_bytes() };
        self.rebuild(Rebuild::of(stripe).with_suspect(whole, error)).await
    }

    /// Records, once they are stable, the rows that are filled now.
    async fn record_filled(&self, goal: &Goal) -> Outcome {
        let rows = goal.progress().rows();
        match goal {
            Goal::Device(_, filling) => self.flush_filling(filling).await?,
            Goal::Slot(_) => self.flush_members().await?,
        }
        goal.progress().record(rows);
        self.change_record(|_| {}).await
    }

    async fn flush_filling(&self, filling: &Filling) -> Outcome {
        let member = &filling.member;
        let writes = member.unflushed_writes().unwrap_or(0);
        match self.flush_member(member).await {
            Ok(()) => member.note_flushed(writes),
            Err(_) => self.fail_member(member).await,
        }
        self.check_intact()
    }

    async fn finish_filling(&self, goal: &Goal) -> Result<Filled, DeviceError> {
        self.record_filled(goal).await?;
        if !self.is_wanted(goal) {
            return Ok(Filled::Gone);
        }
        let before = match goal {
            Goal::Device(role, _) => self.members.end_filling(*role),
            // It counts from the event that recorded it.
            Goal::Slot(_) => None,
        };
        if !self.members.is_degraded() {
            self.end_absence();
        }
        // Whoever did without the one before is acknowledged only when this is recorded.
        self.change_record(|_| {}).await?;
        Ok(Filled::Whole { before: before.map(|member| Rc::clone(&member.device)) })
    }
}

fn is_same(before: &Holders, now: &Holders) -> bool {
    before.len() == now.len() && before.iter().zip(now).all(|(one, two)| Rc::ptr_eq(one, two))
}
