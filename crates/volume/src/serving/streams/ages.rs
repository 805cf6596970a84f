//! The runs of one age in the order of their last requests, linked through the runs themselves.

use super::{RUNS_MAX, Run};

/// The neighbours of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Links {
    older: u16,
    newer: u16,
}

/// No run.
const NONE: u16 = u16::MAX;
const _: () = assert!(RUNS_MAX < NONE as usize);

#[derive(Clone, Copy)]
pub(super) struct Ages {
    oldest: u16,
    newest: u16,
    len: usize,
}

impl Default for Links {
    fn default() -> Self {
        Self { older: NONE, newer: NONE }
    }
}

impl Default for Ages {
    fn default() -> Self {
        Self { oldest: NONE, newest: NONE, len: 0 }
    }
}

impl Ages {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn oldest(&self) -> Option<usize> {
        (self.oldest != NONE).then_some(self.oldest.into())
    }

    /// Adds a run, as the one seen last.
    pub fn push(&mut self, at: usize, runs: &mut [Run]) {
        let new = at as u16;
        runs[at].links = Links { older: self.newest, newer: NONE };
        match runs.get_mut(usize::from(self.newest)) {
            Some(before) => before.links.newer = new,
            None => self.oldest = new,
        }
        self.newest = new;
        self.len += 1;
    }

    /// Takes a run out.
    pub fn remove(&mut self, at: usize, runs: &mut [Run]) {
        let Links { older, newer } = runs[at].links;
        match runs.get_mut(usize::from(older)) {
            Some(before) => before.links.newer = newer,
            None => self.oldest = newer,
        }
        match runs.get_mut(usize::from(newer)) {
            Some(behind) => behind.links.older = older,
            None => self.newest = older,
        }
        self.len -= 1;
    }

    pub fn oldest_first<'r>(&self, runs: &'r [Run]) -> impl Iterator<Item = usize> + 'r {
        let next = |at: &usize| runs.get(usize::from(runs[*at].links.newer)).map(|_| ());
        let step = move |at: &usize| next(at).map(|()| usize::from(runs[*at].links.newer));
        std::iter::successors(self.oldest(), step).take(RUNS_MAX + 1)
    }

    #[cfg(test)]
    pub fn counted_as(self, len: usize) -> Self {
        Self { len, ..self }
    }
}
