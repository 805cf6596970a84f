//! What lets requests pass to a device, or holds them while the device is exchanged.
//!
//! **Invariant**: while it is held, no request passes that waits for [`IoGate::until_released`]
//! first, and those that had passed have been answered.

use headpond_block::sync::{Busy, BusyGuard, Notify};
use headpond_block::{BlockDevice, Request, Submission, start};
use std::cell::Cell;
use std::rc::Rc;

/// Open, unless somebody holds it.
#[derive(Default)]
pub(crate) struct IoGate {
    /// What has passed and is not answered yet.
    busy: Busy,
    is_held: Cell<bool>,
    released: Notify,
}

/// Nothing passes while this is there.
pub(crate) struct HeldIoGate<'a>(&'a IoGate);

impl IoGate {
    /// Lets nothing pass until the answer is dropped, and waits for what has.
    ///
    /// # Panics
    /// Where it is held already.
    pub async fn hold(&self) -> HeldIoGate<'_> {
        assert!(!self.is_held.replace(true), "one at a time exchanges what lies below");
        let held = HeldIoGate(self);
        self.busy.until_idle().await;
        held
    }

    pub fn is_held(&self) -> bool {
        self.is_held.get()
    }

    pub async fn until_released(&self) {
        while self.is_held.get() {
            self.released.wait().await;
        }
    }

    /// Something has passed, and is not over before the answer is dropped.
    pub fn begin(&self) -> BusyGuard {
        self.busy.begin()
    }

    /// Passes a request on, and counts it for as long as the device has not answered.
    pub fn pass(&self, device: &Rc<dyn BlockDevice>, request: Request) -> Submission<'static> {
        match start(device, request) {
            Ok(outcome) => Submission::ready(outcome),
            Err(started) => {
                let busy = self.begin();
                Submission::pending(async move {
                    let _busy = busy;
                    started.await
                })
            }
        }
    }
}

impl Drop for HeldIoGate<'_> {
    fn drop(&mut self) {
        self.0.is_held.set(false);
        self.0.released.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn who_holds_it_waits_for_what_has_passed_and_others_wait_for_who_holds_it() {
        let (gate, context) = (IoGate::default(), &mut Context::from_waker(Waker::noop()));
        let passed = gate.begin();
        let mut hold = pin!(gate.hold());
        assert!(hold.as_mut().poll(context).is_pending());
        assert!(pin!(gate.until_released()).poll(context).is_pending());
        drop(passed);
        let held = hold.as_mut().poll(context);
        assert!(held.is_ready() && gate.is_held());
        assert!(pin!(gate.until_released()).poll(context).is_pending());
        drop(held);
        assert!(pin!(gate.until_released()).poll(context).is_ready() && !gate.is_held());
    }
}
