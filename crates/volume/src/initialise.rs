//! Parity that was never computed, computed in the background while the volume is served.
//!
//! It takes half of the time at most, so that requests find the members free. A stop ends it early;
//! the next open begins anew.

use headpond_block::{DeviceError, Instant, JoinHandle, Runtime};
use headpond_raid::{Array, ArrayState};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The work, where there is some.
#[derive(Default)]
pub(crate) struct Initialisation {
    is_stopping: Rc<Cell<bool>>,
    task: Cell<Option<JoinHandle<()>>>,
    failure: Rc<RefCell<Option<DeviceError>>>,
    begun: Cell<Option<Instant>>,
}

impl Initialisation {
    /// Begins, where the array needs it and is healthy: what a lost member held cannot be told
    /// from parity that was never computed.
    pub fn begin(&self, array: &Rc<Array>, runtime: &Runtime) {
        let status = array.status();
        if status.parity_initialised || status.state != ArrayState::Healthy {
            return;
        }
        self.begun.set(Some(runtime.now()));
        let (array, runtime) = (Rc::clone(array), runtime.clone());
        let (is_stopping, failure) = (Rc::clone(&self.is_stopping), Rc::clone(&self.failure));
        self.task.set(Some(runtime.clone().spawn(async move {
            let mut since = runtime.now();
            let breathe = async || {
                runtime.sleep(runtime.now().since(since)).await;
                since = runtime.now();
                !is_stopping.get()
            };
            if let Err(error) = array.initialise(breathe).await {
                *failure.borrow_mut() = Some(error);
            }
        })));
    }

    /// When, where there was something to do.
    pub fn begun(&self) -> Option<Instant> {
        self.begun.get()
    }

    /// Why it ended before its end.
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().as_ref().map(ToString::to_string)
    }

    /// Waits until nothing of it is under way.
    pub async fn stop(&self) {
        self.is_stopping.set(true);
        if let Some(task) = self.task.take() {
            task.await;
        }
    }
}
