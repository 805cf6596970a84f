//! The values that one sector may hold.
//!
//! Each write is applied at one instant between its begin and its end, if at all. What is known
//! about that instant is an interval: a write comes before another where its end lies not after the
//! other's `not_before`. That starts as the begin of the write; a read that shows a value pushes
//! it, because the value was then still there: whatever had ended by then came before it, or never
//! happened.
//!
//! A power cut leaves *settled* values: those that may be on the medium. Exactly one of them is,
//! and it stays until something is written, so settled values do not replace each other; the first
//! read that shows one strikes out the rest.
//!
//! **Invariants**: there is always at least one value; settled values come before all others.

use crate::book::{Book, Fate, Promise, Time};
use crate::{Content, WriteId};

/// One value that the sector holds, held or may come to hold.
#[derive(Clone, Copy, Debug)]
struct Version {
    write: WriteId,
    not_before: Time,
    /// May have been on the medium when the power last came back.
    settled: bool,
    /// A read has shown it after its end: it has happened.
    confirmed: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct SectorHistory {
    versions: Vec<Version>,
    /// Of each discard the writes that may have been newest when it began.
    before_discards: Vec<(WriteId, Vec<WriteId>)>,
}

impl SectorHistory {
    /// A sector that nothing was written to.
    pub fn new() -> Self {
        let start = Version { write: WriteId(0), not_before: 0, settled: true, confirmed: true };
        Self { versions: vec![start], before_discards: Vec::new() }
    }

    pub fn begin_discard(&mut self, book: &Book, write: WriteId, begin: Time) {
        let mut newest = Vec::new();
        for id in self.allowed(book, begin) {
            match self.before_discard(id) {
                Some(before) => newest.extend(before.iter().copied().chain([id])),
                None => newest.push(id),
            }
        }
        newest.sort_unstable();
        newest.dedup();
        self.before_discards.push((write, newest));
        self.begin_write(write, begin);
    }

    fn before_discard(&self, write: WriteId) -> Option<&[WriteId]> {
        let (_, before) = self.before_discards.iter().find(|(discard, _)| *discard == write)?;
        Some(before)
    }

    /// Whether the sector may read as `content` because of `id`.
    fn shows(&self, book: &Book, id: WriteId, content: Content) -> bool {
        let record = book.write(id);
        let is_newest_before = |write: WriteId, before: &[WriteId]| {
            let other = book.write(write);
            before.contains(&write) || (record.begin..record.end).contains(&other.begin)
        };
        match (self.before_discard(id), content) {
            (Some(before), Content::Written { write, .. }) => is_newest_before(write, before),
            _ => record.shows(id, content),
        }
    }

    pub fn begin_write(&mut self, write: WriteId, begin: Time) {
        let version = Version { write, not_before: begin, settled: false, confirmed: false };
        self.versions.push(version);
    }

    /// The writes that explain `content` in a read that began at `since`.
    pub fn explanations(&self, book: &Book, content: Content, since: Time) -> Vec<WriteId> {
        let shows = |version: &&Version| self.shows(book, version.write, content);
        let allowed = |version: &&Version| !self.is_replaced(book, version, since);
        self.versions.iter().filter(shows).filter(allowed).map(|version| version.write).collect()
    }

    /// The writes whose values a read that began at `since` may show.
    pub fn allowed(&self, book: &Book, since: Time) -> Vec<WriteId> {
        let allowed = |version: &&Version| !self.is_replaced(book, version, since);
        self.versions.iter().filter(allowed).map(|version| version.write).collect()
    }

    /// Takes note that a read that began at `since` showed one of `shown`.
    pub fn observe(&mut self, book: &Book, shown: &[WriteId], since: Time) {
        let in_flight = |write: &WriteId| book.write(*write).end > since;
        if shown.iter().any(|write| in_flight(write) || book.may_linger(*write)) {
            return;
        }
        let is_shown = |version: &Version| shown.contains(&version.write);
        if self.versions.iter().filter(|v| is_shown(v)).all(|v| v.settled) {
            self.observe_settled(book, shown, since);
        } else if let &[write] = shown {
            self.observe_written(book, write, since);
        }
    }

