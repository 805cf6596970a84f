//! Writes to one stripe that share one plan.
//!
//! 1. A write that finds its stripe free, and that continues no stream, is written alone.
//! 2. Others of a stripe form a *party*: the first leads it, the next join. While another holds the
//!    lock of the stripe, that costs no extra waiting.
//! 3. The leader of a party of a stream waits while more can arrive (`merge::streams`), and no
//!    longer than the limit; a flush, or the end of the array, ends the waiting.
//! 4. With the lock, the leader closes the party, executes it and passes the outcome to all.
//!
//! **Invariants**
//! - The writes of a party have the same flags and hints and do not overlap. Its lock is not held
//!   while it waits for more.
//! - A write that has to be stable by itself, or whose parity is to be recomputed, does not wait.
//! - When a leader is dropped its party is dissolved, and each of the others is written alone.

mod party;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::time::Duration;

use headpond_block::sync::{KeyGuard, Receiver, Sender, oneshot};
use headpond_block::{Outcome, Request, Runtime};
use smallvec::SmallVec;

use super::Array;
use super::parity_write::StripeWrite;
use crate::layout::{Layout, Stripe};
use crate::merge::streams::{Outlook, StreamId, Streams};
use crate::merge::{MergeConfig, MergeWait};
use party::{Party, Wait};

/// Taken for what writing a stripe takes, until one of a stream was written.
const WRITE_TIME_FIRST: Duration = Duration::from_millis(2);
/// Longest that a write waits where the array is to find out how long.
const ADAPTIVE_WAIT_MAX: Duration = Duration::from_millis(50);

/// What writes of an array wait for others.
pub(super) struct Merging {
    runtime: Runtime,
    strips: usize,
    strip_bytes: u32,
    config: Cell<MergeConfig>,
    streams: RefCell<Streams>,
    /// Those that can still be joined.
    parties: RefCell<BTreeMap<Stripe, Rc<Party>>>,
    /// Those whose leaders wait for more.
    held: RefCell<Vec<Rc<Party>>>,
    held_bytes: Cell<u64>,
    /// The recent time of writing a stripe.
    write_time: Cell<Duration>,
}

/// A write of a stream, in flight until dropped.
pub(super) struct Sighting<'a> {
    merging: &'a Merging,
    stream: StreamId,
    bytes: u64,
}

/// A party that is open, dissolved when dropped.
struct Leading<'a> {
    merging: &'a Merging,
    party: Rc<Party>,
}

impl Merging {
    pub(super) fn new(runtime: Runtime, layout: &Layout) -> Self {
        Self {
            runtime,
            strips: layout.data_strips(),
            strip_bytes: layout.strip_bytes(),
            config: Cell::default(),
            streams: RefCell::new(Streams::new(layout.stripe_bytes())),
            parties: RefCell::default(),
            held: RefCell::default(),
            held_bytes: Cell::new(0),
            write_time: Cell::new(WRITE_TIME_FIRST),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.config.get().wait != MergeWait::Off
    }

    /// Watches a write that has come.
    pub(super) fn sight(&self, request: &Request) -> Option<Sighting<'_>> {
        if !self.is_on() {
            return None;
        }
        let bytes = request.range.len();
        let stream = self.streams.borrow_mut().arrived(request.range)?;
        Some(Sighting { merging: self, stream, bytes })
    }

    /// No party waits for more any longer.
    pub(super) fn hurry(&self) {
        while let Some(party) = self.last_held() {
            self.release(&party);
        }
    }

