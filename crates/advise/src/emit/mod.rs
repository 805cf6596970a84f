//! Advice for Headpond and for other caches, as the commands or files that those take.
//!
//! 1. `wanted` says what all settings come to. 2. A file for each cache says of each setting how it
//!    is expressed there, or why not (`fit`), and writes the commands. 3. `script` puts both
//!    together.
//!
//! **Invariants**: every setting of the advice is named in what is written, as expressed, as nearly
//! expressed or as left out, with the reason; no value is outside the range of who takes it; what
//! is written for a shell is valid for `sh`, and a device that is not known has to be named before
//! anything runs.
//!
//! **Not here**: running any of it; what other caches make of it (nothing but Headpond's own is
//! modelled).
//!
//! **Source**: Open CAS Linux, `casadm` 22.6 (options, ranges) and its guide (classes);
//! lvmcache(7), lvconvert(8) of LVM 2.03.16; Linux, `admin-guide/bcache.rst`,
//! `drivers/md/bcache/sysfs.c` (ranges), `admin-guide/device-mapper/writecache.rst`,
//! `drivers/md/dm-writecache.c` (ranges); bcache-tools 1.0.8.

mod bcache;
mod casadm;
mod dm_writecache;
mod fit;
mod headpond;
mod lvmcache;
mod opencas_io_class;
mod script;
#[cfg(test)]
mod tests;
mod wanted;

use crate::advice::Advice;
use crate::situation::Situation;
use fit::Fit;
use script::Script;
use std::fmt;
use std::str::FromStr;
use wanted::{Named, Wanted};

/// Who is to carry the advice out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Headpond,
    Casadm,
    OpencasIoClass,
    Lvmcache,
    Bcache,
    DmWritecache,
}

/// A name that nothing is written for.
#[derive(Debug, thiserror::Error)]
#[error(
    "nothing is written for {0}; there are headpond, casadm, opencas-io-class, lvmcache, bcache and \
     dm-writecache"
)]
pub struct TargetError(String);

/// What the advice is for, as far as it is known.
#[derive(Clone, Debug, Default)]
pub struct Occasion {
    /// What the trace is called.
    pub trace: String,
    /// A volume that is served, whose array and cache were taken.
    pub volume: Option<String>,
    /// It has a cache.
    pub volume_has_cache: bool,
    /// The cache device.
    pub cache_device: Option<String>,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Emission {
    /// A script, or a file.
    pub text: String,
    /// What has no place in a file that takes no comments.
    pub remarks: Vec<String>,
}

/// A cache that can be told what to do.
trait Cache {
    /// As people call it.
    fn name(&self) -> &'static str;

    /// How a setting is expressed, where that is special to this cache.
    fn fit(&self, setting: &Named, wanted: &Wanted) -> Option<Fit>;

    /// Why this cache can do nothing of the kind.
    fn refusal(&self, _wanted: &Wanted) -> Option<String> {
        None
    }

    fn write(&self, wanted: &Wanted, script: &mut Script);
}

impl Target {
    pub const ALL: [(&'static str, Target); 6] = [
        ("headpond", Target::Headpond),
        ("casadm", Target::Casadm),
        ("opencas-io-class", Target::OpencasIoClass),
        ("lvmcache", Target::Lvmcache),
        ("bcache", Target::Bcache),
        ("dm-writecache", Target::DmWritecache),
    ];
}

/// Writes the advice for `target`.
///
/// # Panics
/// Where the situation has no cache, or a setting of the advice is none.
pub fn emit(
    advice: &Advice,
    situation: &Situation,
    target: Target,
    occasion: &Occasion,
) -> Emission {
    let mut wanted = Wanted::of(advice, situation, occasion);
    // What is set says nothing of another cache.
    wanted.stays &= target == Target::Headpond;
    let cache: &dyn Cache = match target {
        Target::Headpond => &headpond::Headpond,
        Target::Casadm => &casadm::Casadm,
        Target::OpencasIoClass => return opencas_io_class::file(advice, &wanted),
        Target::Lvmcache => &lvmcache::Lvmcache,
        Target::Bcache => &bcache::Bcache,
        Target::DmWritecache => &dm_writecache::DmWritecache,
    };
    let text = script::of(cache, advice, &wanted);
    Emission { text, remarks: Vec::new() }
}

/// The commands of Headpond that carry the advice out; none where there is nothing to do.
///
/// # Panics
/// As [`emit`].
pub fn commands(advice: &Advice, situation: &Situation, occasion: &Occasion) -> Vec<String> {
    script::commands(&headpond::Headpond, &Wanted::of(advice, situation, occasion))
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let named = Self::ALL.into_iter().find(|(name, _)| *name == text);
        named.map(|(_, target)| target).ok_or_else(|| TargetError(text.to_owned()))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.into_iter().find(|(_, target)| target == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}
