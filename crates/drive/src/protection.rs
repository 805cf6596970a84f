//! Whether acknowledged writes survive a power cut: indications, each with its evidence.
//!
//! No command reports whether a drive has capacitors. The evidence: a drive that declares no
//! volatile cache, and model families that are sold with protection.
//!
//! **Not here**: proof. The table of families is common knowledge, not confirmed by vendors; partly
//! protected families are left out.

use crate::kernel::KernelFacts;
use crate::own::OwnFacts;
use crate::write_cache::CacheState;
use serde::Serialize;
use std::fmt;

/// The conclusion from all hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The drive declares that acknowledged writes are not volatile.
    Declared,
    /// The drive does not declare it, but there is evidence.
    Hinted,
    Unknown,
}

/// One piece of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hint {
    pub says: String,
    pub evidence: String,
}

/// The conclusion and its evidence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Protection {
    pub verdict: Verdict,
    pub hints: Vec<Hint>,
}

/// Prefix of the models of a family with power-loss protection.
struct Family {
    prefix: &'static str,
    name: &'static str,
}

const FAMILIES: [Family; 16] = [
    family("SSDSC2KB", "Intel/Solidigm D3-S45x0"),
    family("SSDSC2KG", "Intel/Solidigm D3-S46x0"),
    family("SSDPE2K", "Intel DC P45x0/P46x0"),
    family("SSDPF2K", "Intel/Solidigm D7-P5x10/P5x20"),
    family("MZ7LH", "Samsung PM883"),
    family("MZ7KH", "Samsung SM883"),
    family("MZ7L3", "Samsung PM893/PM897"),
    family("MZQL2", "Samsung PM9A3"),
    family("Micron_5200", "Micron 5200"),
    family("Micron_5300", "Micron 5300"),
    family("Micron_5400", "Micron 5400"),
    family("Micron_7300", "Micron 7300"),
    family("Micron_7400", "Micron 7400"),
    family("Micron_7450", "Micron 7450"),
    family("SEDC500", "Kingston DC500"),
    family("SEDC600", "Kingston DC600"),
];

const fn family(prefix: &'static str, name: &'static str) -> Family {
    Family { prefix, name }
}

/// Drivers of controllers that present RAID volumes instead of drives.
const RAID_DRIVERS: [&str; 5] = ["megaraid_sas", "aacraid", "smartpqi", "hpsa", "arcmsr"];

impl Protection {
    /// The evidence for and against protection.
    pub fn of(kernel: &KernelFacts, own: &OwnFacts) -> Self {
        let declared = declared(own);
        let positive = [non_volatile(own), family_of(kernel)];
        let verdict = match declared.is_some() {
            true => Verdict::Declared,
            false if positive.iter().any(Option::is_some) => Verdict::Hinted,
            false => Verdict::Unknown,
        };
        let others = [volatile(own), controller(kernel)];
        let hints = [declared].into_iter().chain(positive).chain(others);
        Self { verdict, hints: hints.flatten().collect() }
    }

    /// By the model name: a family that is sold with protection.
    pub fn family_of(kernel: &KernelFacts) -> Option<Hint> {
        family_of(kernel)
    }

    /// By the driver: a RAID controller is in the path.
    pub fn controller_of(kernel: &KernelFacts) -> Option<Hint> {
        controller(kernel)
    }
}

fn hint(says: impl Into<String>, evidence: &str) -> Option<Hint> {
    Some(Hint { says: says.into(), evidence: evidence.to_owned() })
}

fn declared(own: &OwnFacts) -> Option<Hint> {
    let (CacheState::Absent, source) = known(&own.write_cache)? else { return None };
    hint("no volatile write cache: protected, or absent", source)
}

fn non_volatile(own: &OwnFacts) -> Option<Hint> {
    let (true, source) = known(&own.non_volatile_cache)? else { return None };
    hint("the drive has a non-volatile cache", source)
}

fn volatile(own: &OwnFacts) -> Option<Hint> {
    let (true, source) = known(&own.volatile_cache)? else { return None };
    hint("the drive has a volatile cache, and requires flushes while it is on", source)
}

fn family_of(kernel: &KernelFacts) -> Option<Hint> {
    let (model, source) = known(&kernel.model)?;
    let mut words = model.split_whitespace();
    let family = words.find_map(|word| FAMILIES.iter().find(|it| word.starts_with(it.prefix)))?;
    let says = format!("{} is sold with power-loss protection (by its name only)", family.name);
    hint(says, source)
}

fn controller(kernel: &KernelFacts) -> Option<Hint> {
    let (driver, source) = known(&kernel.driver)?;
    let is_raid = RAID_DRIVERS.contains(&driver.as_str());
    let says = format!(
        "{driver} is a RAID controller's driver: these facts are of its volume; only its own tool \
        reports whether its cache has a battery, and the state of its drives"
    );
    is_raid.then(|| hint(says, source)).flatten()
}

fn known<T: Clone>(fact: &crate::Fact<T>) -> Option<(T, &str)> {
    match fact {
        crate::Fact::Known { value, source } => Some((value.clone(), source)),
        crate::Fact::Unknown { .. } => None,
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Declared => "declared by the drive",
            Self::Hinted => "hinted at, not declared",
            Self::Unknown => "unknown",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fact;
    use crate::facts::testing::{kernel, own};

    #[test]
    fn a_drive_that_declares_no_volatile_cache_is_believed_and_named_as_the_source() {
        let own = OwnFacts { write_cache: Fact::known(CacheState::Absent, "VWC"), ..own() };
        let protection = Protection::of(&kernel(), &own);
        assert_eq!(protection.verdict, Verdict::Declared);
        assert_eq!(protection.hints[0].evidence, "VWC");
    }

    #[test]
    fn a_model_name_is_a_hint_and_no_declaration() {
        let of = |model: &str| {
            let kernel = KernelFacts { model: Fact::known(model.into(), "model"), ..kernel() };
            Protection::of(&kernel, &own()).verdict
        };
        assert_eq!(of("INTEL SSDSC2KB960G8"), Verdict::Hinted);
        assert_eq!(of("Micron_7450_MTFDKBA960TFR"), Verdict::Hinted);
        assert_eq!(of("Samsung SSD 990 PRO 2TB"), Verdict::Unknown);
    }

    #[test]
    fn a_cache_that_is_off_says_nothing_of_protection() {
        let own = OwnFacts { write_cache: Fact::known(CacheState::Off, "WCE"), ..own() };
        let unknown = Protection { verdict: Verdict::Unknown, hints: Vec::new() };
        assert_eq!(Protection::of(&kernel(), &own), unknown);
    }

    #[test]
    fn a_volatile_cache_is_told_and_points_nowhere() {
        let own = OwnFacts { volatile_cache: Fact::known(true, "V_SUP"), ..own() };
        let protection = Protection::of(&kernel(), &own);
        assert_eq!((protection.verdict, protection.hints.len()), (Verdict::Unknown, 1));
    }

    #[test]
    fn behind_a_raid_controller_it_is_said_whose_word_that_is() {
        let driver = Fact::known("megaraid_sas".to_owned(), "proc_name");
        let protection = Protection::of(&KernelFacts { driver, ..kernel() }, &own());
        assert!(protection.hints[0].says.contains("its volume"));
    }
}