    /// Checks which parties wait for more, and for what; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub(super) fn self_check(&self) {
        let (parties, held) = (self.parties.borrow(), self.held.borrow());
        let streams = self.streams.borrow();
        streams.self_check();
        let waits = |party: &&Rc<Party>| party.stream().is_some();
        for (stripe, party) in &*parties {
            assert_eq!(party.stripe, *stripe, "a party is found by its stripe");
        }
        assert_eq!(parties.values().filter(waits).count(), held.len(), "who waits is held");
        let mut bytes = 0;
        for party in &*held {
            let known = parties.get(&party.stripe);
            assert!(known.is_some_and(|it| Rc::ptr_eq(it, party)), "who is held can be joined");
            assert!(waits(&party), "who waits is held");
            bytes += party.batch.borrow().bytes();
        }
        assert_eq!(bytes, self.held_bytes.get(), "what is held is added up");
        for stream in held.iter().filter_map(|party| party.stream()) {
            let waits = held.iter().filter_map(|party| party.waiting_bytes(stream));
            assert_eq!(waits.sum::<u64>(), streams.held_bytes(stream), "a stream waits so much");
        }
    }

    fn last_held(&self) -> Option<Rc<Party>> {
        self.held.borrow().last().cloned()
    }

    /// The leader of a party goes on.
    fn release(&self, party: &Rc<Party>) {
        let Some(wait) = party.wait.take() else { return };
        self.streams.borrow_mut().released(wait.stream, wait.request_bytes);
        self.held.borrow_mut().retain(|other| !Rc::ptr_eq(other, party));
        self.held_bytes.set(self.held_bytes.get() - party.batch.borrow().bytes());
        if let Some(waker) = party.leader.take() {
            waker.wake();
        }
    }

    /// The party of a stripe that can still be joined.
    fn open_party(&self, stripe: Stripe) -> Option<Rc<Party>> {
        self.parties.borrow().get(&stripe).cloned()
    }

    /// Opens a party for `job`.
    fn open(&self, job: &StripeWrite) -> Leading<'_> {
        let party = Rc::new(Party::of(job));
        let before = self.parties.borrow_mut().insert(job.stripe, Rc::clone(&party));
        assert!(before.is_none(), "a stripe has one party at a time");
        Leading { merging: self, party }
    }

    /// Adds a write to a party; the receiver gets its outcome.
    fn join(
        &self,
        party: &Party,
        job: &StripeWrite,
        sighting: Option<&Sighting<'_>>,
    ) -> Receiver<Outcome> {
        let (sender, receiver) = oneshot();
        party.add(job);
        party.others.borrow_mut().push(sender);
        if let Some(wait) = &mut *party.wait.borrow_mut() {
            self.held_bytes.set(self.held_bytes.get() + job.bytes());
            if let Some(sighting) = sighting.filter(|sighting| sighting.stream == wait.stream) {
                wait.request_bytes += sighting.bytes;
                self.streams.borrow_mut().held(wait.stream, sighting.bytes);
            }
        }
        receiver
    }

    /// Has a party wait for more of its stream, where more can come and there is room for it.
    fn hold(&self, party: &Rc<Party>, sighting: &Sighting<'_>) {
        let bytes = party.batch.borrow().bytes();
        let config = self.config.get();
        if config.wait == MergeWait::AtMost(Duration::ZERO)
            || self.held_bytes.get() + bytes > config.bytes_max
        {
            return;
        }
        let (stream, request_bytes, now) = (sighting.stream, sighting.bytes, self.runtime.now());
        party.wait.replace(Some(Wait { stream, since: now, until: now, request_bytes }));
        self.streams.borrow_mut().held(stream, request_bytes);
        self.held.borrow_mut().push(Rc::clone(party));
        self.held_bytes.set(self.held_bytes.get() + bytes);
        self.reconsider(stream);
    }

    /// What waits for more of a stream goes on where nothing can come any longer.
    fn reconsider(&self, stream: StreamId) {
        let held = self.held.borrow();
        if held.is_empty() {
            return;
        }
        let of_stream = held.iter().filter(|party| party.stream() == Some(stream));
        let of_stream: SmallVec<[Rc<Party>; 2]> = of_stream.cloned().collect();
        drop(held);
        let now = self.runtime.now();
        for party in of_stream {
            match self.outlook(&party, stream) {
                Outlook::Nothing => self.release(&party),
                outlook => party.extend_wait(now + self.deadlines(outlook), self.wait_max()),
            }
        }
    }

    fn outlook(&self, party: &Party, stream: StreamId) -> Outlook {
        let missing = party.batch.borrow().missing_bytes(self.strips, self.strip_bytes);
        self.streams.borrow().outlook(stream, missing)
    }

    /// Ends the waiting of a party whose time is up. Where more could have come at once, less can
    /// than was thought.
    fn give_up(&self, party: &Rc<Party>) {
        let Some(stream) = party.stream() else { return };
        if self.outlook(party, stream) == Outlook::AtOnce {
            self.streams.borrow_mut().waited_in_vain(stream);
        }
        self.release(party);
    }

    fn note_write_time(&self, taken: Duration) {
        self.write_time.set((self.write_time.get() * 7 + taken) / 8);
    }

    /// How long to wait with such prospects.
    fn deadlines(&self, outlook: Outlook) -> Duration {
        let MergeWait::Adaptive = self.config.get().wait else { return Duration::MAX };
        match outlook {
            Outlook::Nothing => Duration::ZERO,
            // Waiting half as long as the write takes costs less than a second write would.
            Outlook::AtOnce => self.write_time.get() / 2,
            // Those that are being written began before this one came.
            Outlook::AfterAnswers => self.write_time.get() * 2,
        }
    }

    fn wait_max(&self) -> Duration {
        match self.config.get().wait {
            MergeWait::Off => Duration::ZERO,
            MergeWait::Adaptive => ADAPTIVE_WAIT_MAX,
            MergeWait::AtMost(wait) => wait,
        }
    }
}

