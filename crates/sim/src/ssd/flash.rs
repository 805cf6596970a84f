//! Dies behind channels: what each is doing, and what waits for it.
//!
//! **Invariants**: a die does one thing at a time. Reads go first, but after four of them in a row
//! a program has its turn.

use super::model::SsdModel;
use std::collections::VecDeque;
use std::rc::Rc;

const READS_IN_A_ROW: u32 = 4;

#[derive(Clone, Debug)]
pub(super) struct Flash {
    model: Rc<SsdModel>,
    dies: Vec<Die>,
    /// Until when each channel is taken.
    channels: Vec<u64>,
    /// The die that is written next: data is striped over all.
    next_die: usize,
}

#[derive(Clone, Debug, Default)]
struct Die {
    doing: Option<Work>,
    reads: VecDeque<Read>,
    programs: VecDeque<Program>,
    reads_in_a_row: u32,
    /// The page that its register still holds.
    register: Option<u64>,
}

/// One page of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub command: u64,
    pub page: u64,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub number: u64,
    pub purpose: Purpose,
    /// What crosses the channel.
    pub bytes: u64,
    pub takes_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Data out of the write buffer.
    Host,
    /// The map's journal, for a flush.
    Journal,
    /// Copies and erasures.
    Collection,
    /// From one bit a cell to several.
    Folding,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Read(Read),
    Program(Program),
}

impl Flash {
    pub(super) fn new(model: Rc<SsdModel>) -> Self {
        Self {
            dies: vec![Die::default(); model.dies],
            channels: vec![0; model.parameters().flash.channels],
            next_die: 0,
            model,
        }
    }

    /// Where a page lies: neighbours on different dies, each stripe turned on.
    pub(super) fn die_of(&self, page: u64) -> usize {
        let dies = self.dies.len() as u64;
        let turn = (page / dies).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        ((page + turn) % dies) as usize
    }

    /// Queues a read; the time at which its die is done, where it begins at once.
    pub(super) fn read(&mut self, die: usize, read: Read, now: u64) -> Option<u64> {
        self.dies[die].reads.push_back(read);
        self.begin(die, now)
    }

    /// Queues a program on the next die; the die, and when it is done, where it begins at once.
    pub(super) fn program(&mut self, program: Program, now: u64) -> (usize, Option<u64>) {
        let die = self.next_die;
        self.next_die = (die + 1) % self.dies.len();
        self.dies[die].programs.push_back(program);
        (die, self.begin(die, now))
    }

    /// Every die erases its part of a superblock.
    pub(super) fn erase_everywhere(&mut self, now: u64, begun: &mut Vec<(usize, u64)>) {
        let erase = Program {
            number: u64::MAX,
            purpose: Purpose::Collection,
            bytes: 0,
            takes_ns: self.model.erase_ns,
        };
        for die in 0..self.dies.len() {
            self.dies[die].programs.push_back(erase);
            begun.extend(self.begin(die, now).map(|ends| (die, ends)));
        }
    }

    /// What a die has done, and when it is done with the next thing.
    pub(super) fn done(&mut self, die: usize, now: u64) -> (Work, Option<u64>) {
        let work = self.dies[die].doing.take().expect("the die was busy");
        (work, self.begin(die, now))
    }

    /// When `bytes` that a die holds at `now` have crossed its channel.
    pub(super) fn carry(&mut self, die: usize, bytes: u64, now: u64) -> u64 {
        let channel = die % self.channels.len();
        self.channels[channel] = self.channels[channel].max(now) + self.model.channel_ns(bytes);
        self.channels[channel]
    }

    fn begin(&mut self, die: usize, now: u64) -> Option<u64> {
        let state = &mut self.dies[die];
        if state.doing.is_some() {
            return None;
        }
        let programs_turn = state.reads_in_a_row >= READS_IN_A_ROW && !state.programs.is_empty();
        if let Some(read) = (!programs_turn).then(|| state.reads.pop_front()).flatten() {
            let is_there = state.register.replace(read.page) == Some(read.page);
            state.reads_in_a_row += 1;
            state.doing = Some(Work::Read(read));
            return Some(now + if is_there { 0 } else { self.model.read_ns });
        }
        let program = state.programs.pop_front()?;
        state.reads_in_a_row = 0;
        state.register = None;
        state.doing = Some(Work::Program(program));
        let arrived = if program.bytes > 0 { self.carry(die, program.bytes, now) } else { now };
        Some(arrived + program.takes_ns)
    }
}
