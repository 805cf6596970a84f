//! The clients' end: a device, and the memory that is lent.

use super::mailbox::{Receiver, Sender};
use super::{Crossing, Lent, Reply, Ticket};
use crate::sync::Notify;
use crate::{
    BlockDevice, Buffer, Buffers, Cause, DeviceError, DeviceName, Geometry, Outcome, Request,
    RequestKind, Runtime, Submission,
};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The clients' end on its way to their thread.
pub struct ClientEnd {
    geometry: Geometry,
    requests: Sender<Crossing>,
    replies: Receiver<Reply>,
    places: usize,
}

/// A device that is served on another thread.
pub struct ChannelDevice {
    name: DeviceName,
    geometry: Geometry,
    requests: Sender<Crossing>,
    places: Rc<Places>,
}

/// The requests under way, each at the number that crosses with it.
struct Places {
    places: RefCell<Vec<Place>>,
    free: RefCell<Vec<Ticket>>,
    /// A place is free, or the device's thread has ended.
    changed: Notify,
    is_closed: Cell<bool>,
}

#[derive(Default)]
struct Place {
    /// What is lent, until it is returned.
    memory: Buffers,
    is_write: bool,
    is_returned: bool,
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    Free,
    Waiting(Option<Waker>),
    Answered(Outcome),
    /// Its waiter was dropped.
    Abandoned,
    /// Its waiter has the answer.
    Done,
}

/// Waits for the answer.
struct Answer {
    places: Rc<Places>,
    /// Until the answer is taken.
    ticket: Option<Ticket>,
    device: DeviceName,
}

impl ClientEnd {
    pub(super) fn new(
        geometry: Geometry,
        requests: Sender<Crossing>,
        replies: Receiver<Reply>,
        places: usize,
    ) -> Self {
        Self { geometry, requests, replies, places }
    }

    /// The device, for this thread.
    pub fn open(self, runtime: &Runtime, name: impl Into<DeviceName>) -> ChannelDevice {
        let Self { geometry, requests, replies, places } = self;
        let tickets = 0..Ticket::try_from(places).expect("few places");
        let places = Rc::new(Places {
            places: RefCell::new(tickets.clone().map(|_| Place::default()).collect()),
            free: RefCell::new(tickets.collect()),
            changed: Notify::new(),
            is_closed: Cell::new(false),
        });
        let collecting = Rc::clone(&places);
        drop(runtime.spawn(async move { collecting.collect(&replies).await }));
        ChannelDevice { name: name.into(), geometry, requests, places }
    }
}

impl BlockDevice for ChannelDevice {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if request.kind != RequestKind::Flush
            && let Err(error) = request.check(&self.name, &self.geometry)
        {
            return Submission::ready(Err(error));
        }
        match self.places.take() {
            Some(ticket) => Submission::pending(self.send(ticket, request)),
            None => Submission::pending(self.send_later(request)),
        }
    }
}

impl ChannelDevice {
    /// Requests that are under way, or whose memory is not returned yet.
    pub fn in_use(&self) -> usize {
        self.places.places.borrow().len() - self.places.free.borrow().len()
    }

    async fn send_later(&self, request: Request) -> Outcome {
        loop {
            let changed = self.places.changed.wait();
            if let Some(ticket) = self.places.take() {
                return self.send(ticket, request).await;
            }
            if self.places.is_closed.get() {
                return Err(DeviceError::new(&self.name, Cause::Gone));
            }
            changed.await;
        }
    }

    /// Sends a request now; the answer comes later.
    fn send(&self, ticket: Ticket, request: Request) -> Answer {
        let Request { kind, range, buffers, flags, hints } = request;
        let memory = buffers.iter().map(lend).collect();
        let crossing = Crossing { ticket, kind, range, flags, hints, memory };
        let is_sent = self.requests.send(crossing).is_ok();
        let mut places = self.places.places.borrow_mut();
        let place = &mut places[ticket as usize];
        assert!(matches!(place.state, State::Free), "a place is used once at a time");
        let state = match is_sent {
            true => State::Waiting(None),
            false => State::Answered(Err(DeviceError::new(&self.name, Cause::Gone))),
        };
        let is_write = kind == RequestKind::Write;
        *place = Place { memory: buffers, is_write, is_returned: !is_sent, state };
        drop(places);
        let (places, device) = (Rc::clone(&self.places), self.name.clone());
        Answer { places, ticket: Some(ticket), device }
    }
}

