//! Checks devices for hazards before anything is written.

use super::image::vet_image;
use super::open::check_memory;
use super::spec::DeviceSpec;
use anyhow::Result;
use headpond_api::outcome::Failure;
use headpond_cache::Mode;
use headpond_uring::safety::{DeviceFacts, Hazard, InspectError, VolatileReason, inspect};
use std::io::ErrorKind;

/// The consent of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consent {
    /// Nothing that could lose data, without an option to force it.
    Never,
    /// Nothing that could lose data.
    Careful,
    /// Data on the devices may be overwritten, and a volatile cache is accepted.
    Forced,
}

/// Properties of a device that may be used.
pub struct Vetted {
    /// Why it is volatile, if it is.
    pub volatile: Option<String>,
    /// It has a write cache, so durability depends on flushes.
    pub write_cache: bool,
}

/// Checks one device.
///
/// # Errors
/// A refusal that names every hazard of the device; nothing was changed.
pub fn vet(spec: &DeviceSpec, consent: Consent) -> Result<Vetted> {
    let path = match spec {
        DeviceSpec::Ram(size) => {
            check_memory(spec, *size)?;
            return Ok(Vetted::memory());
        }
        // Contents are what it is taken for; what is in use cannot be forced.
        DeviceSpec::Existing { body, .. } => return vet(body, Consent::Forced),
        DeviceSpec::Rbd(address) => return vet_image(spec, address, consent),
        DeviceSpec::Model { store, .. } if !store.exists() => return Ok(Vetted::plain()),
        spec => spec.path().expect("everything else has a path"),
    };
    let facts = inspect(path).map_err(not_inspected)?;
    refuse(spec, &facts.hazards(), consent)?;
    Ok(Vetted::of(&facts))
}

/// # Errors
/// A refusal that names every hazard without consent.
pub(super) fn refuse(spec: &DeviceSpec, hazards: &[Hazard], consent: Consent) -> Result<()> {
    let blocks = |hazard: &&Hazard| consent != Consent::Forced || !hazard.may_be_forced();
    let blocking: Vec<String> = hazards.iter().filter(blocks).map(Hazard::to_string).collect();
    if !blocking.is_empty() {
        let reasons = blocking.join("; ");
        let may_insist = consent == Consent::Careful && hazards.iter().all(Hazard::may_be_forced);
        let insisting = if may_insist { " (or --force)" } else { "" };
        return Err(Failure::refused(format!("{spec} cannot be used: {reasons}{insisting}")));
    }
    Ok(())
}

/// A path of no device is a mistake in the command.
fn not_inspected(error: InspectError) -> anyhow::Error {
    match &error {
        InspectError::WrongKind { .. } => Failure::usage(error),
        InspectError::Open { source, .. } if is_no_path(source) => Failure::usage(error),
        InspectError::Open { .. } | InspectError::Read { .. } => error.into(),
    }
}

/// Whether nothing is there to open.
pub(super) fn is_no_path(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Checks a future member of an array, or its stripe journal.
///
/// # Errors
/// As for [`vet`]; and for memory, which is empty when the array is assembled.
pub fn vet_lasting(spec: &DeviceSpec, consent: Consent) -> Result<Vetted> {
    match spec {
        DeviceSpec::Ram(_) => Err(Failure::usage(format!(
            "{spec} is memory, which is empty at the next start: members and stripe journals are \
             devices or files; memory can be the tier (--tier {spec}) or a cache without write-back"
        ))),
        spec => vet(spec, consent),
    }
}

impl Vetted {
    pub(super) fn plain() -> Self {
        Self { volatile: None, write_cache: false }
    }

    /// Of a cache in memory.
    pub fn memory() -> Self {
        Self { volatile: Some("memory of the daemon".to_owned()), write_cache: false }
    }

    /// A tier is empty at every start, so it must be memory.
    ///
    /// # Errors
    /// Where it is not, with the way out.
    pub fn check_tier(&self, tier: &DeviceSpec) -> Result<()> {
        match self.volatile {
            Some(_) => Ok(()),
            None => Err(Failure::refused(format!(
                "{tier} is persistent, and a tier is empty at every start: use memory \
                 (ram:SIZE) as the tier, or {tier} as the cache"
            ))),
        }
    }

    /// A volatile cache must not hold dirty data, unless forced.
    ///
    /// # Errors
    /// Where it would, with the ways out.
    pub fn check_cache(&self, cache: &DeviceSpec, mode: Mode, consent: Consent) -> Result<()> {
        self.check_mode(cache, mode, consent)?;
        if let Some(reason) = &self.volatile {
            tracing::warn!("{cache} is volatile ({reason})");
        }
        Ok(())
    }

    /// The same of a mode that the cache is to have, without a note.
    ///
    /// # Errors
    /// As [`Self::check_cache`].
    pub fn check_mode(&self, cache: &DeviceSpec, mode: Mode, consent: Consent) -> Result<()> {
        let Some(reason) = &self.volatile else { return Ok(()) };
        if mode.is_write_back() && consent != Consent::Forced {
            return Err(Failure::refused(format!(
                "{cache} is volatile ({reason}), and this mode keeps dirty data on it: use \
                 write-through, a persistent device, or --force"
            )));
        }
        Ok(())
    }

    fn of(facts: &DeviceFacts) -> Self {
        let volatile = facts.volatile.as_ref().map(VolatileReason::to_string);
        Self { volatile, write_cache: facts.write_cache == Some(true) }
    }
}
