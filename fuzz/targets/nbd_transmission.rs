//! The whole server in virtual time, against a client that has agreed to an export and then sends
//! anything: requests of every shape, or bytes that are none.

#![no_main]

use std::rc::Rc;
use std::time::Duration;

use headpond_block::devices::RamDevice;
use headpond_block::{Buffer, BufferPool, PoolConfig, Runtime, Stream};
use headpond_nbd::codec::option::{encode_export_query, encode_option};
use headpond_nbd::codec::request::RequestHeader;
use headpond_nbd::codec::wire::{ClientFlags, CommandFlags, opt};
use headpond_nbd::limits::Limits;
use headpond_nbd::server::{Export, Exports, Server};
use headpond_sim::net::{Link, SimStream, connection};
use headpond_sim::{Sim, run};
use libfuzzer_sys::fuzz_target;

const DEVICE_BYTES: u64 = 64 * 1024;
/// Bytes of input that become one request.
const SHAPE_BYTES: usize = 8;
/// Longer than any answer can take in virtual time.
const PATIENCE: Duration = Duration::from_secs(1);

fuzz_target!(|data: &[u8]| {
    let Some((&mode, rest)) = data.split_first() else { return };
    let mut bytes = handshake(mode & 1 != 0);
    if mode & 2 != 0 {
        bytes.extend(rest);
    } else {
        rest.chunks_exact(SHAPE_BYTES).for_each(|shape| request(shape, &mut bytes));
    }
    run(u64::from(mode), |runtime, sim| converse(runtime, sim, bytes)).expect("no deadlock");
});

/// What a client sends to be served the only export.
fn handshake(structured_replies: bool) -> Vec<u8> {
    let mut bytes = ClientFlags::all().bits().to_be_bytes().to_vec();
    if structured_replies {
        encode_option(opt::STRUCTURED_REPLY, b"", &mut bytes);
    }
    let mut query = Vec::new();
    encode_export_query("", &[], &mut query);
    encode_option(opt::GO, &query, &mut bytes);
    bytes
}

/// A request near or inside the device, with the payload that it announces.
fn request(shape: &[u8], bytes: &mut Vec<u8>) {
    let offset = u64::from(u16::from_le_bytes([shape[2], shape[3]])) * 4;
    let length_bytes = u32::from(u16::from_le_bytes([shape[4], shape[5]])) * 2;
    let header = RequestHeader {
        flags: CommandFlags::from_bits_retain(u16::from(shape[1] & 0x1f)),
        command: u16::from(shape[0] & 7),
        cookie: u64::from(shape[6]),
        offset: if shape[7] == 0xff { u64::MAX - offset } else { offset & !511 },
        length_bytes: if shape[7] & 1 == 0 { length_bytes & !511 } else { length_bytes },
    };
    bytes.extend(header.encode());
    if header.command == 1 {
        bytes.resize(bytes.len() + length_bytes as usize, shape[6]);
    }
}

async fn converse(runtime: Runtime, sim: Sim, bytes: Vec<u8>) {
    let exports = Rc::new(Exports::new());
    let device = Rc::new(RamDevice::new("ram", DEVICE_BYTES));
    exports.add(Export::new("ram", device)).expect("the only export");
    let pool = BufferPool::new(&PoolConfig { classes: Vec::new() });
    let limits = Limits { connections_max: 1, ..Limits::default() };
    let server = Server::new(runtime.clone(), pool, exports, limits);
    let (client, remote) = connection(&runtime, &mut sim.random(), Link::LOCAL);
    server.serve_stream(remote);
    let answers = runtime.spawn(receive_all(Rc::clone(&client)));
    let _ = client.write_all(Buffer::from_slice(&bytes).into()).await;
    runtime.sleep(PATIENCE).await;
    client.shutdown();
    answers.await;
    server.stop().await.expect("RAM can be flushed");
    assert!(server.report().connections.is_empty(), "a connection outlived the server");
}

async fn receive_all(client: Rc<SimStream>) {
    let buffer = Buffer::zeroed(64 * 1024);
    while client.read(buffer.clone()).await.is_ok_and(|received| received > 0) {}
}
