//! Giving a spare what a role holds, row by row, while requests are served.
//!
//! 1. a row's stripe is locked; 2. what the role holds there is read from its member, or made from
//!    the others; 3. it is written to the spare, which holds the row from then on and gets what is
//!    written there; 4. now and then the spare is flushed and the rows are recorded, so that a
//!    start goes on from there; 5. at the end the spare has the role, and who had it is out.
//!
//! **Invariants**: nothing is read from a row of the spare that was not filled; what is recorded as
//! filled is stable.

use std::rc::Rc;
use std::time::Duration;

use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffers, DeviceError, Outcome, Request, Submission};

use super::members::Filling;
use super::parity_write::REPAIRS_MAX;
use super::rebuild::Rebuild;
use super::scratch::Payload;
use super::{Array, Member};
use crate::layout::{Role, StripCell};
use crate::plan::StripRead;

/// Rows filled side by side: neighbours on each member, so that its queue is served in one sweep.
const ROWS_AT_A_TIME: u64 = 16;
/// What a cut costs at most.
const RECORDED_EVERY: Duration = Duration::from_secs(30);

/// How [`Array::fill`] ended.
pub enum Filled {
    /// The spare has the role. Whoever had it before still carries a superblock, which calls it a
    /// member; whoever keeps a list of the devices takes it off and erases that.
    Whole { before: Option<Rc<dyn BlockDevice>> },
    /// The caller did not let it go on; what was filled is recorded.
    Paused,
    /// The spare failed or was removed.
    Gone,
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
        mut go_on: impl AsyncFnMut() -> bool,
    ) -> Result<Filled, DeviceError> {
        let Some(filling) = self.members.slot(role).filling() else { return Ok(Filled::Gone) };
        let mut recorded_at = self.runtime.now();
        while filling.rows() < self.layout.rows() {
            self.fill_rows(role, &filling).await?;
            if !self.members.is_present(&filling.member) {
                return Ok(Filled::Gone);
            }
            let goes_on = go_on().await;
            if !goes_on || self.runtime.now().since(recorded_at) >= RECORDED_EVERY {
                self.record_filled(&filling).await?;
                recorded_at = self.runtime.now();
            }
            if !goes_on {
                return Ok(Filled::Paused);
            }
        }
        self.finish_filling(role, &filling).await
    }

    async fn fill_rows(&self, role: Role, filling: &Rc<Filling>) -> Outcome {
        let start = filling.rows();
        let end = self.layout.rows().min(start + ROWS_AT_A_TIME);
        let rows = (start..end).map(|row| Submission::pending(self.fill_row(role, filling, row)));
        join_all(rows.collect()).await.into_iter().collect()
    }

    async fn fill_row(&self, role: Role, filling: &Rc<Filling>, row: u64) -> Outcome {
        let cell = StripCell { role, row };
        let (stripe, _) = self.layout.strip_in(cell);
        let _lock = self.locks.lock(stripe.0).await;
        self.check_writable()?;
        if filling.holds(row) || !self.members.is_present(&filling.member) {
            return Ok(());
        }
        match self.members.active(role).is_some() {
            true => self.copy_cell(cell, filling).await?,
            false => self.recover_cell(cell).await?,
        }
        if self.members.is_present(&filling.member) {
            filling.add(row);
        }
        Ok(())
    }

    /// Copies a strip from the member that has the role.
    async fn copy_cell(&self, cell: StripCell, filling: &Rc<Filling>) -> Outcome {
        let mut repairs = 0;
        while let Some(member) = self.members.active(cell.role) {
            let error = match self.copy_strip(&member, filling, cell.row).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match error {
                DeviceError::Gone { .. } | DeviceError::Timeout { .. } => {
                    self.fail_member(&member).await;
                }
                error if repairs < REPAIRS_MAX => {
                    repairs += 1;
                    self.repair_strip(cell, error).await?;
                }
                error => return Err(error),
            }
        }
        self.recover_cell(cell).await
    }

    /// # Errors
    /// Where the strip cannot be read.
    async fn copy_strip(&self, member: &Rc<Member>, filling: &Rc<Filling>, row: u64) -> Outcome {
        let len = self.layout.strip_bytes() as usize;
        let memory = self.scratch.allow(len, Payload::Bytes).await;
        let content: Buffers = memory.take(len).into();
        let offset = self.layout.row_start(row);
        self.operate(member, Request::read(offset, content.clone())).await?;
        let write = self.operate(&filling.member, Request::write(offset, content));
        self.conclude_writes(&[Rc::clone(&filling.member)], vec![write.await]).await
    }

    /// Makes a strip that nobody has from the others of its stripe.
    async fn recover_cell(&self, cell: StripCell) -> Outcome {
        self.repair_strip(cell, self.gone()).await
    }

    /// Makes a strip anew from the others and writes it to whoever has its role, or is being given
    /// it. The stripe is locked by the caller.
    ///
    /// # Errors
    /// `error`, where the others do not suffice.
    pub(super) async fn repair_strip(&self, cell: StripCell, error: DeviceError) -> Outcome {
        let (stripe, strip) = self.layout.strip_in(cell);
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
    async fn record_filled(&self, filling: &Rc<Filling>) -> Outcome {
        let (member, rows) = (&filling.member, filling.rows());
        let writes = member.unflushed_writes().unwrap_or(0);
        match self.flush_member(member).await {
            Ok(()) => member.note_flushed(writes),
            Err(_) => {
                self.fail_member(member).await;
                return self.check_intact();
            }
        }
        filling.record(rows);
        self.change_record(|_| {}).await
    }

    async fn finish_filling(
        &self,
        role: Role,
        filling: &Rc<Filling>,
    ) -> Result<Filled, DeviceError> {
        self.record_filled(filling).await?;
        if !self.members.is_present(&filling.member) {
            return Ok(Filled::Gone);
        }
        let before = self.members.end_filling(role);
        if let Some(absence) = self.absence.as_ref().filter(|_| !self.members.is_degraded()) {
            absence.end();
        }
        // Whoever did without the one before is acknowledged only when this is recorded.
        self.change_record(|_| {}).await?;
        Ok(Filled::Whole { before: before.map(|member| Rc::clone(&member.device)) })
    }
}
