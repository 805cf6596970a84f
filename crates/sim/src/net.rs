//! Connections in virtual time: bytes arrive late and in pieces, and a connection can be cut.
//!
//! **Invariants**: bytes keep their order; a reader that waits is woken when the next piece
//! arrives; a writer waits while too much is under way.

use crate::Random;
use headpond_block::sync::Notify;
use headpond_block::{
    Buffer, Buffers, Instant, Listener, LocalFuture, MovedStream, Runtime, Stream,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

/// The figures of a connection, the same in both directions.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub shortest: Duration,
    pub longest: Duration,
    /// Bytes under way, in either direction, before a writer must wait.
    pub window_bytes: usize,
}

impl Link {
    /// Between 5 and 100 µs, 256 KiB under way.
    pub const LOCAL: Self = Self {
        shortest: Duration::from_micros(5),
        longest: Duration::from_micros(100),
        window_bytes: 256 << 10,
    };
}

/// Two connected ends.
pub fn connection(
    runtime: &Runtime,
    random: &mut Random,
    link: Link,
) -> (Rc<SimStream>, Rc<SimStream>) {
    let pipe = |random: &mut Random| Rc::new(Pipe::new(runtime.clone(), random.fork(), link));
    let (there, back) = (pipe(random), pipe(random));
    let end = |reads: &Rc<Pipe>, writes: &Rc<Pipe>, peer: &str| {
        let (reads, writes, peer) = (Rc::clone(reads), Rc::clone(writes), peer.to_owned());
        Rc::new(SimStream { reads, writes, peer, is_lent: false })
    };
    (end(&back, &there, "sim:server"), end(&there, &back, "sim:client"))
}

/// One end of a simulated connection.
pub struct SimStream {
    reads: Rc<Pipe>,
    writes: Rc<Pipe>,
    peer: String,
    /// Another executor's, which shuts it down.
    is_lent: bool,
}

thread_local! {
    /// Ends on their way to another executor, by number: all executors of a simulation are on one
    /// thread.
    static MOVING: RefCell<Vec<Option<SimStream>>> = const { RefCell::new(Vec::new()) };
}

impl SimStream {
    /// Cuts the connection: what is under way is lost, and both ends get an error.
    pub fn cut(&self) {
        self.reads.close(Closed::Cut);
        self.writes.close(Closed::Cut);
    }

    /// Ends one direction: the other end reads what is under way, then the end of the stream, and
    /// can still be heard.
    pub fn stop_sending(&self) {
        self.writes.close(Closed::Ended);
    }
}

impl Stream for SimStream {
    fn read(&self, buffer: Buffer) -> LocalFuture<'_, io::Result<usize>> {
        Box::pin(self.reads.read(buffer))
    }

    fn write_all(&self, buffers: Buffers) -> LocalFuture<'_, io::Result<()>> {
        Box::pin(self.writes.write(buffers.to_vec()))
    }

    fn shutdown(&self) {
        self.reads.close(Closed::Ended);
        self.writes.close(Closed::Ended);
    }

    fn is_hung_up(&self) -> bool {
        self.writes.closed.get().is_some()
    }

    fn for_thread(&self) -> Option<MovedStream> {
        let (reads, writes, peer) =
            (Rc::clone(&self.reads), Rc::clone(&self.writes), self.peer.clone());
        let moved = Self { reads, writes, peer, is_lent: true };
        let number = MOVING.with_borrow_mut(|moving| {
            moving.push(Some(moved));
            moving.len() - 1
        });
        Some(Box::new(move |_| {
            let moved = MOVING.with_borrow_mut(|moving| moving[number].take());
            Rc::new(moved.expect("it arrives once, on an executor of its simulation"))
        }))
    }

    fn peer(&self) -> String {
        self.peer.clone()
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        if !self.is_lent {
            self.shutdown();
        }
    }
}

/// A place where simulated clients connect. Clones are the same place.
#[derive(Clone)]
pub struct SimListener(Rc<WaitingPacket>);

