//! Reference models of the policies, as in their papers, with plain lists; for tests only, those of
//! the engine included.

use foldhash::fast::FixedState;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

pub trait Twin {
    /// Whether the block was there. The front of a queue is where blocks enter.
    fn access(&mut self, block: u64) -> bool;
    fn remove(&mut self, block: u64);
    fn residents(&self) -> Vec<u64>;
}

/// Blocks in the order in which they entered, each once.
#[derive(Default)]
struct List {
    by_turn: BTreeMap<u64, u64>,
    turns: HashMap<u64, u64, FixedState>,
    next: u64,
}

impl List {
    fn len(&self) -> usize {
        self.turns.len()
    }

    fn contains(&self, block: u64) -> bool {
        self.turns.contains_key(&block)
    }

    fn push_front(&mut self, block: u64) {
        assert!(self.turns.insert(block, self.next).is_none(), "each once");
        self.by_turn.insert(self.next, block);
        self.next += 1;
    }

    fn pop_back(&mut self) -> Option<u64> {
        let (_, block) = self.by_turn.pop_first()?;
        self.turns.remove(&block);
        Some(block)
    }

    /// Whether it was there.
    fn take(&mut self, block: u64) -> bool {
        let turn = self.turns.remove(&block);
        turn.is_some_and(|turn| self.by_turn.remove(&turn).is_some())
    }

    fn blocks(&self) -> impl Iterator<Item = u64> {
        self.by_turn.values().copied()
    }
}

struct FifoTwin {
    capacity: usize,
    /// With those that have been removed, and may be back.
    queue: VecDeque<u64>,
    residents: HashSet<u64, FixedState>,
}

impl Twin for FifoTwin {
    fn access(&mut self, block: u64) -> bool {
        if self.residents.contains(&block) {
            return true;
        }
        let most = entries_max(self.capacity);
        while self.residents.len() == self.capacity {
            let victim = self.queue.pop_back().unwrap();
            self.residents.remove(&victim);
        }
        let mut turns = most;
        while self.queue.len() == most {
            let oldest = self.queue.pop_back().unwrap();
            if turns == 0 {
                self.remove(oldest);
            } else if self.residents.contains(&oldest) {
                self.queue.push_front(oldest);
            }
            turns = turns.saturating_sub(1);
        }
        self.queue.push_front(block);
        self.residents.insert(block);
        false
    }

    fn remove(&mut self, block: u64) {
        self.residents.remove(&block);
    }

    fn residents(&self) -> Vec<u64> {
        self.residents.iter().copied().collect()
    }
}

struct LruTwin {
    capacity: usize,
    list: List,
}

impl Twin for LruTwin {
    fn access(&mut self, block: u64) -> bool {
        let is_hit = self.list.take(block);
        self.list.push_front(block);
        if self.list.len() > self.capacity {
            self.list.pop_back();
        }
        is_hit
    }

    fn remove(&mut self, block: u64) {
        self.list.take(block);
    }

    fn residents(&self) -> Vec<u64> {
        self.list.blocks().collect()
    }
}

/// Figure 4 of the paper, case by case.
struct ArcTwin {
    c: usize,
    p: usize,
    t1: List,
    t2: List,
    b1: List,
    b2: List,
}

impl ArcTwin {
    fn replace(&mut self, is_in_b2: bool) {
        if self.t1.len() + self.t2.len() < self.c {
            return;
        }
        let first =
            self.t1.len() > 0 && (is_in_b2 && self.t1.len() == self.p || self.t1.len() > self.p);
        if first || self.t2.len() == 0 {
            self.b1.push_front(self.t1.pop_back().unwrap());
        } else {
            self.b2.push_front(self.t2.pop_back().unwrap());
        }
    }
}

impl Twin for ArcTwin {
    fn access(&mut self, x: u64) -> bool {
        if self.t1.take(x) || self.t2.take(x) {
            self.t2.push_front(x);
            return true;
        }
        if self.b1.contains(x) {
            let step =
                if self.b1.len() >= self.b2.len() { 1 } else { self.b2.len() / self.b1.len() };
            self.p = (self.p + step).min(self.c);
            self.replace(false);
            self.b1.take(x);
            self.t2.push_front(x);
        } else if self.b2.contains(x) {
            let step =
                if self.b2.len() >= self.b1.len() { 1 } else { self.b1.len() / self.b2.len() };
            self.p = self.p.saturating_sub(step);
            self.replace(true);
            self.b2.take(x);
            self.t2.push_front(x);
        } else {
            let first = self.t1.len() + self.b1.len();
            let all = first + self.t2.len() + self.b2.len();
            if first == self.c && self.t1.len() < self.c {
                self.b1.pop_back();
                self.replace(false);
            } else if first == self.c {
                self.t1.pop_back();
            } else if all >= self.c {
                if all == 2 * self.c {
                    self.b2.pop_back();
                }
                self.replace(false);
            }
            self.t1.push_front(x);
        }
        false
    }

