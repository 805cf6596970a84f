//! What has happened to the devices of a volume: their errors, and the scrubs of its arrays.
//!
//! 1. The layer above makes one for all arrays of a volume, and restores what it kept before a
//!    restart; 2. arrays and caches count errors in it, and an array its scrubs, also where it is
//!    assembled again meanwhile; 3. the layer above keeps it when it has changed.
//!
//! **Not here**: where it is kept (the layer above).

mod scrub;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use headpond_block::ErrorLog;
use headpond_block::sync::Notify;
use uuid::Uuid;

pub use scrub::{Finding, LastScrub, MemberScrub, ScrubReport, ScrubState, Trouble};

/// The newest scrub of an array.
pub(crate) type ScrubLog = Rc<RefCell<Option<LastScrub>>>;

/// Errors by device, and scrubs by array. Cloning shares it.
#[derive(Clone, Default)]
pub struct History(Rc<Shared>);

#[derive(Default)]
struct Shared {
    devices: RefCell<BTreeMap<Uuid, Rc<ErrorLog>>>,
    scrubs: RefCell<BTreeMap<Uuid, ScrubLog>>,
    changes: Rc<Changes>,
}

#[derive(Default)]
struct Changes {
    count: Cell<u64>,
    notify: Notify,
}

impl Changes {
    fn note(&self) {
        self.count.set(self.count.get() + 1);
        self.notify.notify_all();
    }
}

impl History {
    /// The errors of a device, by the UUID on it.
    pub fn errors_of(&self, device: Uuid) -> Rc<ErrorLog> {
        let mut devices = self.0.devices.borrow_mut();
        let log = devices.entry(device).or_insert_with(|| {
            let (log, changes) = (ErrorLog::default(), Rc::clone(&self.0.changes));
            log.when_changed(Rc::new(move || changes.note()));
            Rc::new(log)
        });
        Rc::clone(log)
    }

    /// The newest scrub of an array.
    pub fn scrub_of(&self, array: Uuid) -> Option<LastScrub> {
        self.scrub_log(array).borrow().clone()
    }

    pub fn restore_scrub(&self, array: Uuid, scrub: LastScrub) {
        self.scrub_log(array).replace(Some(scrub));
    }

    /// Acknowledges the findings of the newest scrub of an array.
    pub fn clear_scrub(&self, array: Uuid) {
        if let Some(scrub) = &mut *self.scrub_log(array).borrow_mut() {
            scrub.is_cleared = true;
        }
        self.note_change();
    }

    pub(crate) fn scrub_log(&self, array: Uuid) -> ScrubLog {
        Rc::clone(self.0.scrubs.borrow_mut().entry(array).or_default())
    }

    /// Something is to be kept that was not before.
    pub fn note_change(&self) {
        self.0.changes.note();
    }

    /// How often it has changed.
    pub fn changes(&self) -> u64 {
        self.0.changes.count.get()
    }

    /// Completes when it changes, or [`History::wake`] is called.
    pub async fn changed(&self) {
        self.0.changes.notify.wait().await;
    }

    /// Ends [`History::changed`].
    pub fn wake(&self) {
        self.0.changes.notify.notify_all();
    }
}
