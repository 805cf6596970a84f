//! Disks with a cache, of which the test holds the plug: files served over NBD by a thread.

use headpond_block::decorators::{Leak, VolatileDevice};
use headpond_block::{
    BlockDevice, BufferPool, DeviceName, Geometry, PoolConfig, Request, RequestFlags, RequestKind,
    Submission,
};
use headpond_nbd::limits::Limits;
use headpond_nbd::server::{Export, Exports, Server};
use headpond_uring::{FileDevice, FileOptions, RingConfig, SocketListener, run_with_pool};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

/// What the disk does with flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// A volatile cache that a flush empties.
    Honest,
    /// A volatile cache, and flushes that are answered and forgotten.
    Lying,
    /// A cache that survives: everything acknowledged is in the file.
    Protected,
}

/// A disk with power.
pub struct Disk {
    pub socket: PathBuf,
    plug: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Disk {
    /// Serves a file.
    pub fn switch_on(file: &str, cache: Cache, socket: &Path, seed: u64) -> Self {
        let (file, socket) = (PathBuf::from(file), socket.to_owned());
        let (plug, pulled) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let at = socket.clone();
        let thread = std::thread::spawn(move || serve(&file, cache, &at, seed, &ready, &pulled));
        is_ready.recv().expect("the disk serves");
        Self { socket, plug, thread }
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    /// Whatever its cache holds is lost.
    pub fn cut(self) {
        drop(self.plug);
        self.thread.join().expect("the disk only loses power");
    }
}

fn serve(
    file: &Path,
    cache: Cache,
    socket: &Path,
    seed: u64,
    ready: &mpsc::Sender<()>,
    pulled: &mpsc::Receiver<()>,
) {
    let pool = BufferPool::new(&PoolConfig::default());
    let lend = pool.clone();
    run_with_pool(&RingConfig::default(), &pool, |ring, runtime| async move {
        let inner = open(&ring, file).await;
        let device: Rc<dyn BlockDevice> = match cache {
            Cache::Protected => Rc::new(Claims(inner)),
            Cache::Honest => Rc::new(VolatileDevice::new(inner, Leak::OneIn(8), seed)),
            Cache::Lying => {
                let volatile = Rc::new(VolatileDevice::new(inner, Leak::OneIn(8), seed));
                Rc::new(Deaf(volatile))
            }
        };
        let exports = Rc::new(Exports::new());
        exports.add(Export::new("", device)).unwrap();
        let server = Server::new(runtime.clone(), lend, exports, Limits::default());
        let listener = Rc::new(SocketListener::bind_unix(&ring, socket).unwrap());
        drop(runtime.spawn(async move { server.serve(listener).await }));
        ready.send(()).unwrap();
        while pulled.try_recv() == Err(mpsc::TryRecvError::Empty) {
            runtime.sleep(Duration::from_millis(5)).await;
        }
    })
    .unwrap();
}

/// The kernel closes the files of a ring that is gone a little later.
async fn open(ring: &headpond_uring::Ring, file: &Path) -> Rc<dyn BlockDevice> {
    for _ in 0..500 {
        if let Ok(device) = FileDevice::open(ring, &FileOptions::new(file)) {
            return Rc::new(device);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} stays locked", file.display());
}

/// Answers flushes and does nothing; of FUA it knows as little.
struct Deaf(Rc<dyn BlockDevice>);

impl BlockDevice for Deaf {
    fn name(&self) -> &DeviceName {
        self.0.name()
    }

    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn submit(&self, mut request: Request) -> Submission<'_> {
        request.flags.remove(RequestFlags::FUA);
        match request.kind {
            RequestKind::Flush => Submission::ready(Ok(())),
            _ => self.0.submit(request),
        }
    }
}

/// Flushes that are answered at once, rightly.
struct Claims(Rc<dyn BlockDevice>);

impl BlockDevice for Claims {
    fn name(&self) -> &DeviceName {
        self.0.name()
    }

    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        match request.kind {
            RequestKind::Flush => Submission::ready(Ok(())),
            _ => self.0.submit(request),
        }
    }
}
