//! The oracle itself: keeps the book and one history for each sector that was written.

use crate::book::{Book, Fate, Promise, Time, Value};
use crate::sector::SectorHistory;
use crate::verdict::{Offence, Verdict, story};
use crate::{BLOCK_BYTES, Content, Payload, SECTOR_BYTES, SECTORS_PER_BLOCK, WriteId};
use std::collections::{BTreeMap, BTreeSet};

/// A flush in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushId {
    begin: Time,
    epoch: usize,
}

/// A read in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadId(Time);

/// Knows which values every block of a device may hold; see the crate for the contract.
#[derive(Clone, Debug)]
pub struct Witness {
    payload: Payload,
    size_bytes: u64,
    book: Book,
    blocks: BTreeMap<u64, [SectorHistory; SECTORS_PER_BLOCK]>,
    reads: BTreeSet<ReadId>,
}

impl Witness {
    /// The witness of a device of `size_bytes` that is all zeros, with payload of `seed`.
    pub fn new(size_bytes: u64, seed: u64) -> Self {
        let (blocks, reads) = (BTreeMap::new(), BTreeSet::new());
        let (payload, book) = (Payload::new(seed), Book::new(size_bytes));
        Self { payload, size_bytes, book, blocks, reads }
    }

    pub fn payload(&self) -> Payload {
        self.payload
    }

    /// A write is about to be sent; its bytes are those of [`Payload::fill`] with the answer.
    ///
    /// # Panics
    /// Where the range is not of whole sectors inside the device, as for all of these.
    pub fn begin_write(&mut self, offset: u64, len: u64, promise: Promise) -> WriteId {
        self.begin(offset, len, Value::Payload, promise)
    }

    pub fn begin_zeroes(&mut self, offset: u64, len: u64, promise: Promise) -> WriteId {
        self.begin(offset, len, Value::Zeroes, promise)
    }

    pub fn begin_discard(&mut self, offset: u64, len: u64) -> WriteId {
        self.begin(offset, len, Value::Unspecified, Promise::Volatile)
    }

    /// The write succeeded.
    ///
    /// # Panics
    /// Where it was answered before, or cut off by a crash.
    pub fn acknowledge(&mut self, write: WriteId) {
        self.book.end_write(write, Fate::Acknowledged);
    }

    /// The write failed: from now on it has happened, or it has not.
    ///
    /// # Panics
    /// Where it was answered before, or cut off by a crash.
    pub fn fail(&mut self, write: WriteId) {
        self.book.end_write(write, Fate::Failed);
    }

    /// From here on a write that failed may show and cease to show until another replaces it: a
    /// device is gone for which nothing stands in, and nobody can say what it took.
    pub fn let_failures_linger(&mut self) {
        self.book.failures_linger = true;
    }

    /// A flush is about to be sent. One that fails needs no further call: it promised nothing.
    pub fn begin_flush(&mut self) -> FlushId {
        FlushId { begin: self.book.tick(), epoch: self.book.crashes.len() }
    }

    /// The flush succeeded: what was acknowledged before it began is stable.
    ///
    /// # Panics
    /// Where the power was cut since.
    pub fn acknowledge_flush(&mut self, flush: FlushId) {
        assert_eq!(flush.epoch, self.book.crashes.len(), "a flush does not outlive a power cut");
        self.book.end_flush(flush.begin);
        let since = self.oldest_read();
        for block in self.blocks.values_mut() {
            block.iter_mut().for_each(|sector| sector.prune(&self.book, since));
        }
    }

    /// A read is about to be sent.
    pub fn begin_read(&mut self) -> ReadId {
        let read = ReadId(self.book.tick());
        self.reads.insert(read);
        read
    }

    /// The read failed or was cut off.
    pub fn abandon_read(&mut self, read: ReadId) {
        self.reads.remove(&read);
    }

