//! The block device above a connection.
//!
//! A request larger than the server's maximum is split into concurrent pieces. What the server does
//! not support is emulated: FUA by a flush, zeroes by writing them; an unsupported discard is
//! ignored.

use super::in_flight::Reply;
use super::{Connection, NbdDevice};
use crate::codec::wire::{Command, CommandFlags, TransmissionFlags, WireError};
use headpond_block::sync::{Permit, Receiver};
use headpond_block::{
    BlockDevice, Buffer, Buffers, ByteRange, Cause, DeviceError, DeviceName, Geometry, Outcome,
    Request, RequestFlags, RequestKind, Submission,
};
use std::rc::Rc;

/// Longest range of a request without payload, a multiple of every block size.
const RANGE_BYTES_MAX: u64 = 1 << 30;
/// Zeroes written at a time where the server does not support WRITE_ZEROES.
const ZEROES_BYTES: u64 = 1 << 20;

impl BlockDevice for NbdDevice {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        match self.admissible(&request) {
            Err(error) => Submission::ready(Err(error)),
            Ok(Admissible::Nothing) => Submission::ready(Ok(())),
            Ok(Admissible::One(command, flags)) => self.submit_one(command, flags, request),
            Ok(Admissible::ThenFlush(request)) => Submission::pending(async move {
                self.submit(request).await?;
                self.submit(Request::flush()).await
            }),
            Ok(Admissible::Pieces(pieces)) => Submission::pending(self.submit_pieces(pieces)),
        }
    }
}

/// How a request maps to the server's commands.
enum Admissible {
    Nothing,
    One(Command, CommandFlags),
    ThenFlush(Request),
    Pieces(Vec<Request>),
}

impl NbdDevice {
    fn offers(&self, flag: TransmissionFlags) -> bool {
        self.connection.terms.flags.contains(flag)
    }

    fn admissible(&self, request: &Request) -> Result<Admissible, DeviceError> {
        request.check(&self.name, &self.geometry)?;
        if request.is_mutation() && self.offers(TransmissionFlags::READ_ONLY) {
            return Err(DeviceError::new(&self.name, Cause::ReadOnly));
        }
        if request.range.is_empty() && request.kind != RequestKind::Flush {
            return Ok(Admissible::Nothing);
        }
        if request.is_fua() && request.is_mutation() && !self.offers(TransmissionFlags::SEND_FUA) {
            let flags = request.flags - RequestFlags::FUA;
            return Ok(Admissible::ThenFlush(Request { flags, ..request.clone() }));
        }
        let needed = match request.kind {
            RequestKind::Read | RequestKind::Write => TransmissionFlags::empty(),
            RequestKind::Flush => TransmissionFlags::SEND_FLUSH,
            RequestKind::Discard => TransmissionFlags::SEND_TRIM,
            RequestKind::WriteZeroes => TransmissionFlags::SEND_WRITE_ZEROES,
        };
        if self.offers(needed) {
            return Ok(self.one_or_pieces(request));
        }
        if request.kind == RequestKind::WriteZeroes {
            return Ok(Admissible::Pieces(written_zeroes(request)));
        }
        Ok(Admissible::Nothing)
    }

    fn one_or_pieces(&self, request: &Request) -> Admissible {
        let has_payload = matches!(request.kind, RequestKind::Read | RequestKind::Write);
        let maximum = u64::from(self.connection.terms.block_sizes.maximum);
        let block = u64::from(self.geometry.logical_block_bytes);
        let most = if has_payload { maximum - maximum % block } else { RANGE_BYTES_MAX };
        if request.range.len() > most.max(block) {
            let pieces = cut(request.range, most.max(block));
            return Admissible::Pieces(
                pieces.map(|piece| request.part(piece, piece.start())).collect(),
            );
        }
        let (command, flags) = command_of(request);
        Admissible::One(command, flags)
    }