impl Drop for Sighting<'_> {
    fn drop(&mut self) {
        self.merging.streams.borrow_mut().answered(self.stream, self.bytes);
        self.merging.reconsider(self.stream);
    }
}

impl Leading<'_> {
    /// Waits for as long as more can come.
    async fn wait(&self) {
        let mut timer = None;
        let runtime = &self.merging.runtime;
        poll_fn(|context| self.party.poll_wait(runtime, &mut timer, context)).await;
        self.merging.give_up(&self.party);
    }

    /// Closes the party: the writes, and the receivers of the outcome.
    fn close(self) -> (StripeWrite, Vec<Sender<Outcome>>) {
        let party = Rc::clone(&self.party);
        drop(self);
        let job = StripeWrite::of_batch(party.stripe, party.batch.take(), party.flags, party.hints);
        (job, party.others.take())
    }
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        self.merging.release(&self.party);
        let mut parties = self.merging.parties.borrow_mut();
        if parties.get(&self.party.stripe).is_some_and(|other| Rc::ptr_eq(other, &self.party)) {
            parties.remove(&self.party.stripe);
        }
    }
}

impl Array {
    /// How writes are merged from now on.
    pub fn set_merge(&self, config: MergeConfig) {
        if let Some(former) = self.former() {
            former.set_merge(config);
        }
        self.merging.config.set(config);
        self.merging.hurry();
    }

    /// The lock of a stripe for a write that need not look for others.
    pub(super) fn lock_alone(&self, job: &StripeWrite, is_of_stream: bool) -> Option<KeyGuard> {
        match is_of_stream && job.bytes() < self.layout.stripe_bytes() {
            true => None,
            false => self.locks.try_lock(job.stripe.0),
        }
    }

    /// Writes to a stripe, with others that wait for it or that come while it pays to wait.
    pub(super) async fn write_with_others(
        &self,
        job: StripeWrite,
        sighting: Option<&Sighting<'_>>,
    ) -> Outcome {
        if !self.merging.is_on() || job.bytes() == self.layout.stripe_bytes() {
            return self.write_alone(&job).await;
        }
        match self.merging.open_party(job.stripe) {
            Some(party) if party.suits(&job) => {
                let answer = self.merging.join(&party, &job, sighting);
                self.counters.merged_writes.count();
                drop(party);
                self.reconsider(sighting);
                match answer.await {
                    Some(outcome) => outcome,
                    None => self.write_alone(&job).await,
                }
            }
            Some(_) => self.write_alone(&job).await,
            None => self.lead(job, sighting).await,
        }
    }

