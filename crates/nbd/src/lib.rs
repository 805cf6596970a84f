//! NBD: the protocol, a server for any block device, and a client that is one.
//!
//! - [`codec`]: bytes to messages and back, without I/O.
//! - [`server`]: named block devices for many clients; the handshake is a pure state machine.
//! - [`client`]: a server's export as a block device.
//! - [`kernel`]: the messages by which a socket becomes `/dev/nbdN`.
//! - [`limits`]: limits of requests and memory per client.
//!
//! All waiting goes through the runtime of `headpond-block`, so the same code serves real sockets
//! and simulated ones.
//!
//! **Source**: `doc/proto.md` of the NBD project.

#![forbid(unsafe_code)]

pub mod client;
pub mod codec;
mod device_error;
pub mod export_info;
pub mod kernel;
pub mod limits;
mod link;
pub mod server;
