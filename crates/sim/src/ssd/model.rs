//! A drive model made ready for use. Times in nanoseconds.

use super::parameters::{Protocol, SsdParameters};
use crate::error::ModelError;

/// The unit of the map.
pub(super) const UNIT_BYTES: u64 = 4096;

/// A kind of drive; shared by all drives of that kind.
#[derive(Clone, Debug)]
pub struct SsdModel {
    parameters: SsdParameters,
    pub(super) dies: usize,
    pub(super) program_units: u64,
    pub(super) read_ns: u64,
    pub(super) program_ns: u64,
    pub(super) erase_ns: u64,
}

impl SsdModel {
    /// # Errors
    /// Names the line or the field that is wrong.
    pub fn parse(text: &str) -> Result<Self, ModelError> {
        Self::new(toml::from_str(text)?)
    }

    /// # Errors
    /// Names the field that is wrong.
    pub fn new(parameters: SsdParameters) -> Result<Self, ModelError> {
        parameters.check()?;
        let flash = &parameters.flash;
        Ok(Self {
            dies: flash.channels * flash.dies_per_channel,
            program_units: u64::from(flash.program_kib) * 1024 / UNIT_BYTES,
            read_ns: nanos(flash.read_us),
            program_ns: nanos(flash.program_us),
            erase_ns: nanos(flash.erase_ms * 1e3),
            parameters,
        })
    }

    /// The same drive with its write cache switched.
    pub fn with_write_cache(mut self, enabled: bool) -> Self {
        self.parameters.write_cache.enabled = enabled;
        self
    }

    pub fn parameters(&self) -> &SsdParameters {
        &self.parameters
    }

    pub fn size_bytes(&self) -> u64 {
        self.parameters.flash.capacity_bytes
    }

    /// Whether what was acknowledged survives a power cut.
    pub fn is_stable(&self) -> bool {
        let cache = &self.parameters.write_cache;
        cache.protected || !cache.enabled
    }

    /// Whether it says that it has a volatile cache, so that the host sends flushes.
    pub fn reports_a_cache(&self) -> bool {
        let cache = &self.parameters.write_cache;
        cache.enabled && cache.reported
    }

    /// Whether a flush finds nothing to program.
    pub(super) fn flushes_are_free(&self) -> bool {
        let cache = &self.parameters.write_cache;
        cache.protected || cache.flush == super::FlushBehaviour::Ignored
    }

    /// Whether a write has to be on the flash before it is answered.
    pub(super) fn writes_through(&self) -> bool {
        !self.is_stable_in_buffer() && !self.parameters.write_cache.enabled
    }

    pub(super) fn is_stable_in_buffer(&self) -> bool {
        self.parameters.write_cache.protected
    }

    pub(super) fn is_sata(&self) -> bool {
        self.parameters.interface.protocol == Protocol::Sata
    }

    pub(super) fn channel_ns(&self, bytes: u64) -> u64 {
        transfer_ns(bytes, self.parameters.flash.channel_mb_per_s)
    }

    /// Time on the link for what is read.
    pub(super) fn out_ns(&self, bytes: u64) -> u64 {
        let link = self.parameters.interface.mb_per_s;
        let controller = self.parameters.controller.read_mb_per_s;
        transfer_ns(bytes, controller.map_or(link, |rate| rate.min(link)))
    }

    /// Time on the link for what is written.
    pub(super) fn in_ns(&self, bytes: u64) -> u64 {
        let link = self.parameters.interface.mb_per_s;
        let controller = self.parameters.controller.write_mb_per_s;
        transfer_ns(bytes, controller.map_or(link, |rate| rate.min(link)))
    }
}

pub(super) fn nanos(us: f64) -> u64 {
    (us * 1e3) as u64
}

fn transfer_ns(bytes: u64, mb_per_s: f64) -> u64 {
    (bytes as f64 * 1e3 / mb_per_s) as u64
}
