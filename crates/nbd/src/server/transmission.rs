//! The transmission phase of one connection: requests in, answers out.
//!
//! 1. Receive a header; admit the request as soon as the connection's share and the memory of all
//!    connections have space.
//! 2. Receive the payload of a write; execute; the reply is queued.
//! 3. At the end of the stream, or at a disconnect, wait until every admitted request has completed
//!    and every reply is sent.
//!
//! Where the process is out of memory, a request waits for some before its payload is received, and
//! so do the client's later requests; after a timeout it is refused.
//!
//! Where the client disconnects while a request waits for space or memory, that one and all after
//! it are dropped; requests at the device complete. So are, at a stop, the new requests of a client
//! that sends them again to the next server.
//!
//! **Invariants**
//! - No memory is allocated for a payload before its request was checked and admitted.
//! - A wrong magic ends the connection: nothing after it can be trusted to be a header.

use super::Shared;
use super::check::{Operation, check, payload_bytes};
use super::serving::{Serving, held_bytes};
use super::threads::Load;
use crate::codec::CodecError;
use crate::codec::request::RequestHeader;
use crate::codec::wire::{Command, WireError};
use crate::link::{Link, SMALL_PAYLOAD_BYTES_MAX};
use headpond_block::{Buffer, ByteRange, Runtime, memory};
use smallvec::SmallVec;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

/// Memory of a request besides its payload, and the number of further copies of the payload: in the
/// cache, and in the array. Checked only where memory has run out before, or the request is long.
const WORK_BYTES: usize = 256 << 10;
const FURTHER_HOLDERS: usize = 2;
/// Requests that a device is told of at once; what is brought near for more displaces itself.
const ANNOUNCED_MAX: usize = 16;
/// How long a connection waits for its answers before it moves: so long it takes no requests.
const QUIET_TIME_MAX: Duration = Duration::from_millis(50);
/// How often a request that waits for memory retries.
const MEMORY_PAUSE: Duration = Duration::from_millis(50);

/// Why a connection ended other than by a disconnect.
#[derive(Debug, thiserror::Error)]
pub enum TransmissionError {
    #[error("the client disconnected before its requests completed")]
    Left,
    #[error("the stream ended in the middle of a request")]
    Truncated,
    #[error("a refused write announced {0} bytes of payload")]
    PayloadTooLong(u32),
    #[error(transparent)]
    LostStep(#[from] CodecError),
    #[error(transparent)]
    Stream(#[from] io::Error),
}

impl TransmissionError {
    /// Whether the stream can no longer carry replies.
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Stream(_) | Self::Left)
    }
}

/// Why requests are not received any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The client has disconnected.
    Left,
    /// Others are to be received on another thread.
    Moves,
}

/// Serves requests until the client disconnects, or is to be served on another thread.
///
/// # Errors
/// A [`TransmissionError`]; admitted requests are still executed.
pub(super) async fn serve_requests(
    link: &mut Link<'_>,
    serving: &Rc<Serving>,
    shared: &Shared,
    load: &mut Load,
) -> Result<Ending, TransmissionError> {
    let served = serve_until_end(link, serving, shared, load).await;
    if matches!(served, Err(TransmissionError::Left)) {
        drop_received(link, serving);
    }
    served
}

async fn serve_until_end(
    link: &mut Link<'_>,
    serving: &Rc<Serving>,
    shared: &Shared,
    load: &mut Load,
) -> Result<Ending, TransmissionError> {
    let mut announced = 0;
    while link.fill(RequestHeader::BYTES).await? {
        if link.queue().is_broken() {
            return Err(TransmissionError::Left);
        }
        if announced == 0 {
            if load.is_to_move() && !shared.is_stopping() {
                return Ok(Ending::Moves);
            }
            announced = announce_received(link, serving);
        }
        announced -= 1;
        let header = next_header(link)?;
        load.note(header.length_bytes.into(), link.queue().in_flight());
        serving.stats.received(shared.runtime.now());
        let structured_replies = serving.structured_replies;
        let checked = match check(&header, serving.export.info(), structured_replies) {
            Ok(Operation::Disconnect) => return Ok(Ending::Left),
            Ok(_) if shared.is_stopping() => Err(WireError::ShuttingDown),
            checked => checked,
        };
        match checked {
            Ok(operation) => accept(link, serving, shared, &header, operation).await?,
            Err(error) => refuse(link, serving, shared, &header, error).await?,
        }
    }
    if link.available() > 0 { Err(TransmissionError::Truncated) } else { Ok(Ending::Left) }
}

