//! Storage behind a network, with a lock of its own.
//!
//! **Not here**: what follows from it (the layers above).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::rc::Rc;

/// A device on other machines, which let one client at a time write to it.
pub trait RemoteStorage {
    fn status(&self) -> RemoteStatus;

    /// Has `tell` called with the reason when the lock is lost; at once where it is.
    fn when_lost(&self, tell: OnLoss);
}

/// Called with the reason for which a lock is lost.
pub type OnLoss = Rc<dyn Fn(&str)>;

/// What such a device tells beside its answers to requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemoteStatus {
    /// How long the storage has not answered; absent while it does. Requests wait meanwhile.
    pub waiting_s: Option<u64>,
    /// Its size now: another one than that of the device where it was changed since.
    pub size_bytes: u64,
    /// Why its lock is lost: nothing is read or written any more.
    pub lost: Option<String>,
}
