//! A drive's own report of its caches.

use crate::ask::{self, AskError, nvme, scsi};
use crate::drive::{Drive, Protocol};
use crate::fact::Fact;
use crate::parse::caching::Caching;
use crate::parse::identify::Identify;
use crate::parse::vpd;
use crate::write_cache::{CacheState, Setting};
use serde::Serialize;
use std::fs::File;

/// As the drive reports it.
#[derive(Clone, Debug, Serialize)]
pub struct OwnFacts {
    pub write_cache: Fact<CacheState>,
    /// Whether reads may come from the drive's cache.
    pub read_cache: Fact<bool>,
    /// Whether it can save the write cache setting across power cycles.
    pub can_save: Fact<bool>,
    /// Whether it has a volatile cache.
    pub volatile_cache: Fact<bool>,
    /// Whether it has a non-volatile cache.
    pub non_volatile_cache: Fact<bool>,
}

const MODE_PAGE: &str = "caching mode page 08h";
const INQUIRY_PAGE: &str = "extended inquiry page 86h";

impl Drive {
    /// Queries the drive.
    pub fn own(&self) -> OwnFacts {
        match self.protocol {
            Protocol::Nvme => match ask::open(&self.path) {
                Ok(file) => of_nvme(nvme::identify(&file), || nvme::write_cache(&file)),
                Err(error) => nothing(&error.to_string()),
            },
            protocol if protocol.speaks_scsi() => match ask::open(&self.path) {
                Ok(file) => of_scsi(scsi::caching(&file), cache_kinds(&file)),
                Err(error) => nothing(&error.to_string()),
            },
            Protocol::Virtio => self.of_virtio(),
            _ => nothing(&AskError::NoWay.to_string()),
        }
    }

    fn of_virtio(&self) -> OwnFacts {
        let place = self.place("cache_type");
        let state = match self.node.attribute("cache_type").as_deref() {
            Some("write back") => Fact::known(CacheState::On, place),
            Some("write through") => Fact::known(CacheState::Off, place),
            _ => Fact::unknown(AskError::NotOffered { place }.to_string()),
        };
        let silent = "virtio does not report it";
        OwnFacts { write_cache: state, ..nothing(silent) }
    }
}

fn nothing(why: &str) -> OwnFacts {
    OwnFacts {
        write_cache: Fact::unknown(why),
        read_cache: Fact::unknown(why),
        can_save: Fact::unknown(why),
        volatile_cache: Fact::unknown(why),
        non_volatile_cache: Fact::unknown(why),
    }
}

fn of_nvme(
    identify: Result<Identify, AskError>,
    write_cache: impl FnOnce() -> Result<bool, AskError>,
) -> OwnFacts {
    let identify = match identify {
        Ok(identify) => identify,
        Err(error) => return nothing(&error.to_string()),
    };
    let vwc = "identify controller, VWC bit 0";
    let state = match identify.volatile_write_cache {
        false => Fact::known(CacheState::Absent, vwc),
        true => match write_cache() {
            Ok(on) => Fact::known(Setting::of(on).into(), "Get Features 06h"),
            Err(error) => Fact::unknown(error.to_string()),
        },
    };
    let silent = "NVMe does not report it";
    OwnFacts {
        write_cache: state,
        can_save: Fact::known(identify.can_save, "identify controller, ONCS bit 4"),
        volatile_cache: Fact::known(identify.volatile_write_cache, vwc),
        ..nothing(silent)
    }
}

fn of_scsi(
    caching: Result<Caching, AskError>,
    kinds: Result<vpd::CacheKinds, AskError>,
) -> OwnFacts {
    let (volatile_cache, non_volatile_cache) = match kinds {
        Ok(kinds) => (supports(kinds.volatile, "V_SUP"), supports(kinds.non_volatile, "NV_SUP")),
        Err(error) => {
            let why = format!("{INQUIRY_PAGE}: {error}");
            (Fact::unknown(why.as_str()), Fact::unknown(why.as_str()))
        }
    };
    let caching = match caching {
        Ok(caching) => caching,
        Err(error) => {
            return OwnFacts { volatile_cache, non_volatile_cache, ..nothing(&error.to_string()) };
        }
    };
    let state = Setting::of(caching.write_cache).into();
    OwnFacts {
        write_cache: Fact::known(state, format!("{MODE_PAGE}, WCE")),
        read_cache: Fact::known(!caching.read_cache_disabled, format!("{MODE_PAGE}, RCD")),
        can_save: Fact::known(caching.can_be_saved, format!("{MODE_PAGE}, PS")),
        volatile_cache,
        non_volatile_cache,
    }
}

/// A bit that is not set means that the drive may have such a cache or not.
fn supports(is: bool, bit: &str) -> Fact<bool> {
    match is {
        true => Fact::known(true, format!("{INQUIRY_PAGE}, {bit}")),
        false => Fact::unknown(format!("{INQUIRY_PAGE}, {bit} is 0: not reported")),
    }
}

fn cache_kinds(file: &File) -> Result<vpd::CacheKinds, AskError> {
    let page = scsi::product_data(file, 0x86)?;
    vpd::cache_kinds(&page).ok_or(AskError::Malformed { command: "INQUIRY" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> AskError {
        AskError::Malformed { command: "a command" }
    }

    #[test]
    fn a_controller_without_a_volatile_cache_is_not_asked_whether_it_is_on() {
        let identify = Identify { volatile_write_cache: false, can_save: true };
        let facts = of_nvme(Ok(identify), || unreachable!("there is nothing to ask"));
        assert_eq!(facts.write_cache.value(), Some(&CacheState::Absent));
        assert_eq!(facts.volatile_cache.value(), Some(&false));
    }

    #[test]
    fn the_feature_decides_where_there_is_a_cache_and_a_refusal_is_told() {
        let identify = || Ok(Identify { volatile_write_cache: true, can_save: false });
        let on = of_nvme(identify(), || Ok(true));
        assert_eq!(on.write_cache, Fact::known(CacheState::On, "Get Features 06h"));
        let unknown = of_nvme(identify(), || Err(refused()));
        let why = "the drive's reply to a command is malformed";
        assert_eq!(unknown.write_cache, Fact::unknown(why));
        assert_eq!(of_nvme(Err(refused()), || Ok(true)).can_save, Fact::unknown(why));
    }

    #[test]
    fn a_scsi_drive_without_the_inquiry_page_still_tells_its_cache() {
        let caching = Caching { write_cache: false, read_cache_disabled: true, can_be_saved: true };
        let facts = of_scsi(Ok(caching), Err(refused()));
        assert_eq!(facts.write_cache.value(), Some(&CacheState::Off));
        assert_eq!(facts.read_cache.value(), Some(&false));
        assert_eq!(facts.can_save.value(), Some(&true));
        assert_eq!(facts.volatile_cache.value(), None);
    }

    #[test]
    fn a_kind_of_cache_that_a_scsi_drive_does_not_declare_is_not_taken_for_absent() {
        let kinds = vpd::CacheKinds { volatile: true, non_volatile: false };
        let facts = of_scsi(Err(refused()), Ok(kinds));
        assert_eq!(facts.volatile_cache.value(), Some(&true));
        assert_eq!(facts.non_volatile_cache.value(), None);
    }
}