    /// Judges what a read returned.
    ///
    /// # Errors
    /// The first offence; the witness then knows no more than before.
    pub fn check_read(
        &mut self,
        read: ReadId,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Box<Verdict>> {
        self.check_range(offset, bytes.len() as u64);
        self.reads.remove(&read);
        let end = offset + bytes.len() as u64;
        let mut at = offset;
        while at < end {
            let next = (at - at % BLOCK_BYTES + BLOCK_BYTES).min(end);
            let part = &bytes[(at - offset) as usize..(next - offset) as usize];
            self.check_block(read.0, at, part)?;
            at = next;
        }
        Ok(())
    }

    /// Judges what a read returned that began and ended after everything so far.
    ///
    /// # Errors
    /// The first offence; the witness then knows no more than before.
    pub fn check_now(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Box<Verdict>> {
        let read = self.begin_read();
        self.check_read(read, offset, bytes)
    }

    /// The power is cut. Requests in flight are over; their ids are of no further use.
    pub fn crash(&mut self) {
        // First judge what is stable, with the intervals as they are; then end what was in flight.
        self.book.crash();
        for block in self.blocks.values_mut() {
            block.iter_mut().for_each(|sector| sector.crash(&self.book));
        }
        self.reads.clear();
    }

    /// Notes something for the stories: a fault, a command.
    pub fn note(&mut self, what: impl Into<String>) {
        let now = self.book.tick();
        self.book.notes.push((now, what.into()));
    }

    /// The writes whose values the sector at `address` may show now.
    pub fn allowed(&self, address: u64) -> Vec<WriteId> {
        let (block, index) = (address - address % BLOCK_BYTES, sector_index(address));
        match self.blocks.get(&block) {
            Some(sectors) => sectors[index].allowed(&self.book, Time::MAX - 1),
            None => vec![WriteId(0)],
        }
    }

    /// Everything that happened to the block that holds `address`, one line each.
    pub fn story(&self, address: u64) -> String {
        story(&self.book, address - address % BLOCK_BYTES)
    }

    /// Addresses of all blocks that were ever written, zeroed or discarded.
    pub fn touched_blocks(&self) -> impl Iterator<Item = u64> {
        self.blocks.keys().copied()
    }

    fn begin(&mut self, offset: u64, len: u64, value: Value, promise: Promise) -> WriteId {
        self.check_range(offset, len);
        let write = self.book.begin_write(offset..offset + len, value, promise);
        let begin = self.book.write(write).begin;
        for address in (offset..offset + len).step_by(SECTOR_BYTES as usize) {
            let fresh = || std::array::from_fn(|_| SectorHistory::new());
            let block = self.blocks.entry(address - address % BLOCK_BYTES).or_insert_with(fresh);
            let sector = &mut block[sector_index(address)];
            match value {
                Value::Unspecified => sector.begin_discard(&self.book, write, begin),
                _ => sector.begin_write(write, begin),
            }
        }
        write
    }

    fn check_range(&self, offset: u64, len: u64) {
        assert!(offset.is_multiple_of(SECTOR_BYTES), "whole sectors");
        assert!(len.is_multiple_of(SECTOR_BYTES), "whole sectors");
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.size_bytes), "inside");
    }

    fn oldest_read(&self) -> Time {
        self.reads.first().map_or(Time::MAX - 1, |read| read.0)
    }

    /// Judges the sectors from `address` on, which lie in one block.
    fn check_block(&mut self, since: Time, address: u64, bytes: &[u8]) -> Result<(), Box<Verdict>> {
        let block = address - address % BLOCK_BYTES;
        let fresh = || std::array::from_fn(|_| SectorHistory::new());
        let mut sectors = self.blocks.get(&block).cloned().unwrap_or_else(fresh);
        let mut explanations = Vec::new();
        for (index, sector) in bytes.chunks_exact(SECTOR_BYTES as usize).enumerate() {
            let at = address + index as u64 * SECTOR_BYTES;
            let history = &mut sectors[sector_index(at)];
            let content = self.payload.identify(sector);
            let explained = match content {
                Content::Written { write, address } if address != at || !self.book.knows(write) => {
                    Vec::new()
                }
                content => history.explanations(&self.book, content, since),
            };
            if explained.is_empty() {
                let allowed = history.allowed(&self.book, since);
                return Err(self.verdict(offence(content, at), at, content, allowed));
            }
            history.observe(&self.book, &explained, since);
            explanations.push(explained);
        }
        if self.is_torn(block, since, &explanations) {
            let found = self.payload.identify(&bytes[..SECTOR_BYTES as usize]);
            let allowed = explanations.concat();
            return Err(self.verdict(Offence::Torn, block, found, allowed));
        }
        self.blocks.entry(block).and_modify(|known| *known = sectors);
        Ok(())
    }