    /// Queues the request immediately where there is space.
    fn submit_one(
        &self,
        command: Command,
        flags: CommandFlags,
        request: Request,
    ) -> Submission<'_> {
        let connection = Rc::clone(&self.connection);
        if let Some(permit) = connection.slots.try_acquire(1) {
            let answer = connection.ask(command, flags, request.range, &request.buffers);
            return Submission::pending(self.answered(answer, permit, request.range));
        }
        Submission::pending(async move {
            let permit = connection.slots.acquire(1).await;
            let answer = connection.ask(command, flags, request.range, &request.buffers);
            self.answered(answer, permit, request.range).await
        })
    }

    async fn submit_pieces(&self, pieces: Vec<Request>) -> Outcome {
        let pieces = pieces.into_iter().map(|piece| self.submit(piece)).collect();
        headpond_block::sync::join_all(pieces).await.into_iter().collect()
    }

    async fn answered(
        &self,
        answer: Option<Receiver<Reply>>,
        _permit: Permit,
        range: ByteRange,
    ) -> Outcome {
        let gone = || Err(DeviceError::new(&self.name, Cause::Gone));
        let Some(answer) = answer else { return gone() };
        match answer.await {
            Some(Reply::Done) => Ok(()),
            Some(Reply::Failed(error)) => Err(from_wire(error, &self.name, range)),
            Some(Reply::Lost) | None => gone(),
        }
    }

    /// Asks the server to cache `range` for later reads; no effect where it cannot.
    ///
    /// # Errors
    /// As for a read of the range.
    pub async fn cache(&self, range: ByteRange) -> Outcome {
        if !self.offers(TransmissionFlags::SEND_CACHE) {
            return Ok(());
        }
        Request { range, ..Request::flush() }.check(&self.name, &self.geometry)?;
        for piece in cut(range, RANGE_BYTES_MAX) {
            let permit = self.connection.slots.acquire(1).await;
            let none = (CommandFlags::empty(), Buffers::new());
            let answer = Connection::ask(&self.connection, Command::Cache, none.0, piece, &none.1);
            self.answered(answer, permit, piece).await?;
        }
        Ok(())
    }
}

fn command_of(request: &Request) -> (Command, CommandFlags) {
    let command = match request.kind {
        RequestKind::Read => Command::Read,
        RequestKind::Write => Command::Write,
        RequestKind::Flush => Command::Flush,
        RequestKind::Discard => Command::Trim,
        RequestKind::WriteZeroes => Command::WriteZeroes,
    };
    let mut flags = CommandFlags::empty();
    flags.set(CommandFlags::FUA, request.is_fua() && request.is_mutation());
    let keeps_space = request.flags.contains(RequestFlags::NO_UNMAP);
    flags.set(CommandFlags::NO_HOLE, keeps_space && command == Command::WriteZeroes);
    (command, flags)
}

/// Pieces of at most `most` bytes, counted from the start of the range.
fn cut(range: ByteRange, most: u64) -> impl Iterator<Item = ByteRange> {
    let starts = (range.start()..range.end()).step_by(most as usize);
    starts.map(move |start| ByteRange::between(start, range.end().min(start + most)))
}

fn written_zeroes(request: &Request) -> Vec<Request> {
    let zeroes = Buffer::zeroed(request.range.len().min(ZEROES_BYTES) as usize);
    let write = |piece: ByteRange| {
        let buffer = zeroes.slice(0..piece.len() as usize);
        Request::write(piece.start(), buffer).with_flags(request.flags)
    };
    cut(request.range, ZEROES_BYTES).map(write).collect()
}

fn from_wire(error: WireError, device: &DeviceName, range: ByteRange) -> DeviceError {
    let operation = "answer an NBD request";
    match error {
        WireError::InputOutput => DeviceError::new(device, Cause::Media { range }),
        WireError::NoSpace => DeviceError::new(device, Cause::NoSpace),
        WireError::NotPermitted => DeviceError::new(device, Cause::ReadOnly),
        WireError::NotSupported => DeviceError::new(device, Cause::Unsupported { operation }),
        WireError::ShuttingDown => DeviceError::new(device, Cause::Gone),
        WireError::NoMemory | WireError::Invalid | WireError::Overflow => {
            DeviceError::new(device, Cause::Os { operation, errno: error.to_wire() as i32 })
        }
    }
}
