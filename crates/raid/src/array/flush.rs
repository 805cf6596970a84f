//! Flushing the members, and the clean shutdown.

use std::rc::Rc;

use headpond_block::sync::join_all;
use headpond_block::{Outcome, Request, RequestKind, Submission};

use super::operation::Operation;
use super::{Array, Member};
use crate::intent::Settling;
use crate::layout::Role;
use crate::superblock::RecordedState;

/// The state that the owner of an array, a cache, reported when it stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerStopped {
    /// How far it has lived, where it has stopped.
    pub life: Option<u64>,
    /// It holds nothing that the array lacks.
    pub lacks_nothing: bool,
}

impl Array {
    /// Makes every write that was acknowledged before stable on all members. A member that cannot
    /// flush is failed; its data is then stable on the others.
    pub(super) async fn flush(&self) -> Outcome {
        self.merging.hurry();
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
        self.stop_after(OwnerStopped::default()).await
    }

    /// The same, and records how its owner has stopped before.
    ///
    /// # Errors
    /// As there.
    pub async fn stop_after(&self, owner: OwnerStopped) -> Outcome {
        if self.stopped.replace(true) {
            return Ok(());
        }
        let former_stopped = match self.former() {
            Some(former) => Box::pin(former.stop()).await,
            None => Ok(()),
        };
        self.merging.hurry();
        self.writers.gone().await;
        self.flush_members().await?;
        if let Some(intents) = &self.intents {
            intents.bitmap.borrow_mut().clear();
        }
        self.write_signed().await?;
        if !self.has_torn() {
            self.write_outdated_pages().await?;
            let is_clean = owner.lacks_nothing && former_stopped.is_ok();
            self.change_record(|record| {
                record.state = RecordedState::Clean;
                record.owner_life = owner.life.unwrap_or(record.owner_life);
                record.owner_clean_since = is_clean.then_some(record.event_count + 1);
            })
            .await?;
        }
        former_stopped
    }

    pub(crate) async fn flush_members(&self) -> Outcome {
        let records = self.records_done();
        let mut failed = Vec::new();
        let is_flushed = |member: &Rc<Member>| {
            member.role() != Some(Role(1)) || !headpond_block::defect!(FlushAllButOne)
        };
        let present = self.members.present().into_iter().filter(is_flushed);
        let (targets, flushes): (Vec<(Rc<Member>, u64)>, Vec<Operation<'_>>) = present
            .filter_map(|member| {
                let writes = match self.layout.redundancy() {
                    // Its writes pass by unseen, so any of them may be unflushed.
                    0 => 0,
                    _ => member.unflushed_writes()?,
                };
                let flush = self.flush_member(&member);
                Some(((member, writes), flush))
            })
            .unzip();
        for ((member, writes), outcome) in targets.into_iter().zip(join_all(flushes).await) {
            match outcome {
                Ok(()) => member.note_flushed(writes),
                Err(error) => failed.push((member, error)),
            }
        }
        for (member, error) in failed {
            if self.layout.redundancy() == 0 {
                return Err(error);
            }
            self.fail_member(&member).await;
        }
        self.settle().await;
        self.check_intact()?;
        if let Some((journal, done)) = records {
            journal.note_flushed(done);
        }
        Ok(())
    }

    /// From now on a member that does not respond may be failed.
    pub(crate) fn note_begun(&self) {
        self.is_begun.set(true);
    }

    /// Flushes one member.
    pub(super) fn flush_member(&self, member: &Rc<Member>) -> Operation<'_> {
        let flush = Submission::on(Rc::clone(&member.device), Request::flush());
        self.watched(member, flush, RequestKind::Flush)
    }

    fn end_interval(&self, settling: Option<Settling>, succeeded: bool) {
        let (Some(intents), Some(settling)) = (&self.intents, settling) else { return };
        let mut bitmap = intents.bitmap.borrow_mut();
        match succeeded {
            true => {
                bitmap.flush_succeeded(settling);
                // They are torn still after a cut.
                self.torn.borrow().keys().for_each(|stripe| bitmap.mark(*stripe..=*stripe));
            }
            false => bitmap.flush_failed(settling),
        }
    }
}
