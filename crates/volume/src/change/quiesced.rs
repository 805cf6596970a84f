//! Holding everything above an array while it is changed as a whole.

use crate::assembly::cores::{Core, Cores};
use crate::assembly::gate::HeldIoGate;
use crate::serving::dispatcher::Held;
use crate::volume::Volume;

/// Until it is dropped there are no requests of clients, no background work on one core, and no
/// requests of a cache for any array. The work is resumed then, unless the array was stopped.
pub(crate) struct Quiesced<'a> {
    pub core: &'a Core,
    pub requests: Held<'a>,
    _backing: HeldIoGate<'a>,
}

impl Volume {
    /// In the order in which one may wait for the other: background work for a cache, and a cache
    /// for the arrays.
    pub(crate) async fn quiesce<'a>(&'a self, cores: &'a Cores, core: &'a Core) -> Quiesced<'a> {
        let requests = self.dispatcher.hold().await;
        core.background.stop().await;
        Quiesced { core, requests, _backing: cores.backing.hold().await }
    }
}

impl Drop for Quiesced<'_> {
    fn drop(&mut self) {
        if !self.core.array.is_stopped() {
            self.core.background.begin_again();
        }
    }
}
