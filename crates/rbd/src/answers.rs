//! What other threads tell the data thread: completions, and the state of the lock.
//!
//! **Invariant**: a key is told once, and only after nothing reads or writes the request's memory
//! any more.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// Shared by the threads of one image.
pub struct Answers {
    told: Mutex<Told>,
    /// Nothing is in flight any more.
    all_completed: Condvar,
    size_bytes: AtomicU64,
    /// Milliseconds from `begun` to the question that is not answered yet; zero without one.
    asked_ms: AtomicU64,
    begun: Instant,
}

#[derive(Default)]
struct Told {
    news: News,
    /// Requests that librbd has; since when, of those that are short.
    in_flight: HashMap<usize, Option<Instant>>,
    waker: Option<Waker>,
}

/// What has been told since it was taken last.
#[derive(Default)]
pub struct News {
    /// Request and result: bytes, or a negative errno.
    pub completed: Vec<(usize, isize)>,
    /// Why the lock is lost.
    pub lost: Option<String>,
    /// Nothing follows.
    pub is_closed: bool,
}

impl News {
    fn is_empty(&self) -> bool {
        self.completed.is_empty() && self.lost.is_none() && !self.is_closed
    }
}

impl Answers {
    pub fn new(size_bytes: u64) -> Self {
        Self {
            told: Mutex::default(),
            all_completed: Condvar::new(),
            size_bytes: AtomicU64::new(size_bytes),
            asked_ms: AtomicU64::new(0),
            begun: Instant::now(),
        }
    }

    /// librbd has one more, which is short or may take long where the cluster is well.
    pub fn begin(&self, key: usize, is_short: bool) {
        let before = self.locked().in_flight.insert(key, is_short.then(Instant::now));
        assert!(before.is_none(), "begun before it was completed");
    }

    /// A request that was begun has completed.
    pub fn complete(&self, key: usize, result: isize) {
        let mut told = self.locked();
        told.news.completed.push((key, result));
        told.in_flight.remove(&key).expect("completed after it was begun");
        if told.in_flight.is_empty() {
            self.all_completed.notify_all();
        }
        wake(told);
    }

    pub fn lose(&self, why: String) {
        let mut told = self.locked();
        told.news.lost = Some(why);
        wake(told);
    }

    pub fn close(&self) {
        let mut told = self.locked();
        told.news.is_closed = true;
        wake(told);
    }

    /// Until librbd has nothing in flight.
    pub fn wait_for_all(&self) {
        let told = self.locked();
        drop(self.all_completed.wait_while(told, |told| !told.in_flight.is_empty()));
    }

    /// What is new; where nothing is, the task is woken when there is.
    pub fn take(&self, context: &Context<'_>) -> Option<News> {
        let mut told = self.locked();
        if told.news.is_empty() {
            told.waker = Some(context.waker().clone());
            return None;
        }
        Some(std::mem::take(&mut told.news))
    }

    /// The cluster is asked something.
    pub fn note_question(&self) {
        let since = self.begun.elapsed().as_millis() as u64;
        self.asked_ms.store(since.max(1), Ordering::Relaxed);
    }

    /// It has answered, with the size of the image where it told it.
    pub fn note_answer(&self, size_bytes: Option<u64>) {
        self.asked_ms.store(0, Ordering::Relaxed);
        if let Some(size_bytes) = size_bytes {
            self.size_bytes.store(size_bytes, Ordering::Relaxed);
        }
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// How long the question, or a short request, has been waiting for an answer: a cluster that
    /// is full answers questions, and no write.
    pub fn unanswered(&self) -> Duration {
        let question = match self.asked_ms.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            asked => self.begun.elapsed().saturating_sub(Duration::from_millis(asked)),
        };
        let oldest = self.locked().in_flight.values().flatten().min().copied();
        oldest.map_or(question, |since| question.max(since.elapsed()))
    }

    fn locked(&self) -> MutexGuard<'_, Told> {
        // It is whole after each statement, whatever became of the thread that held it.
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the task that takes, if it waits, without the lock.
fn wake(mut told: MutexGuard<'_, Told>) {
    let waker = told.waker.take();
    drop(told);
    if let Some(waker) = waker {
        waker.wake();
    }
}
