//! Whether the thread, when a message wakes it, preempts the running process.
//!
//! A peer with many requests in flight is preempted after the first one that it sends, where both
//! share a processor: this thread wakes, completes that one and sleeps, and the peer continues with
//! the second. A peer with one request in flight has nothing else to do, and should get its reply
//! immediately.
//!
//! 1. *Prompt*, with the thread's original policy. A message from a peer that has unread replies is
//!    a sign that it was preempted.
//! 2. *Patient*, once there have been [`SIGNS_MAX`] such messages more than others: SCHED_BATCH,
//!    under which a wake-up waits until the peer sleeps, or its slice ends.
//! 3. Prompt again after [`PATIENT_MESSAGES`], on probation: the next sign suffices.
//!
//! **Invariants**
//! - A thread with a policy other than SCHED_OTHER keeps it.
//! - A thread whose ring was dropped has its original policy.
//!
//! **Source**: sched(7). Measured with 4 KiB reads at depth 32 by fio over NBD, both on one
//! processor: the server woke 0.84 times a request and 0.03 times when patient. sched_yield(2) does
//! the same only for peers of the same control group, and loses whole slices to unrelated
//! processes.

use std::cell::Cell;

/// Signs before a thread becomes patient.
const SIGNS_MAX: u32 = 4;
/// Messages for which it stays patient.
const PATIENT_MESSAGES: u32 = 256;

#[derive(Default)]
pub(super) struct Patience {
    judge: Cell<Judge>,
    standing: Cell<Standing>,
}

/// The policy of the thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Prompt,
    Patient,
    /// Its policy is not changed.
    Fixed,
}

/// The policy that the messages call for.
#[derive(Clone, Copy, Debug, Default)]
struct Judge {
    /// Signs, less the messages without one.
    signs: u32,
    /// Messages for which the thread is still patient.
    patient_messages: u32,
}

impl Patience {
    /// A message was received; `was_cut_short` checks whether its sender has unread replies.
    pub fn message(&self, was_cut_short: impl FnOnce() -> bool) {
        if self.standing.get() == Standing::Fixed {
            return;
        }
        let mut judge = self.judge.get();
        let wanted = judge.message(was_cut_short);
        self.judge.set(judge);
        if wanted != self.standing.get() {
            self.standing.set(change_to(wanted));
        }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        if self.standing.get() == Standing::Patient {
            change_to(Standing::Prompt);
        }
    }
}

impl Judge {
    fn message(&mut self, was_cut_short: impl FnOnce() -> bool) -> Standing {
        if self.patient_messages > 0 {
            self.patient_messages -= 1;
        } else if was_cut_short() {
            self.signs += 1;
        } else {
            self.signs = self.signs.saturating_sub(1);
        }
        if self.signs == SIGNS_MAX {
            self.signs = SIGNS_MAX - 1;
            self.patient_messages = PATIENT_MESSAGES;
        }
        if self.patient_messages > 0 { Standing::Patient } else { Standing::Prompt }
    }
}

/// The policy after the attempt.
fn change_to(wanted: Standing) -> Standing {
    let (from, to) = match wanted {
        Standing::Patient => (libc::SCHED_OTHER, libc::SCHED_BATCH),
        Standing::Prompt => (libc::SCHED_BATCH, libc::SCHED_OTHER),
        Standing::Fixed => unreachable!("nobody asks for it"),
    };
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: both calls mean the calling thread, and the parameters outlive the second one.
    let is_changed = unsafe {
        libc::sched_getscheduler(0) == from && libc::sched_setscheduler(0, to, &parameters) == 0
    };
    if is_changed { wanted } else { Standing::Fixed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `count` messages, all of one kind, found or made the thread patient.
    fn patient_among(judge: &mut Judge, count: u32, was_cut_short: bool) -> u32 {
        (0..count).map(|_| u32::from(judge.message(|| was_cut_short) == Standing::Patient)).sum()
    }

    #[test]
    fn peer_that_has_read_everything_is_answered_promptly() {
        let mut judge = Judge::default();
        assert_eq!(patient_among(&mut judge, 10_000, false), 0);
    }

    #[test]
    fn occasional_sign_among_other_messages_does_not_make_patient() {
        let mut judge = Judge::default();
        for _ in 0..1000 {
            assert_eq!(patient_among(&mut judge, SIGNS_MAX - 1, true), 0);
            assert_eq!(patient_among(&mut judge, SIGNS_MAX - 1, false), 0);
        }
    }

    #[test]
    fn busy_peer_is_met_with_patience_nearly_always() {
        let mut judge = Judge::default();
        assert_eq!(patient_among(&mut judge, SIGNS_MAX, true), 1);
        let count = 100 * (PATIENT_MESSAGES + 1);
        assert_eq!(patient_among(&mut judge, count, true), count - 100);
    }

    #[test]
    fn peer_that_is_busy_no_more_is_answered_promptly_again() {
        let mut judge = Judge::default();
        patient_among(&mut judge, SIGNS_MAX, true);
        assert_eq!(patient_among(&mut judge, 10_000, false), PATIENT_MESSAGES - 1);
    }

    #[test]
    fn patient_thread_does_not_ask_the_socket() {
        let mut judge = Judge::default();
        patient_among(&mut judge, SIGNS_MAX, true);
        judge.message(|| panic!("asked"));
    }

    fn policy() -> i32 {
        // SAFETY: asks about the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn thread_changes_its_policy_and_leaves_as_it_came() {
        if policy() != libc::SCHED_OTHER {
            headpond_testkit::skip!("patience of a thread", "the tests run under another policy");
        }
        let patience = Patience::default();
        (0..SIGNS_MAX).for_each(|_| patience.message(|| true));
        assert_eq!(policy(), libc::SCHED_BATCH);
        (0..PATIENT_MESSAGES).for_each(|_| patience.message(|| true));
        assert_eq!(policy(), libc::SCHED_OTHER);
        patience.message(|| true);
        assert_eq!(policy(), libc::SCHED_BATCH);
        drop(patience);
        assert_eq!(policy(), libc::SCHED_OTHER);
    }

    #[test]
    fn policy_that_somebody_else_chose_stays() {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: changes the calling thread, which ends with this test.
        assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameters) }, 0);
        let patience = Patience::default();
        (0..10 * PATIENT_MESSAGES).for_each(|_| patience.message(|| true));
        drop(patience);
        assert_eq!(policy(), libc::SCHED_BATCH);
    }
}
