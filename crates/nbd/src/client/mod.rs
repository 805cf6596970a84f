//! A client: a server's export as a block device.
//!
//! 1. [`NbdDevice::connect`] negotiates over a connected stream and spawns the connection's task.
//! 2. Each request gets a cookie and is queued; the task sends everything queued in one write and
//!    completes requests as their replies arrive, in any order.
//! 3. When the connection ends, every request in flight and every later one fails with `Gone`.
//!
//! **Invariants**
//! - Memory of a read in flight is held until its reply, or the end of the connection.
//! - At most [`IN_FLIGHT_MAX`] requests are in flight; further submissions wait in order.
//!
//! **Not here**: reconnecting, TLS.

mod device;
pub mod handshake;
mod in_flight;
mod receiver;

use crate::codec::CodecError;
use crate::codec::request::RequestHeader;
use crate::codec::wire::{Command, CommandFlags};
use crate::link::{InFlightLimits, Link, MemoryBudget, ReceivePool, SendQueue};
use handshake::{ClientHandshake, Refusal, Terms};
use headpond_block::sync::{Notify, Receiver, Semaphore};
use headpond_block::{
    BufferPool, Buffers, ByteRange, DeviceName, Geometry, Runtime, Stability, Stream,
};
use in_flight::{InFlight, Pending, Reply};
use receiver::receive_replies;
use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Requests that one connection has in flight at most.
pub const IN_FLIGHT_MAX: usize = 256;
/// How long a server may take for the handshake.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a server may take to close after the client's disconnect.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(2);

/// An export of an NBD server, over one connection.
pub struct NbdDevice {
    connection: Rc<Connection>,
    name: DeviceName,
    geometry: Geometry,
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("the server closed the connection during the handshake")]
    Closed,
    #[error("the server did not complete the handshake within {HANDSHAKE_TIME_MAX:?}")]
    Late,
    #[error("the server's smallest block of {0} bytes is larger than 4096")]
    BlockTooLarge(u32),
    #[error(transparent)]
    Stream(#[from] io::Error),
}

