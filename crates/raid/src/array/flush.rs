//! Making what was written stable, and the orderly end.

use headpond_block::sync::join_all;
use headpond_block::{Outcome, Submission};

use super::Array;
use crate::intent::Settling;
use crate::layout::Role;
use crate::superblock::RecordedState;

impl Array {
    /// Makes every write that was acknowledged before stable on all members. A member that cannot
    /// is taken out of use; what it held is then stable on the others.
    pub(super) async fn flush(&self) -> Outcome {
        let settling = self.intents.as_ref().map(|it| it.bitmap.borrow_mut().flush_begins());
        let outcome = self.flush_members().await;
        self.end_interval(settling, outcome.is_ok());
        outcome
    }

    /// Stops the array: later writes are refused, those in flight are waited for, everything is
    /// flushed and recorded as clean.
    ///
    /// # Errors
    /// Where the array has lost too many members; it then stays recorded as in use.
    pub async fn stop(&self) -> Outcome {
        if self.stopped.replace(true) {
            return Ok(());
        }
        self.writers.gone().await;
        self.flush_members().await?;
        if let Some(intents) = &self.intents {
            intents.bitmap.borrow_mut().clear();
        }
        if self.torn.borrow().is_empty() {
            self.write_outdated_pages().await?;
            self.change_record(|record| record.state = RecordedState::Clean).await?;
        }
        Ok(())
    }

    pub(crate) async fn flush_members(&self) -> Outcome {
        let mut failed = Vec::new();
        let (targets, flushes): (Vec<(Role, u64)>, Vec<Submission<'_>>) = self
            .members
            .iter()
            .filter(|(role, _)| role.index() != 1 || !headpond_block::defect!(FlushAllButOne))
            .filter_map(|(role, member)| {
                let writes = match self.layout.redundancy() {
                    // Its writes pass by unseen, so any of them may be unflushed.
                    0 => 0,
                    _ => member.unflushed_writes()?,
                };
                Some(((role, writes), member.active()?.flush()))
            })
            .unzip();
        for ((role, writes), outcome) in targets.into_iter().zip(join_all(flushes).await) {
            match outcome {
                Ok(()) => self.members.get(role).note_flushed(writes),
                Err(error) => failed.push((role, error)),
            }
        }
        for (role, error) in failed {
            if self.layout.redundancy() == 0 {
                return Err(error);
            }
            self.fail_member(role).await;
        }
        self.settle().await;
        self.check_intact()
    }

    fn end_interval(&self, settling: Option<Settling>, succeeded: bool) {
        let (Some(intents), Some(settling)) = (&self.intents, settling) else { return };
        let mut bitmap = intents.bitmap.borrow_mut();
        match succeeded {
            true => bitmap.flush_succeeded(settling),
            false => bitmap.flush_failed(settling),
        }
    }
}
