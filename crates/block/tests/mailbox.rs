//! The mailbox in all orders in which two threads and their memory may take its steps, by a model
//! checker: the same source, with its primitives.

#[path = "../src/channel/mailbox.rs"]
#[allow(dead_code)]
mod mailbox;

mod atomics {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
    pub use loom::sync::{Arc, Mutex};

    macro_rules! is_broken {
        ($name:ident) => {
            crate::is_active(headpond_block::defect::Defect::$name)
        };
    }
    pub(super) use is_broken;
}

use headpond_block::defect::Defect;
use loom::future::block_on;
use loom::model::Builder;
use mailbox::{Receiver, Sender, mailbox};
use std::future::poll_fn;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// As many as the mailbox has places, and more than one.
const MESSAGES: usize = 2;
/// Switches of threads that nothing asks for, in one run: lost wake-ups need two.
const PREEMPTIONS_MAX: usize = 2;
/// Names the bug to be found, for a process of its own: the model checker does not survive one.
const BROKEN: &str = "HEADPOND_TEST_BROKEN_MAILBOX";

fn is_active(defect: Defect) -> bool {
    static ACTIVE: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(BROKEN).ok());
    ACTIVE.as_ref().is_some_and(|active| *active == format!("{defect:?}"))
}

fn check(model: fn()) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

fn send_all(sender: &Sender<usize>) {
    for message in 0..MESSAGES {
        let mut unsent = Some(message);
        while let Some(message) = unsent {
            unsent = sender.send(message).err();
            if unsent.is_some() {
                loom::thread::yield_now();
            }
        }
    }
}

fn receive_all(receiver: &Receiver<usize>) -> Vec<usize> {
    let mut received = Vec::new();
    block_on(async {
        while let Some(message) = poll_fn(|context| receiver.poll_receive(context)).await {
            received.push(message);
        }
    });
    received
}

/// One thread sends, and closes its end; the other one receives.
fn one_way() {
    let (sender, receiver) = mailbox(2);
    let thread = loom::thread::spawn(move || send_all(&sender));
    assert_eq!(receive_all(&receiver), (0..MESSAGES).collect::<Vec<_>>());
    thread.join().unwrap();
}

/// One thread answers, and the other one sends nothing more, and closes nothing, before that.
fn there_and_back() {
    let ((requests, received), (replies, answers)) = (mailbox(2), mailbox(2));
    let thread = loom::thread::spawn(move || {
        block_on(async {
            while let Some(request) = poll_fn(|context| received.poll_receive(context)).await {
                replies.send(request + 1).unwrap();
            }
        });
    });
    requests.send(7).unwrap();
    assert_eq!(block_on(poll_fn(|context| answers.poll_receive(context))), Some(8));
    drop(requests);
    thread.join().unwrap();
}

/// What is sent to a receiver that goes is dropped, once.
fn receiver_goes() {
    let (sender, receiver) = mailbox(2);
    let counted = std::sync::Arc::new(());
    let message = std::sync::Arc::clone(&counted);
    let thread = loom::thread::spawn(move || drop(sender.send(message)));
    drop(receiver.try_receive());
    drop(receiver);
    thread.join().unwrap();
    assert_eq!(std::sync::Arc::strong_count(&counted), 1);
}

#[test]
fn messages_arrive_in_all_orders() {
    check(one_way);
    check(there_and_back);
}

#[test]
fn messages_to_a_receiver_that_goes_are_dropped() {
    check(receiver_goes);
}

#[test]
fn mistakes_on_purpose_are_found() {
    for defect in Defect::OF_MAILBOXES {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "messages_arrive_in_all_orders"]);
        command.env(BROKEN, format!("{defect:?}")).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(!command.status().unwrap().success(), "{defect:?} was not found");
    }
}
