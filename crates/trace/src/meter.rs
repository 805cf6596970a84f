//! Position of a reader in its files, for progress reports.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the files as stored: compressed ones count compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub read_bytes: u64,
    /// Not known of a pipe.
    pub total_bytes: Option<u64>,
}

/// What one file was read of; nothing for what is no file.
#[derive(Clone, Default)]
pub(crate) struct Meter {
    read_bytes: Arc<AtomicU64>,
    total_bytes: Option<u64>,
}

/// An input that counts.
pub(crate) struct Metered<R> {
    input: R,
    meter: Meter,
}

impl Meter {
    /// The sum of several.
    pub(crate) fn sum(meters: &[Meter]) -> Progress {
        let read = |meter: &Meter| meter.read_bytes.load(Ordering::Relaxed);
        Progress {
            read_bytes: meters.iter().map(read).sum(),
            total_bytes: meters.iter().map(|meter| meter.total_bytes).sum(),
        }
    }
}

impl<R> Metered<R> {
    pub(crate) fn new(input: R, total_bytes: Option<u64>) -> Self {
        Self { input, meter: Meter { read_bytes: Arc::default(), total_bytes } }
    }

    pub(crate) fn meter(&self) -> Meter {
        self.meter.clone()
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(into)?;
        self.meter.read_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