    async fn write_alone(&self, job: &StripeWrite) -> Outcome {
        let _lock = self.locks.lock(job.stripe.0).await;
        self.write_locked(job).await
    }

    async fn lead(&self, job: StripeWrite, sighting: Option<&Sighting<'_>>) -> Outcome {
        let leading = self.merging.open(&job);
        if let Some(sighting) = sighting.filter(|_| job.may_wait()) {
            self.merging.hold(&leading.party, sighting);
        }
        self.reconsider(sighting);
        drop(job);
        leading.wait().await;
        let (job, others, outcome);
        {
            let _lock = self.locks.lock(leading.party.stripe.0).await;
            (job, others) = leading.close();
            let began = self.runtime.now();
            outcome = self.write_locked(&job).await;
            self.merging.note_write_time(self.runtime.now() - began);
        }
        for other in others {
            other.send(outcome.clone());
        }
        outcome
    }

    /// A write of a stream has come: what waits for it may wait in vain.
    fn reconsider(&self, sighting: Option<&Sighting<'_>>) {
        if let Some(sighting) = sighting {
            self.merging.reconsider(sighting.stream);
        }
    }
}

#[cfg(test)]
mod tests {
    use headpond_block::{Buffer, Hints, RequestFlags};
    use headpond_testkit::{Break, assert_trips};

    use super::*;
    use crate::level::Level;
    use crate::merge::batch::Batch;
    use crate::plan::Extent;

    const BLOCK: u32 = 4096;

    fn job(strip: u16) -> StripeWrite {
        let mut batch = Batch::default();
        batch.add(Extent { strip, span: 0..BLOCK }, Buffer::zeroed(BLOCK as usize).into());
        StripeWrite::of_batch(Stripe(0), batch, RequestFlags::empty(), Hints::default())
    }

    /// A party of one, which waits for more of its stream.
    fn waiting() -> Merging {
        let made = headpond_sim::run(1, async |runtime, _| {
            let layout = Layout::new(Level::Raid5, 5, 1, BLOCK, 1 << 20).expect("a shape");
            let merging = Merging::new(runtime, &layout);
            let write = |at: u32| {
                let data = Buffer::zeroed(BLOCK as usize);
                merging.sight(&Request::write(u64::from(at * BLOCK), data))
            };
            let sightings: Vec<_> = (0..4).map(write).collect();
            let mut sightings = sightings.into_iter().flatten();
            let first = sightings.next().expect("the third makes a stream");
            // It can send as much again.
            drop(sightings);
            let leading = merging.open(&job(0));
            merging.hold(&leading.party, &first);
            std::mem::forget((first, leading));
            merging
        });
        made.expect("no deadlock")
    }

    #[test]
    fn check_notices_parties_that_nobody_would_release() {
        let breaks: [Break<Merging>; 6] = [
            ("a party is found by its stripe", |it| {
                let party = it.open_party(Stripe(0)).expect("it waits");
                it.parties.borrow_mut().insert(Stripe(1), party);
            }),
            ("who waits is held", |it| it.held.borrow_mut().clear()),
            ("who waits is held", |it| it.parties.borrow_mut().clear()),
            ("what is held is added up", |it| it.held_bytes.set(1)),
            ("what is held is added up", |it| {
                it.open_party(Stripe(0)).expect("it waits").add(&job(1));
            }),
            ("a stream waits so much", |it| {
                let party = it.open_party(Stripe(0)).expect("it waits");
                party.wait.borrow_mut().as_mut().expect("it waits").request_bytes += 1;
            }),
        ];
        assert_trips(waiting, Merging::self_check, &breaks);
    }
}
