//! Binary formats of records of one length, without any mark of their own: they are recognised by
//! whether their numbers make sense.
//!
//! **Invariants**: one buffer and one window of requests are held, whatever the input claims. A
//! damaged record is passed over as a whole: there is nothing to find the next one by but the
//! length.

mod oracle;
mod reader;
pub(crate) mod scsi;
mod vscsi;

use crate::arrivals::Entry;
use crate::damage::Damage;
use crate::format::TraceFormat;
use crate::record_source::RecordSource;
use crate::source::ByteSource;
use reader::FixedReader;

/// One such format, with what it remembers from one record to the next.
pub(crate) trait FixedFormat: Default + Send + 'static {
    const FORMAT: TraceFormat;
    const RECORD_BYTES: usize;
    /// What a record must hold, for messages.
    const EXPECTED: &'static str;

    /// What the `RECORD_BYTES` of `record` say.
    fn entry(&mut self, record: &[u8]) -> Entry<'static>;
}

/// One format among those that may be recognised.
pub(crate) struct FixedCandidate {
    pub(crate) format: TraceFormat,
    pub(crate) fits: fn(&[u8]) -> bool,
    pub(crate) open: fn(ByteSource, Damage) -> Box<dyn RecordSource>,
}

pub(crate) const FIXED_FORMATS: [FixedCandidate; 3] =
    [candidate::<vscsi::Vscsi1>(), candidate::<vscsi::Vscsi2>(), candidate::<oracle::Oracle>()];

const fn candidate<F: FixedFormat>() -> FixedCandidate {
    FixedCandidate { format: F::FORMAT, fits: fits::<F>, open: open::<F> }
}

fn open<F: FixedFormat>(source: ByteSource, damage: Damage) -> Box<dyn RecordSource> {
    Box::new(FixedReader::<F>::new(source, damage))
}

/// The first record must be sound, and of the others of the beginning all but one in eight.
fn fits<F: FixedFormat>(head: &[u8]) -> bool {
    let mut format = F::default();
    let mut records = head.chunks_exact(F::RECORD_BYTES);
    let mut is_sound = |record: &[u8]| format.entry(record) != Entry::Damaged;
    if !records.next().is_some_and(&mut is_sound) {
        return false;
    }
    let (count, sound) = (records.len(), records.filter(|record| is_sound(record)).count());
    count - sound <= count / 8
}

/// A little-endian number of `N` bytes at `at`.
fn bytes_at<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&record[at..at + N]);
    bytes
}

#[cfg(test)]
mod tests;
