//! Byte streams between a server and its clients, on whichever runtime.

use crate::{Buffer, Buffers};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

/// A boxed future of the thread that made it.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// One end of a connection. At most one read and one write are in progress at a time.
pub trait Stream {
    /// Reads what is there, at least one byte, into the start of `buffer`; 0 at the end of the
    /// stream.
    ///
    /// # Errors
    /// What the transport says; the stream is then of no further use.
    fn read(&self, buffer: Buffer) -> LocalFuture<'_, io::Result<usize>>;

    /// Writes all bytes of `buffers`, in order.
    ///
    /// # Errors
    /// What the transport says; any prefix may have been sent.
    fn write_all(&self, buffers: Buffers) -> LocalFuture<'_, io::Result<()>>;

    /// Ends both directions: reads and writes in progress return.
    fn shutdown(&self);

    /// Whether the other end has closed both directions, or the connection is lost: nothing that is
    /// sent arrives any more. A peer that has only ceased to send still reads.
    ///
    /// Asked now and then, by those who have nothing to send; an error of a write tells the same.
    fn is_hung_up(&self) -> bool;

    /// The other end, for logs and statistics.
    fn peer(&self) -> String;
}

/// A place where connections arrive.
pub trait Listener {
    /// Waits for the next connection.
    ///
    /// # Errors
    /// What the transport says; the listener may go on after errors of a single connection.
    fn accept(&self) -> LocalFuture<'_, io::Result<Rc<dyn Stream>>>;

    /// Where it listens, as a client would write it.
    fn address(&self) -> String;
}
