//! Who is at the other end of a connection.

use tokio::net::UnixStream;

/// The process that connected, as the kernel knows it.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub uid: u32,
    pub gid: u32,
    pub pid: Option<i32>,
}

impl Peer {
    /// # Errors
    /// If the kernel does not tell.
    pub fn of(stream: &UnixStream) -> std::io::Result<Self> {
        let peer = stream.peer_cred()?;
        Ok(Self { uid: peer.uid(), gid: peer.gid(), pid: peer.pid() })
    }
}
