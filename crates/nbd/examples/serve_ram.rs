//! Serves a RAM device on a Unix socket until it is killed, for comparing with other servers:
//! `serve_ram SOCKET MEBIBYTES`.

use headpond_block::devices::RamDevice;
use headpond_block::{BufferPool, PoolConfig};
use headpond_nbd::limits::Limits;
use headpond_nbd::server::{Export, Exports, Server};
use headpond_uring::{RunConfig, SocketListener, run};
use std::error::Error;
use std::path::PathBuf;
use std::rc::Rc;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(socket), Some(mebibytes)) = (arguments.next(), arguments.next()) else {
        return Err("usage: serve_ram SOCKET MEBIBYTES".into());
    };
    let size_bytes = mebibytes.parse::<u64>()? << 20;
    let socket = PathBuf::from(socket);
    run(&RunConfig::default(), |ring, runtime| async move {
        let exports = Rc::new(Exports::new());
        exports.add(Export::new("", Rc::new(RamDevice::new("ram", size_bytes))))?;
        let pool = BufferPool::new(&PoolConfig::default());
        let server = Server::new(runtime, pool, exports, Limits::default());
        let listener = SocketListener::bind_unix(&ring, &socket)?;
        server.serve(Rc::new(listener)).await?;
        Ok(())
    })?
}
