//! What nobody may set on a running volume without leave.

use crate::search::{DIRTY_MODES, Setting};
use headpond_volume::CacheSettings;
use serde::Serialize;
use std::fmt;

/// A change after which more could be lost than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Weakening {
    pub setting: Setting,
    /// What could be lost.
    pub loses: &'static str,
}

/// The first of the settings that weakens what is promised now.
pub fn weakens(now: &CacheSettings, then: &[Setting]) -> Option<Weakening> {
    let shown = now.shown();
    let value = |key: &str| {
        shown.iter().find(|setting| setting.key == key).map_or("", |setting| &setting.value)
    };
    let is_dirty_now = DIRTY_MODES.contains(&value("mode"));
    let loses = |setting: &Setting| match setting.key {
        "mode" if !is_dirty_now && DIRTY_MODES.contains(&&*setting.value) => {
            Some("what was written last is in the cache alone, and is lost with its device")
        }
        "cleaning" | "preset" if value("cleaning") == "ordered" && setting.value != "ordered" => {
            Some("the array by itself is no longer a state that there once was")
        }
        _ => None,
    };
    then.iter()
        .find_map(|setting| Some(Weakening { loses: loses(setting)?, setting: setting.clone() }))
}

impl fmt::Display for Weakening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} weakens what is promised: {}", self.setting, self.loses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(changes: &[&str]) -> CacheSettings {
        let changes: Vec<_> = changes.iter().map(|change| change.parse().unwrap()).collect();
        CacheSettings::default().with_all(&changes).unwrap()
    }

    fn setting(key: &'static str, value: &str) -> Setting {
        Setting { key, value: value.into() }
    }

    #[test]
    fn a_mode_with_dirty_data_needs_leave_where_there_is_none() {
        let to = |mode| weakens(&set(&["mode=write-through"]), &[setting("mode", mode)]).is_some();
        assert!(to("write-back") && to("write-only"));
        assert!(!to("write-around") && !to("write-invalidate") && !to("pass-through"));
        let from = |mode: &str| {
            let now = set(&[&format!("mode={mode}")]);
            weakens(&now, &[setting("mode", "write-back")]).is_some()
        };
        assert!(from("pass-through") && from("write-around") && from("write-invalidate"));
        assert!(!from("write-only") && !from("write-back"));
    }

    #[test]
    fn order_is_not_given_up_without_leave() {
        let ordered = set(&["mode=write-back", "cleaning=ordered"]);
        let change = [setting("seq-cutoff", "1M"), setting("cleaning", "stripe")];
        let weakening = weakens(&ordered, &change).unwrap();
        assert_eq!(weakening.setting, change[1]);
        assert!(weakens(&ordered, &[setting("preset", "alru-very-aggressive")]).is_some());
        assert_eq!(weakens(&ordered, &[setting("seq-cutoff", "1M")]), None);
        assert_eq!(weakens(&set(&["mode=write-back", "cleaning=acp"]), &change), None);
    }
}
