//! One connection: the handshake, and frames in both directions.
//!
//! **Invariants**: a frame's length is compared with [`BODY_BYTES_MAX`] before memory is taken for
//! it. Until the other end has proved the key, nothing but messages of fixed length are read.
//!
//! **Not here**: time limits; whoever waits for a peer sets them.

use super::auth::{Forged, Key, NONCE_BYTES, Nonces, PROOF_BYTES, Role, Sealer};
use super::codec::CodecError;
use super::wire::{BODY_BYTES_MAX, FromWitness, ToWitness};
use headpond_block::sync::Semaphore;
use headpond_block::{Buffer, Stream};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

const MAGIC: &[u8; 8] = b"HPWITN01";
const OPENING_BYTES: usize = MAGIC.len() + NONCE_BYTES;

/// A connection is of no further use.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("the connection is lost: {0}")]
    Lost(#[from] io::Error),
    #[error("the other end has closed the connection")]
    Closed,
    #[error("the other end is no witness, and no client of one, of this version")]
    Stranger,
    #[error("the other end holds another key, or somebody is in between: {0}")]
    Forged(#[from] Forged),
    #[error("a frame of {0} bytes is announced, and {BODY_BYTES_MAX} is the most")]
    TooLong(u32),
    #[error("a message is not understood: {0}")]
    Malformed(#[from] CodecError),
}

/// An authenticated connection.
pub struct Link {
    stream: Rc<dyn Stream>,
    sends: RefCell<Sealer>,
    receives: RefCell<Sealer>,
    /// Frames leave one by one, in the order of their numbers.
    turn: Semaphore,
}

impl Link {
    /// The client's end of the handshake.
    ///
    /// # Errors
    /// Where the connection fails or the other end does not hold the key.
    pub async fn connect(
        stream: Rc<dyn Stream>,
        key: &Key,
        nonce: [u8; NONCE_BYTES],
    ) -> Result<Self, LinkError> {
        write(&*stream, &[MAGIC, &nonce[..]].concat()).await?;
        let answer = read(&*stream, OPENING_BYTES + PROOF_BYTES).await?;
        let witness = opening(&answer)?;
        let nonces = Nonces { client: nonce, witness };
        key.check(Role::Witness, &nonces, &answer[OPENING_BYTES..])?;
        write(&*stream, &key.proof(Role::Client, &nonces)).await?;
        Ok(Self::of(stream, key, Role::Client, &nonces))
    }

    /// The witness's end of the handshake.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn accept(
        stream: Rc<dyn Stream>,
        key: &Key,
        nonce: [u8; NONCE_BYTES],
    ) -> Result<Self, LinkError> {
        let client = opening(&read(&*stream, OPENING_BYTES).await?)?;
        let nonces = Nonces { client, witness: nonce };
        let proof = key.proof(Role::Witness, &nonces);
        write(&*stream, &[MAGIC, &nonce[..], &proof[..]].concat()).await?;
        key.check(Role::Client, &nonces, &read(&*stream, PROOF_BYTES).await?)?;
        Ok(Self::of(stream, key, Role::Witness, &nonces))
    }

    fn of(stream: Rc<dyn Stream>, key: &Key, role: Role, nonces: &Nonces) -> Self {
        let other = if role == Role::Witness { Role::Client } else { Role::Witness };
        let sends = RefCell::new(key.sealer(role, nonces));
        let receives = RefCell::new(key.sealer(other, nonces));
        Self { stream, sends, receives, turn: Semaphore::new(1) }
    }

    pub async fn send(&self, message: &ToWitness) -> Result<(), LinkError> {
        self.send_body(message.encode()).await
    }

    pub async fn answer(&self, message: &FromWitness) -> Result<(), LinkError> {
        self.send_body(message.encode()).await
    }

    /// The next message of a client.
    ///
    /// # Errors
    /// Where there is none, or it is not understood.
    pub async fn receive(&self) -> Result<ToWitness, LinkError> {
        Ok(ToWitness::decode(&self.receive_body().await?)?)
    }

    /// The next message of the witness.
    ///
    /// # Errors
    /// As [`Self::receive`].
    pub async fn receive_answer(&self) -> Result<FromWitness, LinkError> {
        Ok(FromWitness::decode(&self.receive_body().await?)?)
    }

    pub fn close(&self) {
        self.stream.shutdown();
    }

    pub fn peer(&self) -> String {
        self.stream.peer()
    }

    async fn send_body(&self, body: Vec<u8>) -> Result<(), LinkError> {
        assert!(body.len() <= BODY_BYTES_MAX, "a message of {} bytes", body.len());
        let _turn = self.turn.acquire(1).await;
        let proof = self.sends.borrow_mut().seal(&body);
        let len = (body.len() as u32).to_le_bytes();
        write(&*self.stream, &[&len[..], &body, &proof].concat()).await
    }

    async fn receive_body(&self) -> Result<Vec<u8>, LinkError> {
        let len = read(&*self.stream, 4).await?;
        let len = u32::from_le_bytes(len.try_into().expect("four bytes"));
        if len as usize > BODY_BYTES_MAX {
            return Err(LinkError::TooLong(len));
        }
        let mut body = read(&*self.stream, len as usize + PROOF_BYTES).await?;
        let proof = body.split_off(len as usize);
        self.receives.borrow_mut().open(&body, &proof)?;
        Ok(body)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stream.shutdown();
    }
}

/// The nonce of an opening.
fn opening(bytes: &[u8]) -> Result<[u8; NONCE_BYTES], LinkError> {
    match bytes.strip_prefix(MAGIC) {
        Some(rest) => Ok(rest[..NONCE_BYTES].try_into().expect("a nonce")),
        None => Err(LinkError::Stranger),
    }
}

async fn write(stream: &dyn Stream, bytes: &[u8]) -> Result<(), LinkError> {
    Ok(stream.write_all(Buffer::from_slice(bytes).into()).await?)
}

async fn read(stream: &dyn Stream, len: usize) -> Result<Vec<u8>, LinkError> {
    let all = Buffer::zeroed(len);
    let mut done = 0;
    while done < len {
        match stream.read(all.slice(done..len)).await? {
            0 => return Err(LinkError::Closed),
            count => done += count,
        }
    }
    Ok(all.to_vec())
}
