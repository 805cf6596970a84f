//! Signals that end a command: Ctrl-C (SIGINT), SIGTERM, and SIGHUP.
//!
//! 1. [`watch`] starts a thread that waits for them. `serve` has its own rules.
//! 2. Without an order, the first signal ends the program. A command that has something to put back
//!    or to complete gives an order ([`ends`], [`completes`], [`exits`]).
//! 3. The first signal carries out the order, and the command ends by itself; a second signal ends
//!    the program at once.
//!
//! **Invariant**: a signal that was ignored when the program was started stays ignored (`nohup`).

use anyhow::Result;
use headpond_api::outcome::Exit;
use std::process::exit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What the first signal does.
struct Order {
    /// Printed when it arrives.
    note: String,
    then: Then,
}

enum Then {
    /// The command ends by itself after this.
    End {
        by: Box<dyn FnOnce() + Send>,
        is_complete: bool,
    },
    Exit,
}

static ORDER: Mutex<Option<Order>> = Mutex::new(None);
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Waits for signals from now on.
///
/// # Errors
/// Where no signals can be waited for.
pub fn watch() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let guard = runtime.enter();
    let mut signals = Vec::new();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        if !is_ignored(kind) {
            signals.push(signal(kind)?);
        }
    }
    drop(guard);
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        runtime.block_on(async {
            next(&mut signals).await;
            carry_out(ORDER.lock().expect("no holder panics").take());
            next(&mut signals).await;
            exit(Exit::Interrupted as i32);
        });
    })?;
    Ok(())
}

/// The first signal calls `by`, after which the command ends by itself; its exit code is
/// [`Exit::Interrupted`].
pub fn ends(note: &str, by: impl FnOnce() + Send + 'static) {
    order(note, Then::End { by: Box::new(by), is_complete: false });
}

/// The same for a command that a signal completes: its exit code is its own.
pub fn completes(note: &str, by: impl FnOnce() + Send + 'static) {
    order(note, Then::End { by: Box::new(by), is_complete: true });
}

/// The first signal prints the note, and ends the program.
pub fn exits(note: &str) {
    order(note, Then::Exit);
}

/// Whether a signal has ended the command.
pub fn is_interrupted() -> bool {
    IS_INTERRUPTED.load(Ordering::Relaxed)
}

fn order(note: &str, then: Then) {
    *ORDER.lock().expect("no holder panics") = Some(Order { note: note.to_owned(), then });
}

fn carry_out(order: Option<Order>) {
    let Some(Order { note, then }) = order else { exit(Exit::Interrupted as i32) };
    eprintln!("headpond: {note}");
    match then {
        Then::Exit => exit(Exit::Interrupted as i32),
        Then::End { by, is_complete } => {
            IS_INTERRUPTED.store(!is_complete, Ordering::Relaxed);
            by();
        }
    }
}

/// The next of them; never where all are ignored.
async fn next(signals: &mut [Signal]) {
    std::future::poll_fn(|context| {
        let mut polled = signals.iter_mut().map(|signal| signal.poll_recv(context));
        match polled.any(|polled| polled.is_ready()) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
}

/// Source: proc_pid_status(5), `SigIgn`: bit 0 is signal 1.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = 1u64 << (kind.as_raw_value() - 1);
    mask.unwrap_or(0) & bit != 0
}
