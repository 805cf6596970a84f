//! Rebuilding a run of rows of a mirror at once: one read of a copy and one write, however many
//! strips that is. With an operation for each strip a drive would have fewer requests of clients to
//! schedule, and be busy with the rebuild for longer.
//!
//! **Not here**: rows that cannot be rebuilt like that, which are filled one by one (`fill`).

use std::ops::Range;
use std::rc::Rc;

use headpond_block::sync::{KeyGuard, join_all};
use headpond_block::{Buffers, Outcome, Request, Submission};

use super::fill::Goal;
use super::members::Filling;
use super::scratch::{Allowance, Payload};
use super::{Array, Member};
use crate::layout::{Role, StripCell, Stripe};

impl Array {
    /// Fills neighbouring rows of a role; what a sweep does not get is filled row by row.
    pub(super) async fn fill_run(&self, goal: &Goal, rows: Range<u64>) -> Outcome {
        if let Goal::Device(role, filling) = goal
            && self.layout.level().is_mirrored()
        {
            for rows in self.sweeps(rows.clone()) {
                if self.sweep(*role, filling, rows).await.is_err() {
                    // What a member is to blame for, the rows find out one by one.
                    break;
                }
            }
        }
        let lacking = rows.filter(|row| !goal.progress().holds(*row));
        let fills = lacking.map(|row| Submission::pending(self.fill_row(goal, row)));
        join_all(fills.collect()).await.into_iter().fold(Ok(()), Outcome::and)
    }

    /// Parts of a run that memory allows.
    fn sweeps(&self, rows: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let bytes = self.scratch.bytes_max() / super::beside::SCRATCH_SHARE;
        let most = (bytes / u64::from(self.layout.strip_bytes())).max(1);
        let starts = rows.clone().step_by(most as usize);
        starts.map(move |start| start..rows.end.min(start + most))
    }

    /// Copies rows to the member that is on its way to their role, where one other has them all.
    ///
    /// # Errors
    /// Of either member; none of the rows counts as filled then.
    async fn sweep(&self, role: Role, filling: &Filling, rows: Range<u64>) -> Outcome {
        let _locks = self.lock_rows(role, rows.clone()).await;
        self.check_writable()?;
        let is_lacking = rows.clone().all(|row| !filling.progress.holds(row));
        let is_wanted = || self.members.is_present(&filling.member);
        let source = self.copy_of(role).filter(|_| is_lacking && is_wanted());
        let Some(source) = source else { return Ok(()) };
        let (_memory, content) = self.rows_memory(rows.end - rows.start).await;
        let offset = self.layout.row_start(rows.start);
        self.operate(&source, Request::read(offset, content.clone())).await?;
        if !is_wanted() {
            // Its device is used elsewhere by now.
            return Ok(());
        }
        self.operate(&filling.member, Request::write(offset, content)).await?;
        filling.member.note_write();
        if is_wanted() {
            rows.for_each(|row| filling.progress.add(row));
        }
        Ok(())
    }

    /// Memory for rows.
    async fn rows_memory(&self, rows: u64) -> (Allowance<'_>, Buffers) {
        let strip_bytes = self.layout.strip_bytes() as usize;
        let memory = self.scratch.allow(rows as usize * strip_bytes, Payload::Bytes).await;
        let mut content = Buffers::new();
        (0..rows).for_each(|_| content.push(memory.take(strip_bytes)));
        (memory, content)
    }

    /// Locks the stripes of rows in ascending order.
    async fn lock_rows(&self, role: Role, rows: Range<u64>) -> Vec<KeyGuard> {
        let mut locks = Vec::with_capacity((rows.end - rows.start) as usize);
        for row in rows {
            let Stripe(stripe) = self.stripe_of_row(role, row);
            locks.push(self.locks.lock(stripe).await);
        }
        locks
    }

    fn stripe_of_row(&self, role: Role, row: u64) -> Stripe {
        let (stripe, _) = self.layout.strip_in(StripCell { role, row }).expect("rows of a mirror");
        stripe
    }

    /// The member that has a role, or else another copy of all that it holds.
    fn copy_of(&self, role: Role) -> Option<Rc<Member>> {
        let stripe = self.stripe_of_row(role, 0);
        let copies = (0..self.layout.copies()).map(|copy| self.layout.cell_of_copy(stripe, copy));
        let own = self.members.active(role);
        own.or_else(|| copies.into_iter().find_map(|cell| self.members.active(cell.role)))
    }
}
