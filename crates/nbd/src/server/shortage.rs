//! What happens where places or memory are short: which connection gives way to another one.
//!
//! 1. A connection that comes while all places are taken gets that of the oldest handshake that is
//!    not finished, or else of the oldest client that has never asked for anything for a while.
//! 2. Where none gives way it is told so, in one of a few places that are good for nothing else;
//!    and where these are taken as well it is closed unanswered.
//! 3. A request that waits for memory waits in line. Where another client holds memory and has
//!    neither read its answers nor sent its payload for long, it is cut off, one at a time.
//!
//! **Invariants**
//! - A connection that has carried requests never gives its place to another one: where a file
//!   system is mounted, that would be an error for its user.
//! - Only a client that keeps others waiting is cut off, and never one whose device is slow. Where
//!   those that wait do nothing either, such as machines that are all paused, none is.

use super::Shared;
use super::connection::Standing;
use crate::link::SendQueue;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

/// How often a request that waits for memory looks for clients that hold some and do nothing.
const STALL_PAUSE: Duration = Duration::from_secs(1);

impl Shared {
    /// Which place a new connection gets, if any.
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

    /// Takes the place of a connection that has done nothing yet; false where there is none.
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

    /// Waits until a request of `bytes` is admitted to `queue`, and frees memory that is held to no
    /// purpose meanwhile.
    pub(super) async fn wait_for_memory(&self, queue: &Rc<SendQueue>, bytes: u64) {
        let mut admission = pin!(queue.admit(bytes));
        let mut pause = self.runtime.sleep(STALL_PAUSE);
        poll_fn(|context| {
            while Pin::new(&mut pause).poll(context).is_ready() {
                self.cut_off_stalled(queue);
                pause = self.runtime.sleep(STALL_PAUSE);
            }
            admission.as_mut().poll(context)
        })
        .await;
    }

    /// Cuts off the one that holds most of those that have done nothing for long, on behalf of one
    /// that waits and is none of them.
    fn cut_off_stalled(&self, waiting: &Rc<SendQueue>) {
        let (now, after) = (self.runtime.now(), self.limits.stall_time_max);
        let connections = self.connections.borrow();
        let stalled = connections.values().filter(|connection| connection.has_stalled(now, after));
        let stalled: Vec<_> = stalled.collect();
        if stalled.iter().any(|connection| Rc::ptr_eq(&connection.queue, waiting)) {
            return;
        }
        let stalled = stalled.into_iter();
        let most = stalled.max_by_key(|connection| connection.queue.in_flight_bytes());
        if let Some(connection) = most {
            connection.cut_off();
            self.closed.borrow_mut().stalled += 1;
        }
    }
}
