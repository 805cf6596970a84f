//! The task that watches a served volume: what changes in its status makes events.
//!
//! Once a second, from what the volume counts anyway; a request costs nothing more.

use super::events::{SLOW, Snapshot, changes};
use super::service::ControlService;
use std::rc::Rc;
use std::time::Duration;

const LOOK_EVERY: Duration = Duration::from_secs(1);

impl ControlService {
    /// Watches until the volume is stopped.
    pub async fn tell_changes(self: Rc<Self>) {
        let mut before = None;
        while !self.is_closing() {
            before = Some(self.tell_changes_since(before.as_ref()));
            self.runtime.sleep(LOOK_EVERY).await;
        }
    }

    fn tell_changes_since(&self, before: Option<&Snapshot>) -> Snapshot {
        let after = Snapshot::of(&self.volume.status(), self.volume.slow_requests(SLOW));
        changes(before, &after).into_iter().for_each(|event| self.events.tell(event));
        self.events.tell_due();
        after
    }
}
