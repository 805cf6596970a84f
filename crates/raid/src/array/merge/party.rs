//! Writes of one stripe that share a plan, and what they wait for.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use headpond_block::executor::Sleep;
use headpond_block::sync::Sender;
use headpond_block::{Hints, Instant, Outcome, RequestFlags, Runtime};

use super::StripeWrite;
use crate::array::scratch::Payload;
use crate::layout::Stripe;
use crate::merge::batch::Batch;
use crate::merge::streams::StreamId;

/// Writes that share a plan.
pub(super) struct Party {
    pub(super) stripe: Stripe,
    pub(super) flags: RequestFlags,
    pub(super) hints: Hints,
    payload: Payload,
    pub(super) batch: RefCell<Batch>,
    /// Everyone but the leader.
    pub(super) others: RefCell<Vec<Sender<Outcome>>>,
    pub(super) wait: RefCell<Option<Wait>>,
    pub(super) leader: RefCell<Option<Waker>>,
}

/// What a leader waits for.
pub(super) struct Wait {
    pub(super) stream: StreamId,
    pub(super) since: Instant,
    pub(super) until: Instant,
    /// Of the requests that wait, as the stream knows them.
    pub(super) request_bytes: u64,
}

impl Party {
    pub(super) fn of(job: &StripeWrite) -> Self {
        let party = Self {
            stripe: job.stripe,
            flags: job.flags,
            hints: job.hints,
            payload: job.payload(),
            batch: RefCell::default(),
            others: RefCell::default(),
            wait: RefCell::default(),
            leader: RefCell::default(),
        };
        party.add(job);
        party
    }

    pub(super) fn add(&self, job: &StripeWrite) {
        let mut batch = self.batch.borrow_mut();
        for (extent, data) in job.extents.iter().zip(&job.data) {
            batch.add(extent.clone(), data.clone());
        }
    }

    /// Whether `job` can be carried out together with what is there.
    pub(super) fn suits(&self, job: &StripeWrite) -> bool {
        let batch = self.batch.borrow();
        (self.flags, self.hints, self.payload) == (job.flags, job.hints, job.payload())
            && !job.extents.iter().any(|extent| batch.overlaps(extent))
    }

    /// The stream of which it waits for more.
    pub(super) fn stream(&self) -> Option<StreamId> {
        self.wait.borrow().as_ref().map(|wait| wait.stream)
    }

    /// What of a stream waits here.
    pub(super) fn waiting_bytes(&self, stream: StreamId) -> Option<u64> {
        let wait = self.wait.borrow();
        wait.as_ref().filter(|wait| wait.stream == stream).map(|wait| wait.request_bytes)
    }

    pub(super) fn extend_wait(&self, until: Instant, wait_max: Duration) {
        if let Some(wait) = &mut *self.wait.borrow_mut() {
            wait.until = until.min(wait.since + wait_max);
        }
    }

    /// Ready when the party is released, or its time is up.
    pub(super) fn poll_wait(
        &self,
        runtime: &Runtime,
        timer: &mut Option<Sleep>,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        loop {
            let Some(until) = self.wait.borrow().as_ref().map(|wait| wait.until) else {
                return Poll::Ready(());
            };
            let sleep = timer.get_or_insert_with(|| runtime.sleep_until(until));
            if Pin::new(sleep).poll(context).is_pending() {
                self.leader.replace(Some(context.waker().clone()));
                return Poll::Pending;
            }
            *timer = None;
            if runtime.now() >= until {
                return Poll::Ready(());
            }
        }
    }
}
