//! The tasks of one executor and the queue of those that are ready.

use super::Order;
use super::waker::{TaskKey, waker};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

type Task = Pin<Box<dyn Future<Output = ()>>>;

pub(super) struct Tasks {
    executor: u32,
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<TaskKey>>,
    main_is_ready: Cell<bool>,
    draw: Option<RefCell<Xoshiro256PlusPlus>>,
}

struct Slot {
    generation: u16,
    is_ready: bool,
    /// Absent while the slot is free, and while the task is being polled.
    task: Option<Task>,
    waker: Waker,
}

impl Tasks {
    pub(super) fn new(order: Order, executor: u32) -> Self {
        let draw = match order {
            Order::Fifo => None,
            Order::Seeded(seed) => Some(RefCell::new(Xoshiro256PlusPlus::seed_from_u64(seed))),
        };
        Self {
            executor,
            slots: RefCell::default(),
            free: RefCell::default(),
            ready: RefCell::default(),
            main_is_ready: Cell::new(false),
            draw,
        }
    }

    pub(super) fn spawn(&self, task: Task) {
        let mut slots = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            let index = u32::try_from(slots.len()).expect("fewer tasks than 2^20");
            let waker = waker(TaskKey::new(self.executor, 0, index));
            slots.push(Slot { generation: 0, is_ready: false, task: None, waker });
            index
        });
        let slot = &mut slots[index as usize];
        assert!(slot.task.is_none(), "task slot in use");
        let key = TaskKey::new(self.executor, slot.generation, index);
        slot.waker = waker(key);
        slot.task = Some(task);
        slot.is_ready = true;
        self.ready.borrow_mut().push_back(key);
    }

    /// Marks a task as ready. The key of a finished task has no effect.
    pub(super) fn wake(&self, key: TaskKey) {
        if key.is_main() {
            if !self.main_is_ready.replace(true) {
                self.ready.borrow_mut().push_back(key);
            }
            return;
        }
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(key.index() as usize) else { return };
        if slot.generation == key.generation() && !slot.is_ready {
            slot.is_ready = true;
            self.ready.borrow_mut().push_back(key);
        }
    }

    pub(super) fn ready_count(&self) -> usize {
        self.ready.borrow().len()
    }

    pub(super) fn next_ready(&self) -> Option<TaskKey> {
        let mut ready = self.ready.borrow_mut();
        let key = match &self.draw {
            Some(draw) if ready.len() > 1 => {
                let index = (draw.borrow_mut().next_u64() % ready.len() as u64) as usize;
                ready.swap_remove_back(index)
            }
            _ => ready.pop_front(),
        }?;
        if key.is_main() {
            self.main_is_ready.set(false);
        } else {
            self.slots.borrow_mut()[key.index() as usize].is_ready = false;
        }
        Some(key)
    }

    /// Polls one task. It is out of its slot during that, so that it may spawn and wake.
    pub(super) fn poll(&self, key: TaskKey) {
        let (task, waker) = {
            let mut slots = self.slots.borrow_mut();
            let slot = &mut slots[key.index() as usize];
            if slot.generation != key.generation() {
                return;
            }
            (slot.task.take(), slot.waker.clone())
        };
        let Some(mut task) = task else { return };
        let done = task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if !done {
            self.slots.borrow_mut()[key.index() as usize].task = Some(task);
            return;
        }
        drop(task);
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[key.index() as usize];
        slot.generation = TaskKey::next_generation(slot.generation);
        slot.is_ready = false;
        self.free.borrow_mut().push(key.index());
    }

    /// Number of tasks that are not finished.
    pub(super) fn count(&self) -> usize {
        self.slots.borrow().len() - self.free.borrow().len()
    }

    pub(super) fn main_waker(&self) -> Waker {
        waker(TaskKey::main(self.executor))
    }

    pub(super) fn drop_all(&self) {
        let count = self.slots.borrow().len();
        for index in 0..count {
            // Taken out first: dropping a task may wake others.
            let task = self.slots.borrow_mut()[index].task.take();
            drop(task);
        }
        self.ready.borrow_mut().clear();
    }
}
