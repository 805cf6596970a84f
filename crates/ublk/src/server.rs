//! Serves one queue: a task for each tag.

use crate::memory::Memory;
use crate::request::{request, result};
use headpond_block::{BlockDevice, Buffer, RequestKind, Runtime, Submission};
use headpond_uring::ublk;
use rustix::io::Errno;
use std::cell::Cell;
use std::future::Future;
use std::io;
use std::rc::Rc;

/// The kernel's side of a queue.
pub trait Queue {
    type Fetch: Future<Output = io::Result<()>>;

    fn depth(&self) -> u16;

    /// Asks for the first request of a tag; its data comes to this memory.
    fn fetch(&self, tag: u16, memory: Buffer) -> Self::Fetch;

    /// Answers with the data of a read in this memory, and asks for the next one.
    fn commit_and_fetch(&self, tag: u16, result: i32, memory: Buffer) -> Self::Fetch;

    /// The request that was fetched.
    fn descriptor(&self, tag: u16) -> ublk::Descriptor;
}

impl Queue for ublk::Queue {
    type Fetch = ublk::Fetch;

    fn depth(&self) -> u16 {
        self.depth()
    }

    fn fetch(&self, tag: u16, memory: Buffer) -> ublk::Fetch {
        self.fetch(tag, memory)
    }

    fn commit_and_fetch(&self, tag: u16, result: i32, memory: Buffer) -> ublk::Fetch {
        self.commit_and_fetch(tag, result, memory)
    }

    fn descriptor(&self, tag: u16) -> ublk::Descriptor {
        self.descriptor(tag)
    }
}

/// What a device has been asked for, over all its queues, and whether it is served.
#[derive(Debug, Default)]
pub struct Service {
    pub requests: Cell<u64>,
    pub read_bytes: Cell<u64>,
    pub written_bytes: Cell<u64>,
    pub errors: Cell<u64>,
    pub in_flight: Cell<u64>,
    /// Whatever writes is refused.
    is_read_only: bool,
    is_left: Cell<bool>,
}

impl Service {
    pub fn new(is_read_only: bool) -> Self {
        Self { is_read_only, ..Self::default() }
    }

    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// From now on requests are left to the next server: they are neither carried out nor answered.
    pub fn leave(&self) {
        self.is_left.set(true);
    }
}

/// Starts to serve a queue. Each tag ends when the kernel has no more requests for it.
pub fn serve<Q: Queue + 'static>(
    runtime: &Runtime,
    queue: Q,
    device: Rc<dyn BlockDevice>,
    io_bytes_max: u32,
    service: Rc<Service>,
) {
    let memory = Memory::new(io_bytes_max);
    let tags = 0..queue.depth();
    let serving = Rc::new(Serving { queue, device, memory, service });
    for tag in tags {
        let serving = Rc::clone(&serving);
        drop(runtime.spawn(async move { serving.serve_tag(tag).await }));
    }
}

struct Serving<Q> {
    queue: Q,
    device: Rc<dyn BlockDevice>,
    memory: Memory,
    service: Rc<Service>,
}

impl<Q: Queue> Serving<Q> {
    async fn serve_tag(&self, tag: u16) {
        let mut memory = self.memory.take();
        let mut fetch = self.queue.fetch(tag, memory.clone());
        // An error: the device is removed, or another server takes it over.
        while fetch.await.is_ok() {
            if self.service.is_left.get() {
                return;
            }
            let (result, used_bytes) = self.carry_out(tag, &memory).await;
            memory = self.memory.sole(memory, used_bytes);
            fetch = self.queue.commit_and_fetch(tag, result, memory.clone());
        }
    }

    /// The answer, and how much of the memory has the data of a read.
    async fn carry_out(&self, tag: u16, memory: &Buffer) -> (i32, usize) {
        add(&self.service.requests, 1);
        let request = match request(&self.queue.descriptor(tag), memory) {
            Ok(request) if self.service.is_read_only && request.is_mutation() => {
                add(&self.service.errors, 1);
                return (-Errno::ROFS.raw_os_error(), 0);
            }
            Ok(request) => request,
            Err(errno) => {
                add(&self.service.errors, 1);
                return (-errno.raw_os_error(), 0);
            }
        };
        let (kind, bytes) = (request.kind, request.range.len());
        add(&self.service.in_flight, 1);
        let outcome = Submission::on(Rc::clone(&self.device), request).await;
        self.service.in_flight.set(self.service.in_flight.get() - 1);
        add(&self.service.errors, u64::from(outcome.is_err()));
        let moved = match kind {
            RequestKind::Read => &self.service.read_bytes,
            RequestKind::Write => &self.service.written_bytes,
            _ => return (result(0, &outcome), 0),
        };
        add(moved, bytes);
        let used_bytes = if kind == RequestKind::Read { bytes as usize } else { 0 };
        (result(bytes, &outcome), used_bytes)
    }
}

fn add(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get() + more);
}