    /// The power is cut: of the values that may be on the medium one will be found.
    pub fn crash(&mut self, book: &Book) {
        let is_lost = |version: &Version| {
            let replaces = |next: &&Version| is_stable(book, next) && precedes(book, version, next);
            self.versions.iter().any(|next| replaces(&next))
        };
        let lost: Vec<bool> = self.versions.iter().map(is_lost).collect();
        let mut lost = lost.into_iter();
        self.versions.retain(|_| !lost.next().expect("one each"));
        self.versions.iter_mut().for_each(|version| version.settled = true);
        self.forget_discards();
        assert!(!self.versions.is_empty(), "something is always on the medium");
    }

    /// Forgets what no read that began at `since` or later, and no power cut, can bring back.
    pub fn prune(&mut self, book: &Book, since: Time) {
        if self.versions.len() < 4 {
            return;
        }
        let is_past = |version: &Version| {
            let replaces = |next: &&Version| {
                is_stable(book, next)
                    && book.write(next.write).end <= since
                    && precedes(book, version, next)
            };
            self.versions.iter().any(|next| replaces(&next))
        };
        let past: Vec<bool> = self.versions.iter().map(is_past).collect();
        let mut past = past.into_iter();
        self.versions.retain(|_| !past.next().expect("one each"));
        self.forget_discards();
    }

    /// Of those that are none of the versions any more.
    fn forget_discards(&mut self) {
        let versions = &self.versions;
        let is_known = |write: WriteId| versions.iter().any(|version| version.write == write);
        self.before_discards.retain(|(discard, _)| is_known(*discard));
    }

    /// One of several settled values was shown: the others are struck out, and no uncertain write
    /// that had ended by then has happened.
    fn observe_settled(&mut self, book: &Book, shown: &[WriteId], since: Time) {
        self.versions.retain(|version| match version.settled {
            true => shown.contains(&version.write) || book.may_linger(version.write),
            false => book.write(version.write).end > since || book.may_linger(version.write),
        });
    }

    /// The value of `write`, which had ended, was there at `since`.
    fn observe_written(&mut self, book: &Book, write: WriteId, since: Time) {
        let index = self.versions.iter().position(|v| v.write == write).expect("explained");
        let seen = self.versions[index];
        self.versions.retain(|version| {
            let after = precedes(book, &seen, version);
            !(after && book.write(version.write).end <= since) || book.may_linger(version.write)
        });
        let seen = self.versions.iter_mut().find(|v| v.write == write).expect("kept");
        seen.confirmed = true;
        seen.not_before = seen.not_before.max(since);
        self.push_later_ones(book);
    }

    /// What comes after a value comes after every time at which that value was seen.
    fn push_later_ones(&mut self, book: &Book) {
        loop {
            let before = self.versions.clone();
            for version in &mut self.versions {
                let floors = before.iter().filter(|earlier| precedes(book, earlier, version));
                let floor = floors.map(|earlier| earlier.not_before).max().unwrap_or(0);
                version.not_before = version.not_before.max(floor);
            }
            if self.versions.iter().zip(&before).all(|(a, b)| a.not_before == b.not_before) {
                return;
            }
        }
    }

    /// Whether something that has certainly happened by `since` came after `version`.
    fn is_replaced(&self, book: &Book, version: &Version, since: Time) -> bool {
        self.versions.iter().any(|next| {
            has_happened(book, next)
                && book.write(next.write).end <= since
                && precedes(book, version, next)
        })
    }
}

fn has_happened(book: &Book, version: &Version) -> bool {
    let acknowledged = book.write(version.write).fate == Fate::Acknowledged;
    !version.settled && (acknowledged || version.confirmed)
}

fn is_stable(book: &Book, version: &Version) -> bool {
    let record = book.write(version.write);
    let promised = record.fate == Fate::Acknowledged && record.promise == Promise::Stable;
    has_happened(book, version) && (promised || record.end <= book.flushed_before)
}

fn precedes(book: &Book, version: &Version, next: &Version) -> bool {
    if version.write == next.write || next.settled {
        return false;
    }
    let not_before = match book.may_linger(version.write) {
        true => book.write(next.write).begin,
        false => next.not_before,
    };
    version.settled || book.write(version.write).end <= not_before
}
