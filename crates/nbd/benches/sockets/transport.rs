//! What the transport alone allows: two processes that exchange messages of the protocol's sizes
//! over a Unix socket, with blocking calls, and do nothing with them.
//!
//! Each side takes all that one read brings and answers it with as few writes as that gives. The
//! memory is used again and again, so that it stays in the processor's cache.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// What one read or write moves at most, unless a single message is longer.
const PIECE_BYTES: usize = 256 << 10;

/// One kind of conversation.
#[derive(Clone, Copy)]
pub struct Exchange {
    pub request_bytes: usize,
    pub reply_bytes: usize,
    /// Requests in flight.
    pub depth: usize,
}

/// Answers one client after the other, for ever.
///
/// # Errors
/// Where the socket cannot be listened on.
pub fn answer(socket: &Path) -> io::Result<()> {
    for stream in UnixListener::bind(socket)?.incoming() {
        // A client that leaves is the end of its conversation, whatever the moment.
        let _ = answer_client(stream?);
    }
    Ok(())
}

/// Exchanges messages for `time`; the exchanges a second.
///
/// # Errors
/// What the socket says.
pub fn ask(socket: &Path, exchange: Exchange, time: Duration) -> io::Result<f64> {
    let mut stream = UnixStream::connect(socket)?;
    for bytes in [exchange.request_bytes, exchange.reply_bytes] {
        stream.write_all(&(bytes as u64).to_le_bytes())?;
    }
    let mut requests = Messages::new(exchange.request_bytes);
    let mut replies = Arrivals::new(exchange.reply_bytes);
    let start = Instant::now();
    requests.send(&mut stream, exchange.depth)?;
    let mut done = 0;
    while start.elapsed() < time {
        let arrived = replies.receive(&mut stream)?;
        requests.send(&mut stream, arrived)?;
        done += arrived;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}

fn answer_client(mut stream: UnixStream) -> io::Result<()> {
    let [request_bytes, reply_bytes] = [size(&mut stream)?, size(&mut stream)?];
    let mut requests = Arrivals::new(request_bytes);
    let mut replies = Messages::new(reply_bytes);
    loop {
        let arrived = requests.receive(&mut stream)?;
        replies.send(&mut stream, arrived)?;
    }
}

fn size(stream: &mut UnixStream) -> io::Result<usize> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes) as usize)
}

/// Messages of one size that go out.
struct Messages {
    bytes: usize,
    memory: Vec<u8>,
}

impl Messages {
    fn new(bytes: usize) -> Self {
        let at_once = (PIECE_BYTES / bytes).max(1);
        Self { bytes, memory: vec![0x5a; at_once * bytes] }
    }

    fn send(&mut self, stream: &mut UnixStream, count: usize) -> io::Result<()> {
        let mut left = count * self.bytes;
        while left > 0 {
            let now = left.min(self.memory.len());
            stream.write_all(&self.memory[..now])?;
            left -= now;
        }
        Ok(())
    }
}

/// Messages of one size that come in.
struct Arrivals {
    bytes: usize,
    /// What is there of the next message.
    begun: usize,
    memory: Vec<u8>,
}

impl Arrivals {
    fn new(bytes: usize) -> Self {
        Self { bytes, begun: 0, memory: vec![0; PIECE_BYTES] }
    }

    /// Waits for bytes; how many messages they complete.
    fn receive(&mut self, stream: &mut UnixStream) -> io::Result<usize> {
        let received = stream.read(&mut self.memory)?;
        if received == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let there = self.begun + received;
        self.begun = there % self.bytes;
        Ok(there / self.bytes)
    }
}
