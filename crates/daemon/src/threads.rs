//! The threads of connections, beside the data thread.

use headpond_block::{BufferPool, PoolConfig};
use headpond_nbd::limits::Moves;
use headpond_nbd::server::{Server, ThreadEnd};
use headpond_uring::{RingConfig, RunError, run_with_pool};
use std::io;
use std::rc::Rc;
use std::thread::available_parallelism;

/// With one processor alone nothing can be done meanwhile.
const PROCESSORS_MIN: usize = 2;
/// A processor for each of client, sockets and devices: with fewer, crossings of small requests
/// cost more than they bring (`docs/decisions/0054-requests-cross-to-the-engines-thread.md`).
const PROCESSORS_FOR_SMALL: usize = 3;
/// No thread without memory gets more for its stack later.
const STACK_BYTES: usize = 2 << 20;

/// How many there are: as configured, or as the machine suggests.
fn count(configured: Option<u32>) -> usize {
    let suggested = || usize::from(processors() >= PROCESSORS_MIN);
    configured.map_or_else(suggested, |count| count as usize)
}

/// When connections move to them.
pub fn moves() -> Moves {
    let moves = Moves::default();
    if processors() < PROCESSORS_FOR_SMALL { moves.by_bytes() } else { moves }
}

fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Starts them. They end with the server.
///
/// # Errors
/// Where no thread can be started.
pub fn start(server: &Server, configured: Option<u32>) -> io::Result<()> {
    for number in 1..=count(configured) {
        let end = server.add_thread();
        let thread = std::thread::Builder::new().name(format!("clients-{number}"));
        thread.stack_size(STACK_BYTES).spawn(move || {
            let _bomb = EndsWithAPanic;
            // The server keeps connections that have no thread.
            if let Err(error) = serve(end) {
                tracing::error!("a thread of connections has ended: {error}");
            }
        })?;
    }
    Ok(())
}

/// A panic of one thread ends the daemon, as that of the data thread does: a service manager starts
/// another one.
struct EndsWithAPanic;

impl Drop for EndsWithAPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn serve(end: ThreadEnd) -> Result<(), RunError> {
    // Nothing on its ring reads or writes the memory of requests but sockets.
    let unregistered = BufferPool::new(&PoolConfig::none());
    run_with_pool(&RingConfig::default(), &unregistered, |ring, runtime| {
        end.serve(runtime, BufferPool::new(&PoolConfig::default()), Rc::new(ring))
    })
}
