//! A client that says whatever a test wants said.

use crate::common::Stage;
use headpond_block::{Buffer, Stream};
use headpond_nbd::codec::option::{encode_export_query, encode_option};
use headpond_nbd::codec::reply::SIMPLE_BYTES;
use headpond_nbd::codec::request::RequestHeader;
use headpond_nbd::codec::wire::{ClientFlags, Command, CommandFlags, opt};
use headpond_sim::net::SimStream;
use std::io;
use std::rc::Rc;

/// Bytes in, bytes out.
pub struct RawClient(pub Rc<SimStream>);

impl RawClient {
    /// A client that has said `GO` without structured replies.
    pub async fn go(stage: &Stage) -> Self {
        let raw = Self::hello(stage).await;
        let (mut query, mut message) = (Vec::new(), Vec::new());
        encode_export_query("", &[], &mut query);
        encode_option(opt::GO, &query, &mut message);
        raw.send(&message).await;
        raw.receive(20 + 12 + 20 + 14 + 20).await;
        raw
    }

    /// A client that has been greeted and has sent its flags.
    pub async fn hello(stage: &Stage) -> Self {
        let raw = Self(stage.dial());
        raw.receive(18).await;
        raw.send(&ClientFlags::all().bits().to_be_bytes()).await;
        raw
    }

    /// Sends to a server that may have hung up.
    pub async fn try_send(&self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(Buffer::from_slice(bytes).into()).await
    }

    pub async fn send(&self, bytes: &[u8]) {
        self.try_send(bytes).await.expect("the server listens");
    }

    pub async fn receive(&self, count: usize) -> Vec<u8> {
        let bytes = self.receive_up_to(count).await;
        assert_eq!(bytes.len(), count, "the server hung up");
        bytes
    }

    /// What arrives before the end of the stream, at most `count` bytes.
    pub async fn receive_up_to(&self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < count {
            let buffer = Buffer::zeroed(count - bytes.len());
            match self.0.read(buffer.clone()).await {
                Ok(0) | Err(_) => break,
                Ok(received) => bytes.extend(buffer.slice(0..received).to_vec()),
            }
        }
        bytes
    }

    /// Whether the server has hung up, without having said anything more.
    pub async fn is_cut_off(&self) -> bool {
        self.receive_up_to(1).await.is_empty()
    }

    pub async fn ask(&self, command: u16, offset: u64, length_bytes: u32) {
        let flags = CommandFlags::empty();
        let header = RequestHeader { flags, command, cookie: 7, offset, length_bytes };
        self.send(&header.encode()).await;
    }

    /// The error of the next simple reply; 0 is success.
    pub async fn error(&self) -> u32 {
        let reply = self.receive(SIMPLE_BYTES).await;
        assert_eq!(reply[8..], 7u64.to_be_bytes(), "the cookie comes back");
        u32::from_be_bytes(reply[4..8].try_into().expect("four bytes"))
    }

    /// Asks for a range without payload and waits for the error.
    pub async fn outcome(&self, command: Command, offset: u64, length_bytes: u32) -> u32 {
        self.ask(command.to_wire(), offset, length_bytes).await;
        self.error().await
    }
}