/// Waits until nothing of this connection is in flight.
pub async fn drain(link: &mut Link<'_>) {
    let queue = Rc::clone(link.queue());
    let idle = poll_fn(|_| if queue.is_idle() { Poll::Ready(()) } else { Poll::Pending });
    link.send_until(idle).await;
}

/// Waits until nothing is in flight; false where that takes long, or the client has left.
pub(super) async fn is_quiet_soon(link: &mut Link<'_>, runtime: &Runtime) -> bool {
    let queue = Rc::clone(link.queue());
    let mut late = runtime.sleep(QUIET_TIME_MAX);
    let quiet = poll_fn(|context| match queue.is_idle() {
        true => Poll::Ready(true),
        false => Pin::new(&mut late).poll(context).map(|()| false),
    });
    link.wait(runtime, quiet).await.unwrap_or(false)
}

/// Counts the complete requests in the receive buffer that are not executed.
fn drop_received(link: &mut Link<'_>, serving: &Serving) {
    while link.available() >= RequestHeader::BYTES {
        let Ok(header) = next_header(link) else { return };
        serving.stats.received(serving.runtime.now());
        serving.stats.dropped();
        link.consume(link.available().min(payload_bytes(&header) as usize));
    }
}

/// Tells the device of all requests in the receive buffer, where there are several; how many there
/// are.
fn announce_received(link: &Link<'_>, serving: &Serving) -> usize {
    let size_bytes = serving.export.info().size_bytes;
    let mut ranges = SmallVec::<[ByteRange; ANNOUNCED_MAX]>::new();
    let (mut at, mut count) = (0, 0);
    while count < ANNOUNCED_MAX && at + RequestHeader::BYTES <= link.available() {
        let mut bytes = [0; RequestHeader::BYTES];
        link.peek_at(at, &mut bytes);
        // What is wrong is found when it is its turn.
        let Ok(header) = RequestHeader::decode(&bytes) else { break };
        let is_data = [Command::Read, Command::Write].map(Command::to_wire);
        let end = header.offset.checked_add(header.length_bytes.into());
        if is_data.contains(&header.command) && end.is_some_and(|end| end <= size_bytes) {
            ranges.push(ByteRange::at(header.offset, header.length_bytes.into()));
        }
        at += RequestHeader::BYTES + payload_bytes(&header) as usize;
        count += 1;
    }
    if ranges.len() > 1 {
        serving.export.device().expect(&ranges);
    }
    count.max(1)
}

fn next_header(link: &mut Link<'_>) -> Result<RequestHeader, CodecError> {
    let mut bytes = [0; RequestHeader::BYTES];
    link.peek(&mut bytes);
    let header = RequestHeader::decode(&bytes)?;
    link.consume(RequestHeader::BYTES);
    Ok(header)
}

async fn accept(
    link: &mut Link<'_>,
    serving: &Rc<Serving>,
    shared: &Shared,
    header: &RequestHeader,
    operation: Operation,
) -> Result<(), TransmissionError> {
    let bytes = held_bytes(operation);
    admit(link, serving, shared, bytes).await?;
    if shared.is_stopping() {
        // Since it was checked: what is answered now may come after the last flush.
        link.queue().withdraw(bytes);
        return refuse(link, serving, shared, header, WireError::ShuttingDown).await;
    }
    let memory = match memory_for(link, serving, shared, operation).await {
        Ok(memory) => memory,
        Err(NoMemory::Refused(error)) => {
            link.queue().withdraw(bytes);
            return refuse(link, serving, shared, header, error).await;
        }
        Err(NoMemory::Left) => {
            link.queue().withdraw(bytes);
            serving.stats.dropped();
            return Err(TransmissionError::Left);
        }
    };
    let memory = match operation {
        Operation::Write(range, _) => {
            link.queue().begin_transfer();
            let received = receive(link, range.len() as usize, memory).await;
            link.queue().end_transfer();
            Some(received.inspect_err(|_| link.queue().withdraw(bytes))?)
        }
        _ => memory,
    };
    serving.carry_out(header.cookie, operation, memory);
    Ok(())
}

