use super::*;
use std::cell::RefCell;
use std::sync::{Condvar, Mutex};

/// Waits for another thread to unpark it.
#[derive(Default)]
struct Parked(Arc<(Mutex<bool>, Condvar)>);

impl Driver for Parked {
    fn now(&self) -> Instant {
        Instant::START
    }

    fn park(&self, wait: Wait) -> io::Result<()> {
        let mut woken = self.0.0.lock().unwrap();
        while wait == Wait::Forever && !*woken {
            woken = self.0.1.wait(woken).unwrap();
        }
        *woken = false;
        Ok(())
    }

    fn unparker(&self) -> Arc<dyn Fn() + Send + Sync> {
        let signal = Arc::clone(&self.0);
        Arc::new(move || {
            *signal.0.lock().unwrap() = true;
            signal.1.notify_one();
        })
    }
}

fn executor(order: Order) -> Executor {
    Executor::new(Box::<VirtualClock>::default(), order)
}

fn interleaving(order: Order) -> Vec<u32> {
    let executor = executor(order);
    let runtime = executor.runtime();
    let story = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = (0..8)
        .map(|name| {
            let (story, runtime) = (Rc::clone(&story), runtime.clone());
            executor.runtime().spawn(async move {
                for _ in 0..3 {
                    story.borrow_mut().push(name);
                    runtime.yield_now().await;
                }
            })
        })
        .collect();
    executor
        .block_on(async {
            for task in tasks {
                task.await;
            }
        })
        .unwrap();
    story.take()
}

#[test]
fn sleepers_wake_in_order_of_time() {
    let executor = executor(Order::Fifo);
    let runtime = executor.runtime();
    let elapsed = executor.block_on(async {
        let late = runtime.sleep(Duration::from_millis(20));
        let early = runtime.sleep(Duration::from_millis(10));
        late.await;
        early.await;
        runtime.now()
    });
    assert_eq!(elapsed.unwrap(), Instant::START + Duration::from_millis(20));
}

#[test]
fn same_seed_gives_the_same_interleaving() {
    assert_eq!(interleaving(Order::Seeded(7)), interleaving(Order::Seeded(7)));
    assert_ne!(interleaving(Order::Seeded(7)), interleaving(Order::Seeded(8)));
    assert_eq!(interleaving(Order::Fifo)[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
}

#[test]
fn waiting_for_nothing_is_reported() {
    let executor = executor(Order::Fifo);
    drop(executor.runtime().spawn(std::future::pending::<()>()));
    let stalled = executor.block_on(std::future::pending::<()>()).unwrap_err();
    assert_eq!(stalled.tasks, 1);
}

#[test]
fn loser_of_a_deadline_runs_to_its_end() {
    let executor = executor(Order::Fifo);
    let runtime = executor.runtime();
    let ended = Rc::new(Cell::new(false));
    let (mark, clock) = (Rc::clone(&ended), runtime.clone());
    executor
        .block_on(async {
            let slow = async move {
                clock.sleep(Duration::from_secs(2)).await;
                mark.set(true);
            };
            let outcome = runtime.deadline(Instant::START + Duration::from_secs(1), slow).await;
            assert_eq!(outcome, Err(Late));
            assert!(!ended.get());
            runtime.sleep(Duration::from_secs(1)).await;
            runtime.yield_now().await;
            assert!(ended.get());
        })
        .unwrap();
}

#[test]
fn a_met_deadline_leaves_no_timer_behind() {
    let executor = executor(Order::Fifo);
    let runtime = executor.runtime();
    executor
        .block_on(async {
            let at = Instant::START + Duration::from_secs(60);
            assert_eq!(runtime.deadline(at, async { 5 }).await, Ok(5));
            assert_eq!(runtime.core.timers.next(), None);
        })
        .unwrap();
}

#[test]
fn dropping_the_executor_drops_tasks_where_they_stand() {
    struct Flag(Rc<Cell<bool>>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }
    let dropped = Rc::new(Cell::new(false));
    let flag = Flag(Rc::clone(&dropped));
    let executor = executor(Order::Fifo);
    let runtime = executor.runtime();
    let inner = runtime.clone();
    drop(runtime.spawn(async move {
        let _flag = flag;
        inner.sleep(Duration::from_secs(1)).await;
    }));
    executor.block_on(runtime.yield_now()).unwrap();
    drop(executor);
    assert!(dropped.get());
}

#[test]
fn another_thread_wakes_a_parked_task() {
    let executor = Executor::new(Box::<Parked>::default(), Order::Fifo);
    let shared = Arc::new(Mutex::new((false, None::<std::task::Waker>)));
    let other = Arc::clone(&shared);
    let thread = std::thread::spawn(move || {
        loop {
            let mut other = other.lock().unwrap();
            if let Some(waker) = other.1.take() {
                other.0 = true;
                drop(other);
                return waker.wake();
            }
            drop(other);
            std::thread::yield_now();
        }
    });
    let wait = std::future::poll_fn(|context| {
        let mut shared = shared.lock().unwrap();
        shared.1 = Some(context.waker().clone());
        if shared.0 { Poll::Ready(()) } else { Poll::Pending }
    });
    executor.block_on(wait).unwrap();
    thread.join().unwrap();
}

#[test]
fn what_is_started_is_there_at_once_or_runs_on_as_a_task() {
    let executor = executor(Order::Fifo);
    let runtime = executor.runtime();
    let main = async {
        assert_eq!(runtime.start(async { 7 }).ok(), Some(7));
        let (sender, receiver) = oneshot();
        let Err(rest) = runtime.start(receiver) else { panic!("too early") };
        sender.send(9);
        assert_eq!(rest.await, Some(9), "the task is woken though it was polled before it was one");
    };
    executor.block_on(main).unwrap();
}

#[test]
fn what_a_starter_begins_ends_at_once_or_as_tasks_that_keep_their_memory() {
    let executor = executor(Order::Fifo);
    let runtime = executor.runtime();
    let story = Rc::new(RefCell::new(Vec::new()));
    let work = |name: u32, waits: bool| {
        let (runtime, story) = (runtime.clone(), Rc::clone(&story));
        async move {
            story.borrow_mut().push(name);
            if waits {
                runtime.yield_now().await;
                story.borrow_mut().push(name + 10);
            }
        }
    };
    let main = async {
        let mut starter = runtime.starter();
        for (name, waits) in [(1, false), (2, true), (3, true), (4, false), (5, false)] {
            starter.start(|| work(name, waits));
        }
        assert_eq!(*story.borrow(), [1, 2, 3, 4, 5]);
        drop(starter);
        runtime.sleep(Duration::from_millis(1)).await;
    };
    executor.block_on(main).unwrap();
    assert_eq!(*story.borrow(), [1, 2, 3, 4, 5, 12, 13]);
    assert_eq!(Rc::strong_count(&story), 1, "what has ended is dropped");
}
