//! Byte streams between a server and its clients, on any runtime.

use crate::{Buffer, Buffers};
use std::any::Any;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;

/// A boxed future of the thread that made it.
pub type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// A stream on its way to another thread; opened there with what that thread's runtime crate gives
/// it, such as its ring.
pub type MovedStream = Box<dyn FnOnce(&dyn Any) -> Rc<dyn Stream> + Send>;

/// One end of a connection. At most one read and one write are in progress at a time.
pub trait Stream {
    /// Reads available bytes, at least one, into the start of `buffer`; 0 at the end of the stream.
    ///
    /// # Errors
    /// The transport's error; the stream is then unusable.
    fn read(&self, buffer: Buffer) -> LocalFuture<'_, io::Result<usize>>;

    /// Writes all bytes of `buffers`, in order.
    ///
    /// # Errors
    /// The transport's error; any prefix may have been sent.
    fn write_all(&self, buffers: Buffers) -> LocalFuture<'_, io::Result<()>>;

    /// Ends both directions: reads and writes in progress return.
    fn shutdown(&self);

    /// Whether the other end has closed both directions, or the connection is lost: sent data no
    /// longer arrives. A half-closed peer still reads.
    ///
    /// For polling when there is nothing to send; an error of a write implies the same.
    fn is_hung_up(&self) -> bool;

    /// The same end for another thread, to be used there alone until it is dropped there. That does
    /// not end the connection; [`Self::shutdown`] of this one does. `None` where there is no way.
    fn for_thread(&self) -> Option<MovedStream> {
        None
    }

    /// The other end, for logs and statistics.
    fn peer(&self) -> String;
}

/// Accepts connections.
pub trait Listener {
    /// Waits for the next connection.
    ///
    /// # Errors
    /// The transport's error; the listener may continue after errors of a single connection.
    fn accept(&self) -> LocalFuture<'_, io::Result<Rc<dyn Stream>>>;

    /// Its address, as a client would write it.
    fn address(&self) -> String;
}
