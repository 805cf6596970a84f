//! The transmission phase of one connection: requests in, answers out.
//!
//! 1. Receive a header; admit the request as soon as the connection's share has room.
//! 2. Receive the payload of a write; carry out; the answer queues itself.
//! 3. At the end of the stream, or at a disconnect, wait until every admitted request has been
//!    answered and every answer sent.
//!
//! **Invariants**
//! - No memory is taken for a payload before its request was checked and admitted.
//! - A wrong magic ends the connection: nothing behind it can be trusted to be a header.

use super::Shared;
use super::check::{Operation, check, payload_bytes};
use super::serving::{Serving, held_bytes};
use crate::codec::CodecError;
use crate::codec::request::RequestHeader;
use crate::codec::wire::WireError;
use crate::link::Link;
use std::io;
use std::rc::Rc;
use std::task::Poll;

/// Why a connection ended otherwise than by its client's wish.
#[derive(Debug, thiserror::Error)]
pub enum TransmissionError {
    #[error("the stream ended in the middle of a request")]
    Truncated,
    #[error("a refused write announced {0} bytes of payload")]
    PayloadTooLong(u32),
    #[error(transparent)]
    LostStep(#[from] CodecError),
    #[error(transparent)]
    Stream(#[from] io::Error),
}

/// Serves requests until the client leaves.
///
/// # Errors
/// A [`TransmissionError`]; requests that were admitted are still being carried out.
pub async fn serve_requests(
    link: &mut Link<'_>,
    serving: &Rc<Serving>,
    shared: &Shared,
) -> Result<(), TransmissionError> {
    while link.fill(RequestHeader::BYTES).await? {
        let header = next_header(link)?;
        serving.stats.received();
        let structured_replies = serving.structured_replies;
        let checked = match check(&header, serving.export.info(), structured_replies) {
            Ok(Operation::Disconnect) => return Ok(()),
            Ok(_) if shared.is_stopping() => Err(WireError::ShuttingDown),
            checked => checked,
        };
        match checked {
            Ok(operation) => accept(link, serving, &header, operation).await?,
            Err(error) => refuse(link, serving, shared, &header, error).await?,
        }
    }
    if link.available() > 0 { Err(TransmissionError::Truncated) } else { Ok(()) }
}

/// Waits until nothing of this connection is in flight.
pub async fn drain(link: &mut Link<'_>) {
    link.wait_for(|queue| if queue.is_idle() { Poll::Ready(()) } else { Poll::Pending }).await;
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
    header: &RequestHeader,
    operation: Operation,
) -> Result<(), TransmissionError> {
    let bytes = held_bytes(operation);
    admit(link, bytes).await;
    let payload = match operation {
        Operation::Write(range, _) => {
            let received = link.payload(range.len() as usize, &serving.pool).await;
            let payload = received.map_err(TransmissionError::from).transpose();
            let payload = payload.unwrap_or(Err(TransmissionError::Truncated));
            Some(payload.inspect_err(|_| link.queue().withdraw(bytes))?)
        }
        _ => None,
    };
    serving.carry_out(header.cookie, operation, payload);
    Ok(())
}

/// Waits until the connection's share has room for `bytes` more and takes it.
async fn admit(link: &mut Link<'_>, bytes: u64) {
    if !link.queue().has_room(bytes) {
        let room = |has_room| if has_room { Poll::Ready(()) } else { Poll::Pending };
        link.wait_for(|queue| room(queue.has_room(bytes))).await;
    }
    link.queue().admit(bytes);
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
    // A refusal is admitted like anything else: a client that only sends nonsense and never reads
    // must not fill the queue.
    admit(link, 0).await;
    serving.refuse(header, error);
    Ok(())
}