struct WaitingPacket {
    runtime: Runtime,
    random: RefCell<Random>,
    arrived: RefCell<VecDeque<Rc<SimStream>>>,
    changed: Notify,
}

impl SimListener {
    pub fn new(runtime: &Runtime, random: Random) -> Self {
        let (runtime, random) = (runtime.clone(), RefCell::new(random));
        let (arrived, changed) = (RefCell::default(), Notify::new());
        Self(Rc::new(WaitingPacket { runtime, random, arrived, changed }))
    }

    /// Connects; the client's end.
    pub fn connect(&self, link: Link) -> Rc<SimStream> {
        let mut random = self.0.random.borrow_mut();
        let (client, server) = connection(&self.0.runtime, &mut random, link);
        self.0.arrived.borrow_mut().push_back(server);
        self.0.changed.notify_all();
        client
    }
}

impl Listener for SimListener {
    fn accept(&self) -> LocalFuture<'_, io::Result<Rc<dyn Stream>>> {
        Box::pin(async move {
            loop {
                let arrived = self.0.arrived.borrow_mut().pop_front();
                match arrived {
                    Some(stream) => return Ok(stream as Rc<dyn Stream>),
                    None => self.0.changed.wait().await,
                }
            }
        })
    }

    fn address(&self) -> String {
        "sim:listener".to_owned()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closed {
    /// What was written before still arrives.
    Ended,
    Cut,
}

/// One direction of a connection.
struct Pipe {
    runtime: Runtime,
    link: Link,
    random: RefCell<Random>,
    pieces: RefCell<VecDeque<Piece>>,
    under_way: Cell<usize>,
    last_arrival: Cell<Instant>,
    closed: Cell<Option<Closed>>,
    changed: Notify,
}

struct Piece {
    arrives: Instant,
    bytes: VecDeque<u8>,
}

impl Pipe {
    fn new(runtime: Runtime, random: Random, link: Link) -> Self {
        assert!(link.window_bytes > 0, "some bytes may be under way");
        Self {
            runtime,
            link,
            random: RefCell::new(random),
            pieces: RefCell::default(),
            under_way: Cell::new(0),
            last_arrival: Cell::default(),
            closed: Cell::new(None),
            changed: Notify::new(),
        }
    }

    fn close(&self, how: Closed) {
        if self.closed.get() != Some(Closed::Cut) {
            self.closed.set(Some(how));
        }
        self.changed.notify_all();
    }

    async fn read(&self, buffer: Buffer) -> io::Result<usize> {
        loop {
            if self.closed.get() == Some(Closed::Cut) {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            let arrives = self.pieces.borrow().front().map(|piece| piece.arrives);
            match arrives {
                Some(at) if at <= self.runtime.now() => return Ok(self.take(&buffer)),
                Some(at) => self.runtime.sleep_until(at).await,
                None if self.closed.get().is_some() => return Ok(0),
                None => self.changed.wait().await,
            }
        }
    }

    /// Moves some of the first piece, at least a byte, into the buffer.
    fn take(&self, buffer: &Buffer) -> usize {
        let mut pieces = self.pieces.borrow_mut();
        let piece = pieces.front_mut().expect("a piece has arrived");
        let len = piece.bytes.len().min(buffer.len());
        let bytes: Vec<u8> = piece.bytes.drain(..len).collect();
        buffer.slice(0..len).copy_from(&bytes);
        if piece.bytes.is_empty() {
            pieces.pop_front();
        }
        self.under_way.set(self.under_way.get() - len);
        self.changed.notify_all();
        len
    }

    async fn write(&self, bytes: Vec<u8>) -> io::Result<()> {
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            match self.closed.get() {
                Some(Closed::Cut) => return Err(io::ErrorKind::ConnectionReset.into()),
                Some(Closed::Ended) => return Err(io::ErrorKind::BrokenPipe.into()),
                None => {}
            }
            let room = self.link.window_bytes - self.under_way.get();
            if room == 0 {
                self.changed.wait().await;
                continue;
            }
            let (piece, behind) = rest.split_at(self.piece_len(rest.len().min(room)));
            self.send(piece);
            rest = behind;
        }
        Ok(())
    }

    /// Now and then a message is cut into pieces, so that readers learn to put it together.
    fn piece_len(&self, most: usize) -> usize {
        let mut random = self.random.borrow_mut();
        if random.one_in(4) { random.below(most as u64) as usize + 1 } else { most }
    }

    fn send(&self, bytes: &[u8]) {
        let delay = self.random.borrow_mut().between(self.link.shortest, self.link.longest);
        let arrives = (self.runtime.now() + delay).max(self.last_arrival.get());
        self.last_arrival.set(arrives);
        self.under_way.set(self.under_way.get() + bytes.len());
        let bytes = bytes.iter().copied().collect();
        self.pieces.borrow_mut().push_back(Piece { arrives, bytes });
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run;

    async fn read_exact(stream: &dyn Stream, len: usize) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        while all.len() < len {
            let buffer = Buffer::zeroed(len - all.len());
            let read = stream.read(buffer.clone()).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            all.extend(buffer.slice(0..read).to_vec());
        }
        Ok(all)
    }

    fn message(len: usize) -> Vec<u8> {
        (0..len).map(|index| (index % 251) as u8).collect()
    }

    #[test]
    fn bytes_arrive_in_order_though_in_pieces_and_past_the_window() {
        let (echoed, pieces) = run(5, |runtime, sim| async move {
            let listener = SimListener::new(&runtime, sim.random());
            let client = listener.connect(Link { window_bytes: 1000, ..Link::LOCAL });
            let pieces = runtime.spawn(async move {
                let server = listener.accept().await.unwrap();
                let mut pieces = 0;
                loop {
                    let buffer = Buffer::zeroed(700);
                    let read = server.read(buffer.clone()).await.unwrap();
                    if read == 0 {
                        return pieces;
                    }
                    pieces += 1;
                    server.write_all(buffer.slice(0..read).into()).await.unwrap();
                }
            });
            let writer = client.clone();
            let sent = Buffer::from_slice(&message(10_000));
            let sent = runtime.spawn(async move { writer.write_all(sent.into()).await });
            let echoed = read_exact(&*client, 10_000).await.unwrap();
            sent.await.unwrap();
            client.shutdown();
            (echoed, pieces.await)
        })
        .unwrap();
        assert_eq!(echoed, message(10_000));
        assert!(pieces > 10_000 / 700, "{pieces} pieces");
    }

    #[test]
    fn an_end_that_only_ceases_to_send_has_not_hung_up() {
        run(7, |runtime, sim| async move {
            let (client, server) = connection(&runtime, &mut sim.random(), Link::LOCAL);
            client.stop_sending();
            assert_eq!(server.read(Buffer::zeroed(10)).await.unwrap(), 0);
            assert!(!server.is_hung_up());
            server.write_all(Buffer::from_slice(&[7; 10]).into()).await.unwrap();
            assert_eq!(read_exact(&*client, 10).await.unwrap(), [7; 10]);
            client.shutdown();
            assert!(server.is_hung_up());
        })
        .unwrap();
    }

    #[test]
    fn a_cut_connection_is_an_error_at_both_ends() {
        run(6, |runtime, sim| async move {
            let (client, server) = connection(&runtime, &mut sim.random(), Link::LOCAL);
            client.write_all(Buffer::from_slice(&[1; 100]).into()).await.unwrap();
            client.cut();
            for end in [client, server] {
                let read = end.read(Buffer::zeroed(10)).await.unwrap_err();
                assert_eq!(read.kind(), io::ErrorKind::ConnectionReset);
                let written = end.write_all(Buffer::from_slice(&[1]).into()).await.unwrap_err();
                assert_eq!(written.kind(), io::ErrorKind::ConnectionReset);
            }
        })
        .unwrap();
    }
}
