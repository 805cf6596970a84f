//! Where clients connect.

use super::SocketStream;
use crate::Ring;
use crate::ring::Handle;
use headpond_block::{Listener, LocalFuture, Stream};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Connections that the kernel holds until they are accepted.
const BACKLOG: i32 = 128;
/// Idle time after which a TCP client gets a keepalive probe, and the interval of further ones.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(30);
const KEEPALIVE_PAUSE: Duration = Duration::from_secs(10);
/// Unanswered probes after which it is disconnected: two minutes.
const KEEPALIVE_COUNT: u32 = 9;

/// A listening Unix or TCP socket.
pub struct SocketListener {
    ring: Ring,
    handle: Rc<Handle>,
    place: BoundAddress,
}

enum BoundAddress {
    /// The socket file, and its inode as long as it is ours.
    Unix {
        path: PathBuf,
        inode: u64,
    },
    Tcp(SocketAddr),
}

impl SocketListener {
    /// Listens on a Unix socket that only its owner may connect to (mode 0600). A stale socket file
    /// is replaced; it is removed again when the listener is dropped.
    ///
    /// # Errors
    /// `AddrInUse` where another process listens; `AlreadyExists` where the path is not a socket;
    /// else the kernel's error.
    pub fn bind_unix(ring: &Ring, path: &Path) -> io::Result<Self> {
        remove_stale(path)?;
        let address = SocketAddrUnix::new(path)?;
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&socket, &address)?;
        // Between bind and listen nobody can connect, so that the mode is never late.
        rustix::fs::chmod(path, Mode::RUSR | Mode::WUSR)?;
        rustix::net::listen(&socket, BACKLOG)?;
        let inode = fs::symlink_metadata(path)?.ino();
        let place = BoundAddress::Unix { path: path.to_owned(), inode };
        Ok(Self { ring: ring.clone(), handle: ring.register(socket), place })
    }

    /// Listens on a TCP port; with port 0 the kernel chooses one, see [`Self::tcp_address`].
    ///
    /// # Errors
    /// The kernel's error.
    pub fn bind_tcp(ring: &Ring, address: SocketAddr) -> io::Result<Self> {
        let socket = TcpListener::bind(address)?;
        let place = BoundAddress::Tcp(socket.local_addr()?);
        Ok(Self { ring: ring.clone(), handle: ring.register(socket.into()), place })
    }

    /// The address of a TCP listener.
    pub fn tcp_address(&self) -> Option<SocketAddr> {
        match self.place {
            BoundAddress::Tcp(address) => Some(address),
            BoundAddress::Unix { .. } => None,
        }
    }

    async fn accept_next(&self) -> io::Result<Rc<dyn Stream>> {
        loop {
            match self.ring.accept(&self.handle).await.count() {
                Ok(descriptor) => {
                    let descriptor = i32::try_from(descriptor).expect("a descriptor");
                    // SAFETY: the kernel has just made this descriptor for us.
                    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
                    // One that is gone already is no client; the next may be one.
                    if let Ok(stream) = self.connected(socket) {
                        return Ok(stream);
                    }
                }
                Err(libc::EINTR | libc::EAGAIN) => {}
                Err(errno) => return Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }

    fn connected(&self, socket: OwnedFd) -> io::Result<Rc<dyn Stream>> {
        let (socket, peer) = match &self.place {
            BoundAddress::Unix { .. } => {
                let peer = unix_peer(&socket);
                (socket, peer)
            }
            BoundAddress::Tcp(_) => {
                let socket = TcpStream::from(socket);
                socket.set_nodelay(true)?;
                notice_loss(&socket)?;
                let peer = format!("tcp:{}", socket.peer_addr()?);
                (socket.into(), peer)
            }
        };
        Ok(Rc::new(SocketStream::from_connected(&self.ring, socket, peer)))
    }
}

impl Listener for SocketListener {
    fn accept(&self) -> LocalFuture<'_, io::Result<Rc<dyn Stream>>> {
        Box::pin(self.accept_next())
    }

    fn address(&self) -> String {
        match &self.place {
            BoundAddress::Unix { path, .. } => format!("unix:{}", path.display()),
            BoundAddress::Tcp(address) => format!("tcp:{address}"),
        }
    }
}

impl Drop for SocketListener {
    fn drop(&mut self) {
        // Ends an accept that still waits.
        let _ = rustix::net::shutdown(&*self.handle, rustix::net::Shutdown::Both);
        if let BoundAddress::Unix { path, inode } = &self.place
            && fs::symlink_metadata(path).is_ok_and(|found| found.ino() == *inode)
        {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes the socket file of a killed server.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        let message = format!("{} exists and is not a socket", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    match try_connect(path) {
        Err(Errno::CONNREFUSED) => fs::remove_file(path),
        Err(Errno::NOENT) => Ok(()),
        // A server with a full backlog is a server.
        Ok(()) | Err(Errno::AGAIN) => {
            let message = format!("another process already listens on {}", path.display());
            Err(io::Error::new(io::ErrorKind::AddrInUse, message))
        }
        Err(errno) => Err(errno.into()),
    }
}

fn try_connect(path: &Path) -> Result<(), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)
}

/// Enables keepalive, so that the kernel detects a lost TCP client or path. With unacknowledged
/// replies the kernel's own limit applies, some fifteen minutes: a shorter one (TCP_USER_TIMEOUT)
/// would also disconnect clients that do not read for a while, such as a paused virtual machine.
fn notice_loss(socket: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(socket, KEEPALIVE_PAUSE)?;
    Ok(sockopt::set_tcp_keepcnt(socket, KEEPALIVE_COUNT)?)
}

fn unix_peer(socket: &impl AsFd) -> String {
    match sockopt::socket_peercred(socket) {
        Ok(peer) => format!("unix peer, process {}", peer.pid.as_raw_nonzero()),
        Err(_) => "unix peer".to_owned(),
    }
}
