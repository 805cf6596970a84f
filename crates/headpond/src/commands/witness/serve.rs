//! `headpond witness serve`.

use super::args::{ListenArgs, ServeArgs};
use super::key;
use anyhow::{Context, Result, anyhow};
use headpond_api::outcome::{Exit, Failure};
use headpond_block::{BufferPool, PoolConfig, Runtime};
use headpond_daemon::wall_clock;
use headpond_uring::{Ring, RingConfig, SocketListener, run_with_pool};
use headpond_witness::field::auth::{Key, NONCE_BYTES};
use headpond_witness::field::server::{Conductor, Endless, Limits, Server, Surroundings};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const RELEASE_PATIENCE: Duration = Duration::from_secs(5);
const RELEASE_PAUSE: Duration = Duration::from_millis(50);

/// # Errors
/// If it cannot listen, or its folder cannot be used.
pub fn run(args: &ServeArgs) -> Result<Exit> {
    let key = key::read(&args.listen.key)?;
    let _lock = lock(&args.listen)?;
    let pool = BufferPool::new(&PoolConfig::default());
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let (server, listener) = start(&args.listen, key, &ring, &runtime, Box::new(Endless))?;
        server.serve(listener).await.context("the witness no longer listens")?;
        Ok(Exit::Ok)
    })?
}

/// Locks the folder against a second witness, until the result is dropped.
///
/// # Errors
/// A refusal if another witness has it.
pub fn lock(args: &ListenArgs) -> Result<File> {
    let named = || args.dir.display().to_string();
    std::fs::create_dir_all(&args.dir).with_context(named)?;
    let folder = File::open(&args.dir).with_context(named)?;
    match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(folder),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(Failure::refused(format!("{}: another witness uses this folder", named())))
        }
        Err(error) => Err(error).with_context(named),
    }
}

/// A witness that is about to listen.
///
/// # Errors
/// If the address cannot be bound.
pub fn start(
    args: &ListenArgs,
    key: Key,
    ring: &Ring,
    runtime: &Runtime,
    conductor: Box<dyn Conductor>,
) -> Result<(Server, Rc<SocketListener>)> {
    let listener = bind(ring, args).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow!(
            "{}: the port is in use, perhaps by another witness: stop that, or use another port \
             with --listen",
            args.listen
        ),
        _ => anyhow::Error::new(error).context(args.listen.to_string()),
    })?;
    let address = listener.tcp_address().context("a port")?;
    let (folder, limits) = (args.dir.clone(), Limits::default());
    let server = Server::new(runtime, key, folder, limits, Box::new(Real), conductor);
    println!("witness listens on {address}, and logs to {}", args.dir.display());
    Ok((server, Rc::new(listener)))
}

/// The kernel closes the sockets of a ring that was killed some time after its process is gone.
fn bind(ring: &Ring, args: &ListenArgs) -> io::Result<SocketListener> {
    let deadline = Instant::now() + RELEASE_PATIENCE;
    loop {
        match SocketListener::bind_tcp(ring, args.listen) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(RELEASE_PAUSE);
            }
            bound => return bound,
        }
    }
}

/// The real time and real chance.
struct Real;

impl Surroundings for Real {
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_millis() as u64
    }

    fn random(&self) -> [u8; NONCE_BYTES] {
        key::random().expect("the kernel gives random bytes")
    }

    fn note(&self, what: &str) {
        println!("{} {what}", wall_clock::utc(SystemTime::now()));
    }
}
