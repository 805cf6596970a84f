//! Remote storage as a pure machine.
//!
//! 1. A request joins those in service, each of which gets the same share. 2. Served, its bytes
//!    beyond the first 4 KiB cross the link, one request after the other. 3. It is answered when
//!    they have arrived. A flush is answered after the writes before it.

use super::model::{RemoteModel, Service};
use crate::command::{Answer, Command, CommandKind, Machine, Tag};
use crate::random::Random;
use headpond_block::Instant;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeSet, BinaryHeap};
use std::rc::Rc;
use std::time::Duration;

/// One such device.
pub struct RemoteQueue {
    model: Rc<RemoteModel>,
    random: Random,
    now: Instant,
    next: u64,
    reads: InService,
    writes: InService,
    /// The last of the answers to writes that are known.
    written: Instant,
    /// Writes in service, and flushes that wait for those before them.
    unwritten: BTreeSet<Tag>,
    flushes: BTreeSet<Tag>,
    answers: BinaryHeap<Reverse<Answer>>,
}

/// The requests of one kind that are in service.
#[derive(Default)]
struct InService {
    /// What each of them has been given since the machine began to be busy.
    given: f64,
    waiting: BinaryHeap<Reverse<Waiting>>,
    /// When the link is free again.
    sent: Instant,
}

#[derive(Clone, Copy)]
struct Waiting {
    /// Served when as much was given.
    due: f64,
    tag: Tag,
    bytes: u64,
}

impl RemoteQueue {
    pub fn new(model: Rc<RemoteModel>, seed: u64) -> Self {
        Self {
            model,
            random: Random::new(seed),
            now: Instant::START,
            next: 0,
            reads: InService::default(),
            writes: InService::default(),
            written: Instant::START,
            unwritten: BTreeSet::new(),
            flushes: BTreeSet::new(),
            answers: BinaryHeap::new(),
        }
    }

    fn in_flight(&self) -> usize {
        self.reads.waiting.len() + self.writes.waiting.len()
    }

    /// When the next request will have been served, if no other comes, and whether it is a read.
    fn next_served(&self) -> Option<(Instant, bool)> {
        let in_flight = self.in_flight();
        let of = |service: &InService, model: &Service, is_read| {
            let left = service.left()?;
            let seconds = left * in_flight as f64 / model.rate(in_flight);
            Some((self.now + Duration::from_secs_f64(seconds), is_read))
        };
        let read = of(&self.reads, &self.model.read, true);
        let write = of(&self.writes, &self.model.write, false);
        read.into_iter().chain(write).min_by_key(|(at, _)| *at)
    }

    /// Lives through everything up to `to`.
    fn advance(&mut self, to: Instant) {
        while let Some((at, is_read)) = self.next_served().filter(|(at, _)| *at <= to) {
            self.give(at);
            self.finish(is_read);
        }
        self.give(to);
    }

    /// Time passes in which no request ends.
    fn give(&mut self, until: Instant) {
        let until = until.max(self.now);
        let (seconds, in_flight) = (until.since(self.now).as_secs_f64(), self.in_flight());
        self.now = until;
        if in_flight == 0 {
            return;
        }
        let share = seconds / in_flight as f64;
        self.reads.given += share * self.model.read.rate(in_flight);
        self.writes.given += share * self.model.write.rate(in_flight);
    }

    /// The first request of a kind has been served.
    fn finish(&mut self, is_read: bool) {
        let (service, model) = match is_read {
            true => (&mut self.reads, &self.model.read),
            false => (&mut self.writes, &self.model.write),
        };
        let Reverse(served) = service.waiting.pop().expect("one was in service");
        // What rounding left.
        service.given = service.given.max(served.due);
        let (link_s, transit_s) = model.crossing_s(served.bytes);
        service.sent = service.sent.max(self.now) + Duration::from_secs_f64(link_s);
        let at = match served.bytes > super::model::SMALL_BYTES {
            true => service.sent + Duration::from_secs_f64(transit_s),
            false => self.now,
        };
        self.answers.push(Reverse(Answer { at, tag: served.tag }));
        if !is_read {
            self.written = self.written.max(at);
            self.unwritten.remove(&served.tag);
            self.answer_flushes();
        }
        if self.in_flight() == 0 {
            (self.reads.given, self.writes.given) = (0.0, 0.0);
        }
    }

    /// Those that wait for no write any more.
    fn answer_flushes(&mut self) {
        let oldest = self.unwritten.first().copied();
        let us = self.model.parameters().flush.map_or(0.0, |flush| flush.us);
        let at = self.written.max(self.now) + Duration::from_secs_f64(us / 1e6);
        while let Some(tag) = self.flushes.first().copied() {
            if oldest.is_some_and(|write| write < tag) {
                return;
            }
            self.flushes.remove(&tag);
            self.answers.push(Reverse(Answer { at, tag }));
        }
    }
}

impl Machine for RemoteQueue {
    fn submit(&mut self, now: Instant, command: Command) -> Tag {
        self.advance(now);
        let tag = Tag(self.next);
        self.next += 1;
        let is_read = command.kind == CommandKind::Read;
        if command.kind == CommandKind::Flush {
            self.flushes.insert(tag);
            self.answer_flushes();
            return tag;
        }
        if !is_read {
            self.unwritten.insert(tag);
        }
        let model = if is_read { &self.model.read } else { &self.model.write };
        let work = model.draw(&mut self.random);
        let service = if is_read { &mut self.reads } else { &mut self.writes };
        let due = service.given + work;
        service.waiting.push(Reverse(Waiting { due, tag, bytes: command.range.len() }));
        tag
    }

    fn next_answer(&self) -> Option<Instant> {
        let known = self.answers.peek().map(|Reverse(answer)| answer.at);
        let served = self.next_served().map(|(at, _)| at);
        known.into_iter().chain(served).min()
    }

    fn take_answer(&mut self, now: Instant) -> Option<Answer> {
        self.advance(now);
        let is_due = self.answers.peek().is_some_and(|Reverse(answer)| answer.at <= now);
        if is_due { self.answers.pop().map(|Reverse(answer)| answer) } else { None }
    }

    fn is_sent_flushes(&self) -> bool {
        self.model.reports_a_cache()
    }
}

impl InService {
    /// What the first of them still has to be given.
    fn left(&self) -> Option<f64> {
        let Reverse(first) = self.waiting.peek()?;
        Some((first.due - self.given).max(0.0))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> Ordering {
        self.due.total_cmp(&other.due).then(self.tag.cmp(&other.tag))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waiting {}
