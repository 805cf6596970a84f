//! Rebuilding a role onto a spare, row by row, while requests are served.
//!
//! 1. a row's stripe is locked; 2. the strip of the role there is read from the member that has it,
//!    or reconstructed from the others; 3. it is written to the spare, which has the row from then
//!    on and gets all writes to it; 4. every so often the spare is flushed and the rows recorded,
//!    so that a start continues from there; 5. at the end the spare has the role, and its former
//!    member is removed.
//!
//! The spare is a device, or a slot of distributed spare space, whose rows are on all members. In a
//! row a role has a strip of its own, or one that it was lent, or nothing.
//!
//! **Invariants**: no row of the spare is read that was not filled; recorded rows are stable; a row
//! is added at once when everything that is to have it has it.

use std::rc::Rc;
use std::time::Duration;

use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffers, Cause, DeviceError, Outcome, Request};

use super::members::{FilledRows, Filling, Holders, Lent};
use super::parity_write::REPAIRS_MAX;
use super::rebuild::Rebuild;
use super::runs::Runs;
use super::scratch::Payload;
use super::{Array, Member};
use crate::layout::{Role, StripCell, Stripe};
use crate::plan::StripRead;

/// How often it is looked whether a slot that was taken back is free.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// What a cut costs at most.
const RECORDED_EVERY: Duration = Duration::from_secs(30);

/// How [`Array::fill`] ended.
pub enum Filled {
    /// The spare has the role, or replaces it completely. The former member still has a superblock,
    /// which names it a member; the owner of the list of devices removes it and erases that.
    Whole { before: Option<Rc<dyn BlockDevice>> },
    /// The caller did not let it go on; what was filled is recorded.
    Paused,
    /// The spare failed or was removed.
    Gone,
}

/// The target of a rebuild.
pub(super) enum Goal {
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

    pub(super) fn progress(&self) -> &FilledRows {
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
        let mut runs = Runs::default();
        while goal.progress().rows() < self.layout.rows() {
            self.begin_runs(&goal, &mut runs);
            runs.some().await?;
            let goes_on = runs.beside(go_on()).await;
            if !goes_on || !self.is_wanted(&goal) {
                runs.end().await?;
            }
            if !self.is_wanted(&goal) {
                return Ok(Filled::Gone);
            }
            if !goes_on || self.runtime.now().since(recorded_at) >= RECORDED_EVERY {
                if let Err(error) = runs.beside(self.record_filled(&goal)).await {
                    runs.end().await?;
                    return Err(error);
                }
                recorded_at = self.runtime.now();
            }
            if !goes_on {
                return Ok(Filled::Paused);
            }
        }
        runs.end().await?;
        let filled = self.finish_filling(&goal).await?;
        // So that a search for a free slot after this finds it.
        while self.members.is_any_settling() && go_on().await {
            self.runtime.sleep(LOOK_EVERY).await;
        }
        Ok(filled)
    }

    /// Whether there is still a target to fill.
    fn is_wanted(&self, goal: &Goal) -> bool {
        match goal {
            Goal::Device(_, filling) => self.members.is_present(&filling.member),
            Goal::Slot(lent) => self.members.is_lent(lent),
        }
    }

    /// The targets of a row.
    fn targets(&self, goal: &Goal, row: u64) -> Holders {
        match goal {
            Goal::Device(_, filling) => Holders::from_iter([Rc::clone(&filling.member)]),
            Goal::Slot(lent) => self.members.holders(self.layout.spare_cell(lent.slot, row)),
        }
    }

    pub(super) async fn fill_row(&self, goal: &Goal, row: u64) -> Outcome {
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
            // A target of by now that was not written would count as having it.
            if is_same(&targets, &self.targets(goal, row)) {
                if self.is_wanted(goal) {
                    goal.progress().add(row);
                }
                return Ok(());
            }
        }
    }

    /// The same as [`Self::fill_cell`]; lost blocks do not keep the rest from being rebuilt.
    async fn fill_or_mend(&self, home: StripCell, stripe: Stripe, targets: &Holders) -> Outcome {
        match self.fill_cell(home, targets).await {
            Err(error) if !matches!(error.cause(), Cause::Timeout { .. }) => {
                self.mend(stripe).await?;
                self.fill_cell(home, targets).await
            }
            outcome => outcome,
        }
    }

    /// Writes the contents of a cell to the targets. The stripe is locked by the caller.
    async fn fill_cell(&self, home: StripCell, targets: &Holders) -> Outcome {
        let mut repairs = 0;
        while let Some(member) = self.members.holder(home) {
            let error = match self.copy_strip(&member, targets, home.row).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if matches!(error.cause(), Cause::Gone | Cause::Timeout { .. }) {
                self.fail_member(&member).await;
            } else if repairs < REPAIRS_MAX {
                repairs += 1;
                self.repair_strip(home, error).await?;
            } else {
                return Err(error);
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
        // The device of one that was removed meanwhile may be used elsewhere.
        let mut targets = targets.clone();
        targets.retain(|target| self.members.is_present(target));
        let write = || Request::write(offset, content.clone());
        let writes = targets.iter().map(|target| self.operate(target, write()));
        let outcomes = join_all(writes.collect()).await;
        self.conclude_writes(&targets, outcomes).await
    }

    /// Reconstructs a strip from the others and writes it to the members that have or fill its
    /// role. The stripe is locked by the caller.
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
        self.record_progress(|_| {}).await
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
        // A request without the former member is acknowledged only when this is recorded.
        self.change_record(|_| {}).await?;
        Ok(Filled::Whole { before: before.map(|member| Rc::clone(&member.device)) })
    }
}

fn is_same(before: &Holders, now: &Holders) -> bool {
    before.len() == now.len() && before.iter().zip(now).all(|(one, two)| Rc::ptr_eq(one, two))
}
