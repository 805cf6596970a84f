//! The process at the other end of a control connection.

use std::fmt;
use tokio::net::UnixStream;

/// Its credentials when it connected, as the kernel has them.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub uid: u32,
    pub gid: u32,
    pub pid: Option<i32>,
}

impl Peer {
    /// `None` where the kernel does not tell.
    pub fn of(stream: &UnixStream) -> Option<Self> {
        let told = stream.peer_cred().ok()?;
        Some(Self { uid: told.uid(), gid: told.gid(), pid: told.pid() })
    }

    /// Whether it is root, or the user that runs this daemon. Whoever else connects may look.
    pub fn may_change(&self) -> bool {
        self.uid == 0 || self.uid == rustix::process::geteuid().as_raw()
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, gid, pid } = self;
        write!(f, "uid {uid}, gid {gid}")?;
        pid.map_or(Ok(()), |pid| write!(f, ", pid {pid}"))
    }
}
