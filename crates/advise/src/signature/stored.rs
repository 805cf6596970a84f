//! A partial signature as bytes.
//!
//! Eight bytes of magic, then version, length of what follows and its CRC-32C, each 32 bits little
//! endian; then JSON under zstd.
//!
//! **Invariants**: bytes are not believed: what is damaged is an error. A version that is not known
//! is refused; one version reads what it writes.

use std::io::Read;

use thiserror::Error;

use super::partial::Partial;

const MAGIC: [u8; 8] = *b"HPSIGNAT";
const VERSION: u32 = 2;
const HEAD_BYTES: usize = MAGIC.len() + 12;

/// A partial signature is no longer than this, in either form.
const CONTENTS_BYTES_MAX: u64 = 1 << 28;

const COMPRESSION: i32 = 3;

/// Why bytes are no partial signature.
#[derive(Debug, Error)]
pub enum StoredError {
    #[error("is no partial signature (`headpond analyze --partial` writes them)")]
    Foreign,

    #[error(
        "is a partial signature of version {found}, and this program knows {VERSION}: make it anew"
    )]
    Version { found: u32 },

    #[error("ends at byte {found} of {expected}: it was not written or copied to its end")]
    Truncated { expected: u64, found: u64 },

    #[error("is damaged: checksum {found:#010x} instead of {expected:#010x}")]
    Checksum { expected: u32, found: u32 },

    #[error("is damaged: {0}")]
    Contents(String),

    #[error("is too large: {found} bytes of at most {CONTENTS_BYTES_MAX}; merge fewer")]
    TooLarge { found: u64 },
}

impl Partial {
    /// The bytes, for a file.
    ///
    /// # Errors
    /// [`StoredError::TooLarge`] where too many traces were merged.
    pub fn to_bytes(&self) -> Result<Vec<u8>, StoredError> {
        let damaged = |error: &dyn std::fmt::Display| StoredError::Contents(error.to_string());
        let json = serde_json::to_vec(self).map_err(|error| damaged(&error))?;
        if json.len() as u64 > CONTENTS_BYTES_MAX {
            return Err(StoredError::TooLarge { found: json.len() as u64 });
        }
        let contents = zstd::encode_all(&json[..], COMPRESSION).map_err(|error| damaged(&error))?;
        let mut bytes = Vec::with_capacity(HEAD_BYTES + contents.len());
        bytes.extend_from_slice(&MAGIC);
        for word in [VERSION, contents.len() as u32, checksum(&contents)] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&contents);
        Ok(bytes)
    }

    /// True for the beginning of a stored partial signature, of any version.
    pub fn begins(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC)
    }

    /// Reads what [`Self::to_bytes`] has written.
    ///
    /// # Errors
    /// [`StoredError`], where the bytes are something else, of another version, or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StoredError> {
        if !Self::begins(bytes) {
            return Err(StoredError::Foreign);
        }
        let head = bytes.get(MAGIC.len()..HEAD_BYTES).ok_or(StoredError::Truncated {
            expected: HEAD_BYTES as u64,
            found: bytes.len() as u64,
        })?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (version, length, expected) = (word(0), word(4), word(8));
        if version != VERSION {
            return Err(StoredError::Version { found: version });
        }
        let contents = &bytes[HEAD_BYTES..];
        if contents.len() as u64 != u64::from(length) {
            let expected = HEAD_BYTES as u64 + u64::from(length);
            return Err(StoredError::Truncated { expected, found: bytes.len() as u64 });
        }
        let found = checksum(contents);
        if found != expected {
            return Err(StoredError::Checksum { expected, found });
        }
        unpack(contents)
    }
}

fn unpack(contents: &[u8]) -> Result<Partial, StoredError> {
    let damaged = |error: &dyn std::fmt::Display| StoredError::Contents(error.to_string());
    let unpacked = zstd::Decoder::new(contents).map_err(|error| damaged(&error))?;
    let mut json = Vec::new();
    let most = CONTENTS_BYTES_MAX + 1;
    unpacked.take(most).read_to_end(&mut json).map_err(|error| damaged(&error))?;
    if json.len() as u64 == most {
        return Err(StoredError::TooLarge { found: most });
    }
    let partial: Partial = serde_json::from_slice(&json).map_err(|error| damaged(&error))?;
    let sound = partial.is_sound().then_some(partial);
    sound.ok_or_else(|| StoredError::Contents("counts that no trace gives".to_owned()))
}

fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature::{Sampling, SignatureBuilder};
    use crate::testing::{Job, scattered};
    use headpond_trace::{Names, Op};

    fn partial() -> Partial {
        let mut builder = SignatureBuilder::of_source("sda", Sampling::default());
        let job = Job { process: 3, ..Job::new(4, 3000, 4096) };
        let records = job.run(|n| (Op::Write, scattered(n, 4096)));
        records.iter().for_each(|record| builder.add(record));
        builder.count(&Names::default())
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let partial = partial();
        let bytes = partial.to_bytes().unwrap();
        assert!(bytes.len() < 100_000, "{}", bytes.len());
        assert_eq!(Partial::from_bytes(&bytes).unwrap(), partial);
        let empty = SignatureBuilder::new().count(&Names::default());
        assert_eq!(Partial::from_bytes(&empty.to_bytes().unwrap()).unwrap(), empty);
    }

    #[test]
    fn other_versions_foreign_short_and_damaged_bytes_are_told_apart() {
        let bytes = partial().to_bytes().unwrap();
        let error = |bytes: &[u8]| Partial::from_bytes(bytes).unwrap_err();
        assert!(matches!(error(b""), StoredError::Foreign));
        assert!(matches!(error(b"419,W,8792731648"), StoredError::Foreign));
        let mut newer = bytes.clone();
        newer[8] = 3;
        assert!(matches!(error(&newer), StoredError::Version { found: 3 }));
        for length in [8, HEAD_BYTES - 1, HEAD_BYTES, bytes.len() - 1] {
            let error = error(&bytes[..length]);
            assert!(matches!(error, StoredError::Truncated { .. }), "{length}: {error}");
        }
        for at in (HEAD_BYTES..bytes.len()).step_by(97).chain([16]) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert!(matches!(error(&damaged), StoredError::Checksum { .. }), "byte {at}");
        }
    }

    #[test]
    fn counts_that_no_trace_gives_are_refused_although_their_checksum_is_right() {
        let json = serde_json::to_string(&partial()).unwrap();
        let damaged = json.replacen("\"exponent\":", "\"exponent\":9", 1);
        assert_ne!(json, damaged);
        for json in [damaged.as_str(), "{}", "[1]"] {
            let contents = zstd::encode_all(json.as_bytes(), 1).unwrap();
            assert!(matches!(unpack(&contents), Err(StoredError::Contents(_))), "{json:.20}");
        }
    }
}