/// A server's error that ended the connection.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    #[error("the stream ended in the middle of a reply")]
    Truncated,
    #[error("a reply to a request that is not in flight")]
    UnknownCookie,
    #[error("a reply of a kind that does not match the request")]
    UnexpectedReply,
    #[error("reply data outside the request, or duplicated")]
    OutsideRequest,
    #[error("a read ended with {0} bytes missing")]
    MissingData(u64),
    #[error(transparent)]
    Malformed(#[from] CodecError),
    #[error(transparent)]
    Stream(#[from] io::Error),
}

/// What the device and the task of its connection share.
struct Connection {
    stream: Rc<dyn Stream>,
    runtime: Runtime,
    terms: Terms,
    queue: Rc<SendQueue>,
    in_flight: RefCell<InFlight>,
    slots: Semaphore,
    is_over: Cell<bool>,
    ended: Notify,
    error: RefCell<Option<ProtocolError>>,
}

impl NbdDevice {
    /// Negotiates `export` with the server at the other end of `stream`, and makes it a device.
    ///
    /// # Errors
    /// A [`ConnectError`]; the stream is shut down.
    pub async fn connect(
        runtime: &Runtime,
        pool: &BufferPool,
        stream: Rc<dyn Stream>,
        export: &str,
    ) -> Result<Self, ConnectError> {
        let name = DeviceName::new(format!("nbd:{}/{export}", stream.peer()));
        let closing = Rc::clone(&stream);
        let connecting = establish(runtime.clone(), pool.clone(), stream, export.to_owned());
        let deadline = runtime.now() + HANDSHAKE_TIME_MAX;
        let established = runtime.deadline(deadline, connecting).await;
        let established = established.unwrap_or(Err(ConnectError::Late));
        let connection = established.inspect_err(|_| closing.shutdown())?;
        let geometry = geometry_of(&connection.terms).inspect_err(|_| closing.shutdown())?;
        Ok(Self { connection, name, geometry })
    }

    /// The server's description of the export.
    pub fn terms(&self) -> &Terms {
        &self.connection.terms
    }

    /// Whether requests can still succeed.
    pub fn is_connected(&self) -> bool {
        !self.connection.is_over.get()
    }

    /// Takes the reason why the connection ended, where it was not a plain close.
    pub fn take_error(&self) -> Option<ProtocolError> {
        self.connection.error.borrow_mut().take()
    }

    /// Disconnects: waits until requests in flight have completed and the server has closed.
    pub async fn close(&self) {
        self.connection.say_goodbye();
        let connection = Rc::clone(&self.connection);
        let deadline = connection.runtime.now() + CLOSE_TIME_MAX;
        let ended = Rc::clone(&self.connection);
        let waited = connection.runtime.deadline(deadline, async move { ended.wait_end().await });
        if waited.await.is_err() {
            connection.stream.shutdown();
            connection.wait_end().await;
        }
    }
}

impl Drop for NbdDevice {
    fn drop(&mut self) {
        self.connection.say_goodbye();
    }
}

/// Negotiates, and hands the link to a task of its own.
async fn establish(
    runtime: Runtime,
    pool: BufferPool,
    stream: Rc<dyn Stream>,
    export: String,
) -> Result<Rc<Connection>, ConnectError> {
    let limits = InFlightLimits { requests_max: IN_FLIGHT_MAX, bytes_max: u64::MAX };
    let memory = Rc::new(MemoryBudget::new(u64::MAX));
    let queue = Rc::new(SendQueue::new(limits, memory, pool, Arc::default()));
    let (agreed, terms) = headpond_block::sync::oneshot();
    let inner = runtime.clone();
    let _task = runtime.spawn(async move {
        let mut link = Link::new(&*stream, Rc::clone(&queue), ReceivePool::new(2));
        match shake_hands(&mut link, &export).await {
            Err(error) => agreed.send(Err(error)),
            Ok(terms) => {
                let connection = Connection::new(Rc::clone(&stream), inner, terms, queue);
                let connection = Rc::new(connection);
                agreed.send(Ok(Rc::clone(&connection)));
                let outcome = receive_replies(&mut link, &connection).await;
                connection.end(outcome);
            }
        }
    });
    terms.await.unwrap_or(Err(ConnectError::Closed))
}

async fn shake_hands(link: &mut Link<'_>, export: &str) -> Result<Terms, ConnectError> {
    let mut machine = ClientHandshake::new(export);
    let mut out = Vec::new();
    loop {
        let wanted = machine.wanted_bytes();
        if !link.fill(wanted).await? {
            return Err(ConnectError::Closed);
        }
        let mut message = vec![0; wanted];
        link.peek(&mut message);
        link.consume(wanted);
        if let Some(terms) = machine.advance(&message, &mut out)? {
            return Ok(terms);
        }
        if !out.is_empty() {
            link.queue().push(&out, &Buffers::new());
            out.clear();
        }
    }
}

/// A server that cannot flush guarantees no durability.
fn geometry_of(terms: &Terms) -> Result<Geometry, ConnectError> {
    use crate::codec::wire::TransmissionFlags as Flags;
    let logical_block_bytes = match terms.block_sizes.minimum {
        0..=512 => 512,
        513..=4096 => 4096,
        larger => return Err(ConnectError::BlockTooLarge(larger)),
    };
    let can_flush = terms.flags.contains(Flags::SEND_FLUSH);
    let stability = if can_flush { Stability::Flushable } else { Stability::LostOnPower };
    Ok(Geometry {
        size_bytes: terms.size_bytes - terms.size_bytes % u64::from(logical_block_bytes),
        logical_block_bytes,
        preferred_bytes: terms.block_sizes.preferred.max(logical_block_bytes),
        stripe: None,
        stability,
        rotational: terms.flags.contains(Flags::ROTATIONAL),
    })
}

impl Connection {
    fn new(stream: Rc<dyn Stream>, runtime: Runtime, terms: Terms, queue: Rc<SendQueue>) -> Self {
        Self {
            stream,
            runtime,
            terms,
            queue,
            in_flight: RefCell::default(),
            slots: Semaphore::new(IN_FLIGHT_MAX as u64),
            is_over: Cell::new(false),
            ended: Notify::new(),
            error: RefCell::default(),
        }
    }

    /// Queues one request; its reply arrives at the receiver. `None` where the connection has
    /// ended.
    fn ask(
        &self,
        command: Command,
        flags: CommandFlags,
        range: ByteRange,
        buffers: &Buffers,
    ) -> Option<Receiver<Reply>> {
        if self.is_over.get() {
            return None;
        }
        let is_read = command == Command::Read;
        let memory = if is_read { buffers.clone() } else { Buffers::new() };
        let (cookie, answer) = self.in_flight.borrow_mut().insert(memory, range.start());
        let length_bytes = u32::try_from(range.len()).expect("requests are cut to size");
        let (command, offset) = (command.to_wire(), range.start());
        let header = RequestHeader { flags, command, cookie, offset, length_bytes }.encode();
        let none = Buffers::new();
        self.queue.push(&header, if is_read { &none } else { buffers });
        Some(answer)
    }

    fn say_goodbye(&self) {
        if self.is_over.get() {
            return;
        }
        let (flags, command) = (CommandFlags::empty(), Command::Disconnect.to_wire());
        let goodbye = RequestHeader { flags, command, cookie: 0, offset: 0, length_bytes: 0 };
        self.queue.push(&goodbye.encode(), &Buffers::new());
    }

    fn pending<T>(
        &self,
        cookie: u64,
        look: impl FnOnce(&mut Pending) -> T,
    ) -> Result<T, ProtocolError> {
        let mut in_flight = self.in_flight.borrow_mut();
        in_flight.get(cookie).map(look).ok_or(ProtocolError::UnknownCookie)
    }

    fn finish(&self, cookie: u64, reply: Reply) {
        self.in_flight.borrow_mut().finish(cookie, reply);
    }

    fn end(&self, outcome: Result<(), ProtocolError>) {
        self.is_over.set(true);
        self.stream.shutdown();
        *self.error.borrow_mut() = outcome.err();
        self.in_flight.borrow_mut().lose_all();
        self.ended.notify_all();
    }

    async fn wait_end(&self) {
        while !self.is_over.get() {
            self.ended.wait().await;
        }
    }
}