fn lend(buffer: &Buffer) -> Lent {
    let has_payload = !buffer.is_payload_free();
    let start = NonNull::new(buffer.as_ptr()).filter(|_| has_payload);
    Lent { start, len: buffer.len() }
}

impl Places {
    fn take(&self) -> Option<Ticket> {
        self.free.borrow_mut().pop()
    }

    /// Receives until the device's thread has closed its end.
    async fn collect(&self, replies: &Receiver<Reply>) {
        while let Some(reply) = poll_fn(|context| replies.poll_receive(context)).await {
            match reply {
                Reply::Answered(ticket, outcome) => self.answer(ticket, outcome),
                Reply::Returned(ticket) => self.take_back(ticket),
            }
        }
        self.close();
    }

    fn answer(&self, ticket: Ticket, outcome: Outcome) {
        let mut places = self.places.borrow_mut();
        let place = &mut places[ticket as usize];
        if crate::defect!(ReuseWhileLent) && place.is_write && !place.is_returned {
            place.memory.iter().for_each(|part| part.fill(0xee));
        }
        let waker = match std::mem::replace(&mut place.state, State::Answered(outcome)) {
            State::Waiting(waker) => waker,
            State::Abandoned => {
                place.state = State::Done;
                None
            }
            _ => panic!("a request is answered once, and not before it is sent"),
        };
        drop(places);
        self.release(ticket);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn take_back(&self, ticket: Ticket) {
        let mut places = self.places.borrow_mut();
        let place = &mut places[ticket as usize];
        assert!(!place.is_returned, "memory is returned once");
        place.is_returned = true;
        drop(places);
        self.release(ticket);
    }

    /// Frees a place that nobody needs any more.
    fn release(&self, ticket: Ticket) {
        let mut places = self.places.borrow_mut();
        let place = &mut places[ticket as usize];
        if !place.is_returned {
            return;
        }
        let memory = std::mem::take(&mut place.memory);
        let is_free = matches!(place.state, State::Done);
        if is_free {
            place.state = State::Free;
        }
        drop(places);
        drop(memory);
        if is_free {
            self.free.borrow_mut().push(ticket);
            self.changed.notify_all();
        }
    }

    /// The device's thread has ended: nothing of what was lent is left there.
    fn close(&self) {
        self.is_closed.set(true);
        let count = self.places.borrow().len();
        for ticket in 0..count as Ticket {
            let waker = {
                let mut places = self.places.borrow_mut();
                let place = &mut places[ticket as usize];
                if matches!(place.state, State::Free) {
                    continue;
                }
                place.is_returned = true;
                match &mut place.state {
                    State::Waiting(waker) => waker.take(),
                    State::Abandoned => {
                        place.state = State::Done;
                        None
                    }
                    _ => None,
                }
            };
            self.release(ticket);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
        self.changed.notify_all();
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        // The other thread may still use what it has not returned.
        let places = self.places.get_mut().drain(..);
        let is_lent = |place: &Place| !matches!(place.state, State::Free) && !place.is_returned;
        places.filter(is_lent).for_each(|place| std::mem::forget(place.memory));
    }
}

impl Future for Answer {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let ticket = self.ticket.expect("polled after its answer");
        let mut places = self.places.places.borrow_mut();
        let state = &mut places[ticket as usize].state;
        let outcome = match std::mem::replace(state, State::Done) {
            State::Answered(outcome) => outcome,
            State::Waiting(_) if self.places.is_closed.get() => {
                Err(DeviceError::new(&self.device, Cause::Gone))
            }
            State::Waiting(old) => {
                let is_same = old.as_ref().is_some_and(|old| old.will_wake(context.waker()));
                *state = State::Waiting(
                    old.filter(|_| is_same).or_else(|| Some(context.waker().clone())),
                );
                return Poll::Pending;
            }
            State::Free | State::Abandoned | State::Done => unreachable!("it has a waiter"),
        };
        drop(places);
        self.ticket = None;
        self.places.release(ticket);
        Poll::Ready(outcome)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut places = self.places.places.borrow_mut();
        let state = &mut places[ticket as usize].state;
        let is_over = matches!(state, State::Answered(_)) || self.places.is_closed.get();
        *state = if is_over { State::Done } else { State::Abandoned };
        drop(places);
        self.places.release(ticket);
    }
}