    fn remove(&mut self, block: u64) {
        self.t1.take(block);
        self.t2.take(block);
    }

    fn residents(&self) -> Vec<u64> {
        self.t1.blocks().chain(self.t2.blocks()).collect()
    }
}

/// Algorithm 1 of the paper.
struct S3FifoTwin {
    capacity: usize,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghost: List,
    /// Whether a resident is in the main queue, and its frequency.
    residents: HashMap<u64, (bool, u8), FixedState>,
    in_main: usize,
}

impl S3FifoTwin {
    fn main_max(&self) -> usize {
        (self.capacity - self.capacity / 10).max(1)
    }

    fn in_small(&self) -> usize {
        self.residents.len() - self.in_main
    }

    fn put(&mut self, block: u64, is_main: bool, frequency: u8) {
        let before = self.residents.insert(block, (is_main, frequency));
        self.in_main += usize::from(is_main);
        self.in_main -= usize::from(before.is_some_and(|(was_main, _)| was_main));
    }

    fn evict(&mut self) {
        match self.in_small() as f64 >= self.capacity as f64 * 0.1 {
            true => self.evict_small(),
            false => self.evict_main(),
        }
    }

    fn is_small_untidier(&self) -> bool {
        self.small.len() - self.in_small() >= self.main.len() - self.in_main
    }

    fn tidy(&mut self) {
        let is_small = self.is_small_untidier();
        let queue = if is_small { &mut self.small } else { &mut self.main };
        let oldest = queue.pop_back().unwrap();
        if self.residents.get(&oldest).is_some_and(|(is_main, _)| *is_main != is_small) {
            queue.push_front(oldest);
        }
    }

    fn evict_small(&mut self) {
        while let Some(tail) = self.small.pop_back() {
            let Some(&(false, frequency)) = self.residents.get(&tail) else { continue };
            if frequency > 1 {
                self.main.push_front(tail);
                self.put(tail, true, 0);
                if self.in_main > self.main_max() {
                    self.evict_main();
                }
            } else {
                self.remove(tail);
                self.ghost.push_front(tail);
                if self.ghost.len() > self.main_max() {
                    self.ghost.pop_back();
                }
                return;
            }
        }
    }

    fn evict_main(&mut self) {
        while let Some(tail) = self.main.pop_back() {
            let Some(&(true, frequency)) = self.residents.get(&tail) else { continue };
            if frequency == 0 {
                self.remove(tail);
                return;
            }
            self.main.push_front(tail);
            self.put(tail, true, frequency - 1);
        }
    }
}

impl Twin for S3FifoTwin {
    fn access(&mut self, block: u64) -> bool {
        if let Some((_, frequency)) = self.residents.get_mut(&block) {
            *frequency = (*frequency + 1).min(3);
            return true;
        }
        let most = entries_max(self.capacity);
        while self.residents.len() == self.capacity {
            self.evict();
        }
        let mut turns = most;
        while self.small.len() + self.main.len() == most {
            match (turns, self.is_small_untidier()) {
                (0, true) => self.evict_small(),
                (0, false) => self.evict_main(),
                _ => self.tidy(),
            }
            turns = turns.saturating_sub(1);
        }
        let is_known = self.ghost.contains(block);
        if is_known { &mut self.main } else { &mut self.small }.push_front(block);
        self.put(block, is_known, 0);
        false
    }

    fn remove(&mut self, block: u64) {
        let before = self.residents.remove(&block);
        self.in_main -= usize::from(before.is_some_and(|(was_main, _)| was_main));
    }

    fn residents(&self) -> Vec<u64> {
        self.residents.keys().copied().collect()
    }
}

/// The twin of the policy that is set by this word.
pub fn twin(policy: &str, capacity: usize) -> Box<dyn Twin> {
    let [t1, t2, b1, b2] = [(); 4].map(|()| List::default());
    match policy {
        "fifo" => {
            Box::new(FifoTwin { capacity, queue: VecDeque::new(), residents: HashSet::default() })
        }
        "lru" => Box::new(LruTwin { capacity, list: t1 }),
        "arc" => Box::new(ArcTwin { c: capacity, p: 0, t1, t2, b1, b2 }),
        "s3-fifo" => Box::new(S3FifoTwin {
            capacity,
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: b1,
            residents: HashMap::default(),
            in_main: 0,
        }),
        other => panic!("{other} is no policy by itself"),
    }
}

/// Entries of queues that do not lose them when blocks are removed.
fn entries_max(capacity: usize) -> usize {
    capacity + capacity / 8 + 1
}
