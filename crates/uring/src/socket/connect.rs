//! The client's side: connecting to a server.

use super::SocketStream;
use crate::Ring;
use headpond_block::Buffer;
use rustix::net::addr::SocketAddrArg;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::SocketAddr;
use std::path::Path;

impl SocketStream {
    /// Connects to a Unix socket.
    ///
    /// # Errors
    /// The error of connect(2); `ConnectionRefused` without a listener.
    pub async fn connect_unix(ring: &Ring, path: &Path) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let peer = format!("unix:{}", path.display());
        Self::connect(ring, AddressFamily::UNIX, &address, peer).await
    }

    /// Connects to a TCP port.
    ///
    /// # Errors
    /// The error of connect(2).
    pub async fn connect_tcp(ring: &Ring, address: SocketAddr) -> io::Result<Self> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let stream = Self::connect(ring, family, &address, format!("tcp:{address}")).await?;
        rustix::net::sockopt::set_tcp_nodelay(&*stream.handle, true)?;
        Ok(stream)
    }

    async fn connect(
        ring: &Ring,
        family: AddressFamily,
        address: &impl SocketAddrArg,
        peer: String,
    ) -> io::Result<Self> {
        let socket =
            rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let stream = Self::from_connected(ring, socket, peer);
        let answer = ring.connect(&stream.handle, bytes_of(address)).await;
        answer.count().map_err(io::Error::from_raw_os_error)?;
        Ok(stream)
    }
}

/// The kernel's form of an address, in memory that an operation can keep.
fn bytes_of(address: &impl SocketAddrArg) -> Buffer {
    // SAFETY: the closure reads as many bytes as it is given, while it is called.
    unsafe {
        address.with_sockaddr(|start, len| {
            Buffer::from_slice(std::slice::from_raw_parts(start.cast(), len as usize))
        })
    }
}