async fn receive(
    link: &mut Link<'_>,
    len: usize,
    memory: Option<Buffer>,
) -> Result<Buffer, TransmissionError> {
    let received = match memory {
        Some(memory) => link.receive_into(memory.clone()).await?.then_some(memory),
        None => link.small_payload(len).await?,
    };
    received.ok_or(TransmissionError::Truncated)
}

/// Why a request that was admitted has no memory.
enum NoMemory {
    Refused(WireError),
    Left,
}

/// Memory for the data of a read, or for the payload of a large write, as soon as there is enough
/// for the whole request; an error after a timeout.
async fn memory_for(
    link: &mut Link<'_>,
    serving: &Serving,
    shared: &Shared,
    operation: Operation,
) -> Result<Option<Buffer>, NoMemory> {
    let own = match operation {
        // It may be what lets go of memory, and takes hardly any.
        Operation::Flush => return Ok(None),
        Operation::Read(range) => serving.memory_bytes_of_read(range),
        Operation::Write(range, _) => {
            Some(range.len() as usize).filter(|len| *len > SMALL_PAYLOAD_BYTES_MAX)
        }
        _ => None,
    };
    let others = WORK_BYTES + FURTHER_HOLDERS * held_bytes(operation) as usize;
    let mut begun = None;
    loop {
        // Held while it is asked for the rest.
        let taken = own.map(|len| serving.pool.try_take(len));
        if !matches!(taken, Some(None)) && memory::has(others) {
            serving.note_memory();
            return Ok(taken.flatten());
        }
        drop(taken);
        if shared.is_stopping() {
            return Err(NoMemory::Refused(WireError::ShuttingDown));
        }
        if serving.is_patience_over(*begun.get_or_insert_with(|| serving.runtime.now())) {
            return Err(NoMemory::Refused(WireError::NoMemory));
        }
        let pause = serving.runtime.sleep(MEMORY_PAUSE);
        link.wait(&serving.runtime, pause).await.ok_or(NoMemory::Left)?;
    }
}

/// Waits until the connection's share has space for `bytes` more, and then for its turn in the
/// shared memory budget.
async fn admit(
    link: &mut Link<'_>,
    serving: &Serving,
    shared: &Shared,
    bytes: u64,
) -> Result<(), TransmissionError> {
    if link.queue().try_admit(bytes) {
        return Ok(());
    }
    let queue = Rc::clone(link.queue());
    let admission = async {
        queue.room(bytes).await;
        if !queue.try_admit(bytes) {
            shared.wait_for_memory(&queue, bytes).await;
        }
    };
    link.wait(&shared.runtime, admission).await.ok_or_else(|| {
        serving.stats.dropped();
        TransmissionError::Left
    })
}

async fn refuse(
    link: &mut Link<'_>,
    serving: &Rc<Serving>,
    shared: &Shared,
    header: &RequestHeader,
    error: WireError,
) -> Result<(), TransmissionError> {
    let payload_bytes = payload_bytes(header);
    if payload_bytes > shared.limits.payload_skip_bytes_max {
        return Err(TransmissionError::PayloadTooLong(payload_bytes));
    }
    if !link.skip(payload_bytes as usize).await? {
        return Err(TransmissionError::Truncated);
    }
    if error == WireError::ShuttingDown && serving.resends {
        serving.stats.dropped();
        return Ok(());
    }
    // A refusal is admitted like anything else: a client that only sends nonsense and never reads
    // must not fill the queue.
    admit(link, serving, shared, 0).await?;
    serving.refuse(header, error);
    Ok(())
}
