//! The client in virtual time, against a server that says anything: in the handshake, or in answer
//! to requests that are in flight.

#![no_main]

use std::rc::Rc;
use std::time::Duration;

use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffer, BufferPool, PoolConfig, Runtime, Stream};
use headpond_nbd::client::NbdDevice;
use headpond_nbd::codec::option_reply::{BlockSizes, Info, encode_greeting, encode_reply};
use headpond_nbd::codec::wire::{HandshakeFlags, TransmissionFlags, opt, rep};
use headpond_sim::net::{Link, SimStream, connection};
use headpond_sim::{Sim, run};
use libfuzzer_sys::fuzz_target;

const DEVICE_BYTES: u64 = 1 << 20;
const READ_BYTES: usize = 4096;
const REQUESTS: u64 = 4;
/// Bytes of input that become one answer.
const SHAPE_BYTES: usize = 6;
/// Long enough for what was sent before to arrive.
const PAUSE: Duration = Duration::from_millis(10);

fuzz_target!(|data: &[u8]| {
    let Some((&mode, rest)) = data.split_first() else { return };
    let (mut welcome, mut answers) = (Vec::new(), Vec::new());
    encode_greeting(HandshakeFlags::all(), &mut welcome);
    match mode & 3 {
        0 => welcome.extend(rest),
        1 => {
            agree(mode, &mut welcome);
            answers.extend(rest);
        }
        _ => {
            agree(mode, &mut welcome);
            rest.chunks_exact(SHAPE_BYTES).for_each(|shape| answer(shape, &mut answers));
        }
    }
    run(u64::from(mode), |runtime, sim| converse(runtime, sim, welcome, answers))
        .expect("no deadlock");
});

/// What a server answers to a client that asks for structured replies and the export.
fn agree(mode: u8, bytes: &mut Vec<u8>) {
    let structured = if mode & 4 == 0 { rep::ACK } else { rep::ERR_UNSUP };
    encode_reply(opt::STRUCTURED_REPLY, structured, b"", bytes);
    let flags = TransmissionFlags::HAS_FLAGS | TransmissionFlags::SEND_FLUSH;
    Info::Export { size_bytes: DEVICE_BYTES, flags }.encode(opt::GO, bytes);
    let sizes = BlockSizes { minimum: 512, preferred: 4096, maximum: 32 << 20 };
    Info::BlockSize(sizes).encode(opt::GO, bytes);
    encode_reply(opt::GO, rep::ACK, b"", bytes);
}

/// A simple reply or a chunk for one of the requests, with a payload near what it should be.
fn answer(shape: &[u8], bytes: &mut Vec<u8>) {
    let cookie = (1 << 32) | u64::from(shape[1] % 8);
    let offset = u64::from(shape[2] / 4) * 512;
    let len = usize::from(shape[3]) * 32;
    if shape[0] & 1 == 0 {
        bytes.extend(0x6744_6698_u32.to_be_bytes());
        bytes.extend(u32::from(shape[4] / 2).to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.resize(bytes.len() + len, shape[5]);
        return;
    }
    let kind: u16 = [0, 1, 2, 5, 0x8001, 0x8002, 3, 1][usize::from(shape[0] >> 5)];
    bytes.extend(0x668e_33ef_u32.to_be_bytes());
    bytes.extend(u16::from(shape[0] >> 1 & 1).to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    let payload = match kind {
        1 => [&offset.to_be_bytes()[..], &vec![shape[5]; len]].concat(),
        2 => [&offset.to_be_bytes()[..], &(len as u32).to_be_bytes()].concat(),
        _ => shape.to_vec(),
    };
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
}

async fn converse(runtime: Runtime, sim: Sim, welcome: Vec<u8>, answers: Vec<u8>) {
    let (near, far) = connection(&runtime, &mut sim.random(), Link::LOCAL);
    let server = runtime.spawn(serve(runtime.clone(), far, welcome, answers));
    let pool = BufferPool::new(&PoolConfig { classes: Vec::new() });
    if let Ok(device) = NbdDevice::connect(&runtime, &pool, near, "any").await {
        let device: &dyn BlockDevice = &device;
        let memory: Vec<Buffer> = (0..REQUESTS).map(|_| Buffer::zeroed(READ_BYTES)).collect();
        let fits = device.size_bytes() >= REQUESTS * READ_BYTES as u64;
        let count = if fits { REQUESTS } else { 0 };
        let reads = (0..count).map(|at| device.read(at * 4096, memory[at as usize].clone()));
        join_all(reads.collect::<Vec<_>>()).await;
    }
    server.await;
}

async fn serve(runtime: Runtime, stream: Rc<SimStream>, welcome: Vec<u8>, answers: Vec<u8>) {
    let requests = runtime.spawn(swallow(Rc::clone(&stream)));
    for bytes in [welcome, answers] {
        let _ = stream.write_all(Buffer::from_slice(&bytes).into()).await;
        runtime.sleep(PAUSE).await;
    }
    stream.shutdown();
    requests.await;
}

async fn swallow(stream: Rc<SimStream>) {
    let buffer = Buffer::zeroed(64 * 1024);
    while stream.read(buffer.clone()).await.is_ok_and(|received| received > 0) {}
}
