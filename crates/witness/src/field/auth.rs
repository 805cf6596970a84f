//! Who speaks: both ends prove that they hold the same key, and every frame carries a proof of its
//! own.
//!
//! 1. Both ends send a nonce. Each proves the key by HMAC-SHA-256 over its role and both nonces.
//! 2. From key and nonces follow two keys of the session, one for each direction.
//! 3. A frame carries the HMAC of its number and its bytes: nothing can be left out, repeated,
//!    swapped or brought over from another session.
//!
//! Nothing is encrypted: what travels is which blocks were written, and no contents.
//!
//! **Source**: RFC 2104 (HMAC); ISO/IEC 9798-4, mechanism 4 for the mutual proof.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

pub const NONCE_BYTES: usize = 32;
pub const PROOF_BYTES: usize = 32;
pub const KEY_BYTES: usize = 32;

/// What both ends share.
#[derive(Clone)]
pub struct Key([u8; KEY_BYTES]);

/// A text that is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a key is {} hexadecimal digits on one line, as `headpond witness key` writes it", 2 * KEY_BYTES)]
pub struct NoKey;

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Witness,
    Client,
}

/// Both nonces of a session.
#[derive(Clone, Copy, Debug)]
pub struct Nonces {
    pub client: [u8; NONCE_BYTES],
    pub witness: [u8; NONCE_BYTES],
}

/// One direction of a session: proves frames, or checks them.
pub struct Sealer {
    key: [u8; PROOF_BYTES],
    frames: u64,
}

impl Key {
    pub fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// Reads the text of a key file.
    ///
    /// # Errors
    /// Where it is none.
    pub fn parse(text: &str) -> Result<Self, NoKey> {
        let text = text.trim();
        if text.len() != 2 * KEY_BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NoKey);
        }
        let digits = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16);
        let mut bytes = [0; KEY_BYTES];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = digits(at).map_err(|_| NoKey)?;
        }
        Ok(Self(bytes))
    }

    /// The text of a key file.
    pub fn text(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "\n"
    }

    /// What proves that the end in this role holds the key.
    pub fn proof(&self, role: Role, nonces: &Nonces) -> [u8; PROOF_BYTES] {
        self.derive(b"proof", role, nonces)
    }

    /// # Errors
    /// Where the other end holds another key; compared in constant time.
    pub fn check(&self, role: Role, nonces: &Nonces, proof: &[u8]) -> Result<(), Forged> {
        let mac = self.mac(b"proof", role, nonces);
        mac.verify_slice(proof).map_err(|_| Forged)
    }

    /// The direction in which the end in this role sends.
    pub fn sealer(&self, role: Role, nonces: &Nonces) -> Sealer {
        Sealer { key: self.derive(b"frames", role, nonces), frames: 0 }
    }

    fn derive(&self, use_for: &[u8], role: Role, nonces: &Nonces) -> [u8; PROOF_BYTES] {
        self.mac(use_for, role, nonces).finalize().into_bytes().into()
    }

    fn mac(&self, use_for: &[u8], role: Role, nonces: &Nonces) -> Hmac<Sha256> {
        let role: &[u8] = match role {
            Role::Witness => b"witness",
            Role::Client => b"client",
        };
        let mut mac = hmac(&self.0);
        for part in [b"headpond witness 1", use_for, role, &nonces.client, &nonces.witness] {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

/// A proof does not fit: the other end holds another key, or somebody changed what it sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the proof of the other end does not fit")]
pub struct Forged;

impl Sealer {
    /// The proof of the next frame.
    pub fn seal(&mut self, body: &[u8]) -> [u8; PROOF_BYTES] {
        self.next(body).finalize().into_bytes().into()
    }

    /// # Errors
    /// Where the frame is not the next one, or not the other end's.
    pub fn open(&mut self, body: &[u8], proof: &[u8]) -> Result<(), Forged> {
        self.next(body).verify_slice(proof).map_err(|_| Forged)
    }

    fn next(&mut self, body: &[u8]) -> Hmac<Sha256> {
        let mut mac = hmac(&self.key);
        mac.update(&self.frames.to_le_bytes());
        mac.update(body);
        self.frames += 1;
        mac
    }
}

fn hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes keys of any length")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonces() -> Nonces {
        Nonces { client: [1; NONCE_BYTES], witness: [2; NONCE_BYTES] }
    }

    #[test]
    fn the_proof_of_one_end_is_not_that_of_the_other() {
        let key = Key::new([7; KEY_BYTES]);
        let proof = key.proof(Role::Client, &nonces());
        assert_eq!(key.check(Role::Client, &nonces(), &proof), Ok(()));
        assert_eq!(key.check(Role::Witness, &nonces(), &proof), Err(Forged), "reflected");
        let later = Nonces { witness: [3; NONCE_BYTES], ..nonces() };
        assert_eq!(key.check(Role::Client, &later, &proof), Err(Forged), "replayed");
        let other = Key::new([8; KEY_BYTES]);
        assert_eq!(other.check(Role::Client, &nonces(), &proof), Err(Forged));
    }

    #[test]
    fn frames_are_taken_once_whole_and_in_order() {
        let key = Key::new([7; KEY_BYTES]);
        let mut sender = key.sealer(Role::Client, &nonces());
        let (first, second) = (sender.seal(b"one"), sender.seal(b"two"));
        let receiver = || key.sealer(Role::Client, &nonces());
        let mut taken = receiver();
        assert_eq!(taken.open(b"one", &first), Ok(()));
        assert_eq!(taken.open(b"one", &first), Err(Forged), "repeated");
        assert_eq!(receiver().open(b"two", &second), Err(Forged), "the first is missing");
        assert_eq!(receiver().open(b"onE", &first), Err(Forged));
        assert_eq!(receiver().open(b"one", &first[..16]), Err(Forged), "half a proof");
    }

    #[test]
    fn a_key_survives_its_file_and_anything_else_is_refused() {
        let key = Key::new(std::array::from_fn(|at| at as u8));
        assert_eq!(Key::parse(&key.text()).map(|key| key.0), Ok(key.0));
        for text in ["", "00", &"g".repeat(64), &"é".repeat(32), &"+1".repeat(32)] {
            assert!(Key::parse(text).is_err(), "{text}");
        }
    }
}
