//! The receiving half of a client: replies complete requests in flight.
//!
//! A server is trusted no more than a client: a reply that was not requested, or does not match its
//! request, ends the connection.

use super::in_flight::{Pending, Reply};
use super::{Connection, ProtocolError};
use crate::codec::reply::{
    CHUNK_BYTES, ChunkHeader, ReplyHeader, SIMPLE_BYTES, decode_error, decode_hole,
};
use crate::codec::wire::{STRING_BYTES_MAX, WireError, chunk};
use crate::link::Link;
use headpond_block::Buffers;

/// Error chunks carry a number, a message and perhaps an offset.
const ERROR_CHUNK_BYTES_MAX: usize = 6 + STRING_BYTES_MAX + 8;
const HOLE_BYTES: usize = 12;
const OFFSET_BYTES: usize = 8;

/// Completes requests in flight until the connection ends.
///
/// # Errors
/// Why it ended before its time.
pub async fn receive_replies(
    link: &mut Link<'_>,
    connection: &Connection,
) -> Result<(), ProtocolError> {
    while link.fill(SIMPLE_BYTES).await? {
        match next_header(link).await? {
            ReplyHeader::Simple { error, cookie } => {
                simple(link, connection, cookie, error).await?;
            }
            ReplyHeader::Chunk(header) => structured(link, connection, header).await?,
        }
    }
    if link.available() > 0 { Err(ProtocolError::Truncated) } else { Ok(()) }
}

async fn next_header(link: &mut Link<'_>) -> Result<ReplyHeader, ProtocolError> {
    let mut bytes = [0; CHUNK_BYTES];
    loop {
        let there = link.available().min(CHUNK_BYTES);
        link.peek(&mut bytes[..there]);
        if let Some((header, len)) = ReplyHeader::decode(&bytes[..there])? {
            link.consume(len);
            return Ok(header);
        }
        more(link, there + 1).await?;
    }
}

async fn simple(
    link: &mut Link<'_>,
    connection: &Connection,
    cookie: u64,
    error: Option<WireError>,
) -> Result<(), ProtocolError> {
    let memory = connection.pending(cookie, |pending| pending.memory.clone())?;
    if error.is_none() && !memory.is_empty() {
        if connection.terms.structured_replies {
            return Err(ProtocolError::UnexpectedReply);
        }
        receive_parts(link, &memory).await?;
    }
    connection.finish(cookie, error.map_or(Reply::Done, Reply::Failed));
    Ok(())
}

async fn structured(
    link: &mut Link<'_>,
    connection: &Connection,
    header: ChunkHeader,
) -> Result<(), ProtocolError> {
    if !connection.terms.structured_replies {
        return Err(ProtocolError::UnexpectedReply);
    }
    match header.kind {
        chunk::NONE if header.payload_bytes == 0 && header.is_done => {
            connection.pending(header.cookie, |_| ())?;
        }
        chunk::OFFSET_DATA => data(link, connection, header).await?,
        chunk::OFFSET_HOLE => hole(link, connection, header).await?,
        kind if kind & chunk::ERROR_BIT != 0 => error(link, connection, header).await?,
        _ => return Err(ProtocolError::UnexpectedReply),
    }
    if header.is_done {
        finish(connection, header.cookie)?;
    }
    Ok(())
}

async fn data(
    link: &mut Link<'_>,
    connection: &Connection,
    header: ChunkHeader,
) -> Result<(), ProtocolError> {
    let length = u64::from(header.payload_bytes).checked_sub(OFFSET_BYTES as u64);
    let length = length.filter(|length| *length > 0).ok_or(ProtocolError::UnexpectedReply)?;
    more(link, OFFSET_BYTES).await?;
    let mut offset = [0; OFFSET_BYTES];
    link.peek(&mut offset);
    link.consume(OFFSET_BYTES);
    let offset = u64::from_be_bytes(offset);
    let memory = connection.pending(header.cookie, |pending| pending.place(offset, length))??;
    receive_parts(link, &memory).await
}

async fn hole(
    link: &mut Link<'_>,
    connection: &Connection,
    header: ChunkHeader,
) -> Result<(), ProtocolError> {
    if header.payload_bytes as usize != HOLE_BYTES {
        return Err(ProtocolError::UnexpectedReply);
    }
    let (offset, length) = decode_hole(&payload(link, HOLE_BYTES).await?)?;
    let length = u64::from(length);
    let memory = connection.pending(header.cookie, |pending| pending.place(offset, length))??;
    memory.fill(0);
    Ok(())
}

async fn error(
    link: &mut Link<'_>,
    connection: &Connection,
    header: ChunkHeader,
) -> Result<(), ProtocolError> {
    let payload_bytes = header.payload_bytes as usize;
    if payload_bytes > ERROR_CHUNK_BYTES_MAX {
        return Err(ProtocolError::UnexpectedReply);
    }
    let error = decode_error(&payload(link, payload_bytes).await?)?;
    connection.pending(header.cookie, |pending| {
        pending.error.get_or_insert(error);
    })
}

fn finish(connection: &Connection, cookie: u64) -> Result<(), ProtocolError> {
    let (error, missing_bytes) =
        connection.pending(cookie, |pending| (pending.error, pending.missing_bytes))?;
    if error.is_none() && missing_bytes > 0 {
        return Err(ProtocolError::MissingData(missing_bytes));
    }
    connection.finish(cookie, error.map_or(Reply::Done, Reply::Failed));
    Ok(())
}

impl Pending {
    /// The memory for `length` bytes of the read at `offset`, counted as delivered.
    fn place(&mut self, offset: u64, length: u64) -> Result<Buffers, ProtocolError> {
        let start = offset.checked_sub(self.offset).ok_or(ProtocolError::OutsideRequest)?;
        let end = start.checked_add(length).ok_or(ProtocolError::OutsideRequest)?;
        let left = self.missing_bytes.checked_sub(length);
        if end > self.memory.len_bytes() as u64 {
            return Err(ProtocolError::OutsideRequest);
        }
        self.missing_bytes = left.ok_or(ProtocolError::OutsideRequest)?;
        Ok(self.memory.slice(start as usize..end as usize))
    }
}

async fn receive_parts(link: &mut Link<'_>, memory: &Buffers) -> Result<(), ProtocolError> {
    for part in memory.iter() {
        if !link.receive_into(part.clone()).await? {
            return Err(ProtocolError::Truncated);
        }
    }
    Ok(())
}

/// Takes a short payload out of the link.
async fn payload(link: &mut Link<'_>, count: usize) -> Result<Vec<u8>, ProtocolError> {
    more(link, count).await?;
    let mut bytes = vec![0; count];
    link.peek(&mut bytes);
    link.consume(count);
    Ok(bytes)
}

async fn more(link: &mut Link<'_>, count: usize) -> Result<(), ProtocolError> {
    if link.fill(count).await? { Ok(()) } else { Err(ProtocolError::Truncated) }
}