    /// Whether no single whole-block write, with smaller ones upon it, explains all sectors.
    fn is_torn(&self, block: u64, since: Time, explanations: &[Vec<WriteId>]) -> bool {
        let all = || explanations.iter().flatten().copied();
        if all().any(|write| self.book.write(write).end > since) {
            return false;
        }
        let covers = |write: &WriteId| self.book.write(*write).covers_block(block);
        let upon = |write: &WriteId, whole: WriteId| {
            !covers(write) && self.book.write(*write).end > self.book.write(whole).begin
        };
        let explains = |whole: WriteId| {
            explanations.iter().all(|sector| sector.iter().any(|w| *w == whole || upon(w, whole)))
        };
        let without_any = explanations.iter().all(|sector| sector.iter().any(|w| !covers(w)));
        !without_any && !all().filter(covers).any(explains)
    }

    fn verdict(
        &self,
        offence: Offence,
        address: u64,
        found: Content,
        allowed: Vec<WriteId>,
    ) -> Box<Verdict> {
        let block = address - address % BLOCK_BYTES;
        let story = story(&self.book, block);
        Box::new(Verdict { offence, block, address, found, allowed, story })
    }
}

fn sector_index(address: u64) -> usize {
    (address % BLOCK_BYTES / SECTOR_BYTES) as usize
}

