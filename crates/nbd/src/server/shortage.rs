//! Which connection is dropped for another where places or memory are short.
//!
//! 1. A connection that arrives while all places are in use replaces the oldest unfinished
//!    handshake, or else the oldest client that is idle since its handshake.
//! 2. Without such a one it is refused in the handshake, in one of a few places reserved for that;
//!    where these are in use as well it is closed without a reply.
//! 3. Requests wait for memory in a queue. A client that holds memory and has neither read its
//!    replies nor sent its payload for long is disconnected, one at a time.
//!
//! **Invariants**
//! - A connection that has carried requests is never replaced: with a mounted file system that
//!   would be an I/O error.
//! - Only a client that blocks others is disconnected, never one whose device is slow. Where the
//!   waiting ones are idle as well, such as paused virtual machines, none is.

use super::Shared;
use super::connection::Standing;
use crate::link::SendQueue;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

/// How often a request that waits for memory checks for stalled clients that hold some.
const STALL_PAUSE: Duration = Duration::from_secs(1);

impl Shared {
    /// The place of a new connection, if any.
    pub(super) fn place_for_newcomer(&self) -> Option<Standing> {
        if self.is_stopping() {
            return None;
        }
        let in_standing = |standing| {
            let connections = self.connections.borrow();
            connections.values().filter(|connection| connection.standing() == standing).count()
        };
        if in_standing(Standing::Served) < self.limits.connections_max || self.make_way() {
            return Some(Standing::Served);
        }
        let has_room = in_standing(Standing::TurnedAway) < self.limits.turned_away_max;
        has_room.then_some(Standing::TurnedAway)
    }

    /// Replaces a connection without requests; false where there is none.
    fn make_way(&self) -> bool {
        let now = self.runtime.now();
        let connections = self.connections.borrow();
        let mut served =
            connections.values().filter(|connection| connection.standing() == Standing::Served);
        let unused_time = self.limits.unused_time_max;
        // In the order in which they came.
        let half_open = served.clone().find(|connection| !connection.is_established());
        let found = half_open.or_else(|| served.find(|it| it.is_unused(now, unused_time)));
        if let Some(connection) = found {
            connection.give_way();
            self.closed.borrow_mut().gave_way += 1;
        }
        found.is_some()
    }

    /// Waits until a request of `bytes` is admitted to `queue`, and disconnects stalled clients
    /// that hold memory.
    pub(super) async fn wait_for_memory(&self, queue: &Rc<SendQueue>, bytes: u64) {
        let mut admission = pin!(queue.admit(bytes));
        let mut pause = self.runtime.sleep(STALL_PAUSE);
        poll_fn(|context| {
            while Pin::new(&mut pause).poll(context).is_ready() {
                self.cut_off_stalled(queue);
                // Another thread may have made the budget larger.
                self.memory.grant();
                pause = self.runtime.sleep(STALL_PAUSE);
            }
            admission.as_mut().poll(context)
        })
        .await;
    }

    /// Disconnects the stalled client that holds the most, for a waiting one that is not stalled
    /// itself.
    fn cut_off_stalled(&self, waiting: &Rc<SendQueue>) {
        let (now, after) = (self.runtime.now(), self.limits.stall_time_max);
        let connections = self.connections.borrow();
        let stalled = connections.values().filter(|connection| connection.has_stalled(now, after));
        let stalled: Vec<_> = stalled.collect();
        if stalled.iter().any(|connection| Rc::ptr_eq(&connection.queue, waiting)) {
            return;
        }
        let stalled = stalled.into_iter();
        let most = stalled.max_by_key(|connection| connection.queue.in_flight().bytes());
        if let Some(connection) = most {
            connection.cut_off_for_memory();
            self.closed.borrow_mut().stalled += 1;
        }
    }
}
