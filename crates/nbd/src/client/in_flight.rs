//! The requests that a client waits for.

use crate::codec::wire::WireError;
use headpond_block::Buffers;
use headpond_block::sync::{Receiver, Sender, oneshot};

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Done,
    Failed(WireError),
    /// The connection ended before the reply.
    Lost,
}

/// One request in flight. It holds the memory of a read until the server has replied, also after
/// the caller dropped it.
pub struct Pending {
    /// Where the read's data goes; empty for everything else.
    pub memory: Buffers,
    pub offset: u64,
    /// Bytes of the read that no chunk has delivered yet.
    pub missing_bytes: u64,
    pub error: Option<WireError>,
    answer: Sender<Reply>,
}

/// Requests in flight by cookie: a slot, and how often it was used.
#[derive(Default)]
pub struct InFlight {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    uses: u32,
    pending: Option<Pending>,
}

impl InFlight {
    /// Adds a request; returns its cookie and the receiver of its outcome.
    pub fn insert(&mut self, memory: Buffers, offset: u64) -> (u64, Receiver<Reply>) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("as many slots as requests in flight")
        });
        let (answer, receiver) = oneshot();
        let slot = &mut self.slots[index as usize];
        assert!(slot.pending.is_none(), "slot in use");
        slot.uses = slot.uses.wrapping_add(1);
        let missing_bytes = memory.len_bytes() as u64;
        slot.pending = Some(Pending { memory, offset, missing_bytes, error: None, answer });
        ((u64::from(slot.uses) << 32) | u64::from(index), receiver)
    }

    /// The request in flight with this cookie.
    pub fn get(&mut self, cookie: u64) -> Option<&mut Pending> {
        let slot = self.slots.get_mut(cookie as u32 as usize)?;
        if slot.uses != (cookie >> 32) as u32 { None } else { slot.pending.as_mut() }
    }

    /// Completes a request and removes it.
    ///
    /// # Panics
    /// Where there is none with this cookie.
    pub fn finish(&mut self, cookie: u64, reply: Reply) {
        assert!(self.get(cookie).is_some(), "an answer to nothing");
        let index = cookie as u32;
        let pending = self.slots[index as usize].pending.take().expect("looked at just now");
        self.free.push(index);
        pending.answer.send(reply);
    }

    /// Fails all requests in flight.
    pub fn lose_all(&mut self) {
        for pending in self.slots.iter_mut().filter_map(|slot| slot.pending.take()) {
            pending.answer.send(Reply::Lost);
        }
        self.slots.clear();
        self.free.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_cookie_is_nobodys() {
        let mut in_flight = InFlight::default();
        let (first, _answer) = in_flight.insert(Buffers::new(), 0);
        in_flight.finish(first, Reply::Done);
        assert!(in_flight.get(first).is_none());
        let (second, _answer) = in_flight.insert(Buffers::new(), 0);
        assert_eq!(first as u32, second as u32, "the slot is used again");
        assert_ne!(first, second);
        assert!(in_flight.get(second).is_some());
        assert!(in_flight.get(u64::MAX).is_none());
    }
}