fn offence(content: Content, at: u64) -> Offence {
    match content {
        Content::Garbage => Offence::Garbage,
        Content::Written { address, .. } if address != at => Offence::Misplaced,
        _ => Offence::Stale,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness() -> Witness {
        Witness::new(1 << 20, 3)
    }

    fn bytes(witness: &Witness, write: WriteId, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        witness.payload().fill(write, offset, &mut bytes);
        bytes
    }

    /// Writes one block and has it acknowledged.
    fn written(witness: &mut Witness) -> (WriteId, Vec<u8>) {
        let write = witness.begin_write(0, 4096, Promise::Volatile);
        witness.acknowledge(write);
        (write, bytes(witness, write, 0, 4096))
    }

    fn flush(witness: &mut Witness) {
        let flush = witness.begin_flush();
        witness.acknowledge_flush(flush);
    }

    #[test]
    fn a_flushed_write_survives_and_an_unflushed_one_may() {
        let mut witness = witness();
        let (_, first) = written(&mut witness);
        flush(&mut witness);
        let (_, second) = written(&mut witness);
        witness.crash();
        witness.clone().check_now(0, &second).unwrap();
        let lost = witness.clone().check_now(0, &[0; 4096]).unwrap_err();
        assert_eq!(lost.offence, Offence::Stale);
        witness.check_now(0, &first).unwrap();
        let changed = witness.check_now(0, &second).unwrap_err();
        assert!(changed.story.contains("power cut"), "{changed}");
    }

    #[test]
    fn a_write_acknowledged_while_the_flush_ran_is_not_covered() {
        let mut witness = witness();
        let flush = witness.begin_flush();
        let _ = written(&mut witness);
        witness.acknowledge_flush(flush);
        witness.crash();
        witness.check_now(0, &[0; 4096]).unwrap();
    }

    #[test]
    fn a_block_of_two_whole_writes_is_torn_once_neither_is_in_flight() {
        let mut witness = witness();
        let (_, first) = written(&mut witness);
        let second = witness.begin_write(0, 4096, Promise::Volatile);
        let mixed = [&bytes(&witness, second, 0, 4096)[..2048], &first[2048..]].concat();
        witness.check_now(0, &mixed).unwrap();
        witness.crash();
        let torn = witness.check_now(0, &mixed).unwrap_err();
        assert_eq!(torn.offence, Offence::Torn);
    }

    #[test]
    fn sector_writes_stand_upon_a_block_each_for_itself() {
        let mut witness = witness();
        let (_, block) = written(&mut witness);
        let mut states = vec![block.clone()];
        for sector in [1u64, 6] {
            let write = witness.begin_write(sector * 512, 512, Promise::Volatile);
            witness.acknowledge(write);
            let patch = bytes(&witness, write, sector * 512, 512);
            for mut state in states.clone() {
                state[sector as usize * 512..][..512].copy_from_slice(&patch);
                states.push(state);
            }
        }
        witness.crash();
        for state in &states {
            witness.clone().check_now(0, state).unwrap();
        }
        let mut gone = states[3].clone();
        gone[..512].fill(0);
        assert_eq!(witness.check_now(0, &gone).unwrap_err().offence, Offence::Torn);
    }

    #[test]
    fn a_patch_older_than_the_block_write_does_not_stand_upon_it() {
        let mut witness = witness();
        let patch = witness.begin_write(512, 512, Promise::Volatile);
        witness.acknowledge(patch);
        let (_, mut block) = written(&mut witness);
        witness.crash();
        let patch = bytes(&witness, patch, 512, 512);
        block[512..1024].copy_from_slice(&patch);
        assert_eq!(witness.check_now(0, &block).unwrap_err().offence, Offence::Torn);
    }

    #[test]
    fn what_belongs_elsewhere_or_nowhere_is_named() {
        let mut witness = witness();
        let (write, mut block) = written(&mut witness);
        let elsewhere = bytes(&witness, write, 4096, 4096);
        let misplaced = witness.check_now(0, &elsewhere).unwrap_err();
        assert_eq!(misplaced.offence, Offence::Misplaced);
        block[700] ^= 1;
        let garbage = witness.check_now(0, &block).unwrap_err();
        assert_eq!((garbage.offence, garbage.address), (Offence::Garbage, 512));
    }

    #[test]
    fn a_failed_write_has_happened_or_not_and_does_not_come_later() {
        let mut witness = witness();
        let (_, old) = written(&mut witness);
        let failed = witness.begin_write(0, 4096, Promise::Volatile);
        witness.fail(failed);
        let new = bytes(&witness, failed, 0, 4096);
        witness.clone().check_now(0, &new).unwrap();
        witness.check_now(0, &old).unwrap();
        assert_eq!(witness.check_now(0, &new).unwrap_err().offence, Offence::Stale);
    }

    #[test]
    fn discarded_blocks_read_as_zeros_or_as_what_was_newest() {
        let mut witness = witness();
        let (_, first) = written(&mut witness);
        let (_, second) = written(&mut witness);
        for _ in 0..2 {
            let discard = witness.begin_discard(0, 4096);
            witness.acknowledge(discard);
            flush(&mut witness);
        }
        // Not alike twice: copies may differ.
        for state in [&second, &vec![0; 4096], &second] {
            witness.check_now(0, state).unwrap();
        }
        assert_eq!(witness.check_now(0, &first).unwrap_err().offence, Offence::Stale);
        assert!(witness.check_now(0, &[1; 4096]).is_err());
        witness.crash();
        witness.clone().check_now(0, &second).unwrap();
        assert_eq!(witness.check_now(0, &first).unwrap_err().offence, Offence::Stale);
        let (_, third) = written(&mut witness);
        witness.check_now(0, &third).unwrap();
        assert!(witness.check_now(0, &second).is_err());
    }

    #[test]
    fn a_read_in_progress_may_show_what_a_flush_has_buried() {
        let mut witness = witness();
        let (_, old) = written(&mut witness);
        let read = witness.begin_read();
        for _ in 0..10 {
            let _ = written(&mut witness);
            flush(&mut witness);
        }
        witness.check_read(read, 0, &old).unwrap();
        assert!(witness.check_now(0, &old).is_err());
    }
}
