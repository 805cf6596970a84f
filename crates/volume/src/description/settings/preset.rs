//! Sets of values of several settings that have a name: `preset=NAME` sets all of them.

use super::known::{SettingGroup, ShownSetting};
use super::texts::text_of;
use super::{CacheSettings, SettingChange, SettingError, TierSettings};
use crate::ClassSetting;
use headpond_cache::CleaningPreset;

pub(super) const KEY: &str = "preset";
const NONE: &str = "none";

impl CacheSettings {
    /// The settings with what a preset sets; the rest stays as it was. `none` is the cleaner as it
    /// comes, without the classes of a preset.
    ///
    /// # Errors
    /// Where there is no preset of that name.
    pub(super) fn with_preset(&self, change: &SettingChange) -> Result<Self, SettingError> {
        let Some(preset) = named_by(change)? else {
            let (cleaning, none) = (Self::default().cleaning, ClassSetting::None);
            let mut of_presets = CleaningPreset::ALL.into_iter().filter_map(classes_of);
            let is_of_one = of_presets.any(|classes| classes == self.classes);
            let classes = if is_of_one { none } else { self.classes.clone() };
            return Ok(Self { cleaning, classes, ..self.clone() });
        };
        let cleaning = preset.apply(self.cleaning);
        let classes = classes_of(preset).unwrap_or_else(|| self.classes.clone());
        Ok(Self { cleaning, classes, ..self.clone() })
    }

    /// The preset whose values are set, where there is one, as it is shown.
    pub(super) fn shown_preset(&self) -> ShownSetting {
        shown("", |preset| {
            preset.apply(self.cleaning) == self.cleaning
                && classes_of(preset).is_none_or(|classes| classes == self.classes)
        })
    }
}

/// Classes are set on the cache for both.
impl TierSettings {
    /// As those of a cache.
    ///
    /// # Errors
    /// Where there is no preset of that name.
    pub(super) fn with_preset(&self, change: &SettingChange) -> Result<Self, SettingError> {
        let cleaning = match named_by(change)? {
            Some(preset) => preset.apply(self.cleaning),
            None => Self::default().cleaning,
        };
        Ok(Self { cleaning, ..self.clone() })
    }

    pub(super) fn shown_preset(&self) -> ShownSetting {
        shown("tier.", |preset| preset.apply(self.cleaning) == self.cleaning)
    }
}

/// Which one is asked for, where it is any.
fn named_by(change: &SettingChange) -> Result<Option<CleaningPreset>, SettingError> {
    if change.value == NONE {
        return Ok(None);
    }
    let found = change.value.parse().map_err(|_| change.refusal(format!("it is {}", takes())))?;
    Ok(Some(found))
}

fn shown(prefix: &str, is_set: impl Fn(CleaningPreset) -> bool) -> ShownSetting {
    let found = CleaningPreset::ALL.into_iter().find(|preset| is_set(*preset));
    let (what, more) = text_of(KEY);
    ShownSetting {
        key: format!("{prefix}{KEY}"),
        group: if prefix.is_empty() { SettingGroup::Cache } else { SettingGroup::Tier },
        value: found.map_or(NONE, CleaningPreset::name).into(),
        default: NONE.into(),
        takes: takes(),
        what,
        more,
    }
}

fn takes() -> String {
    let names = CleaningPreset::ALL.map(CleaningPreset::name).into_iter();
    names.chain([NONE]).collect::<Vec<_>>().join(", ")
}

/// Those that a preset sets as well.
fn classes_of(preset: CleaningPreset) -> Option<ClassSetting> {
    match preset {
        CleaningPreset::Lustre => Some(ClassSetting::Lustre),
        CleaningPreset::AcpVeryAggressive | CleaningPreset::AlruVeryAggressive => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_cache::CleaningPolicy;

    fn set(texts: &[&str]) -> CacheSettings {
        let changes: Vec<SettingChange> = texts.iter().map(|text| text.parse().unwrap()).collect();
        CacheSettings::default().with_all(&changes).unwrap()
    }

    #[test]
    fn lustre_sets_the_cleaner_and_the_classes_and_is_shown_until_one_of_them_changes() {
        let shown = |texts: &[&str]| set(texts).shown_preset().value;
        let settings = set(&["preset=lustre"]);
        let alru = settings.cleaning.alru;
        assert_eq!((settings.cleaning.policy, alru.flush_max_buffers), (CleaningPolicy::Alru, 256));
        assert_eq!((alru.wake_up_s, alru.staleness_s, alru.activity_threshold_ms), (2, 5, 500));
        assert_eq!(settings.classes, ClassSetting::Lustre);
        assert_eq!(shown(&["preset=lustre"]), "lustre");
        assert_eq!(shown(&["preset=lustre", "mode=write-through"]), "lustre");
        for change in ["classes=none", "cleaning.alru.wake-up-s=3", "cleaning=acp"] {
            assert_eq!(shown(&["preset=lustre", change]), "none", "{change}");
        }
        assert_eq!(shown(&[]), "none");
        assert_eq!(shown(&["preset=acp-very-aggressive"]), "acp-very-aggressive");
        assert_eq!(set(&["preset=acp-very-aggressive"]).classes, ClassSetting::None);
        let back = set(&["preset=lustre", "mode=write-through", "preset=none"]);
        assert_eq!(back, set(&["mode=write-through"]));
        let kept = set(&["classes=past:io_direction:eq:read", "preset=none"]);
        assert_ne!(kept.classes, ClassSetting::None);
    }

    #[test]
    fn a_tier_takes_the_cleaner_of_a_preset_and_shows_it() {
        let with = |text: &str| {
            let change: SettingChange = text.parse().unwrap();
            TierSettings::default().with_all(&[change.of_tier().expect("a tier's")])
        };
        let shown = |settings: &TierSettings| {
            let all = settings.shown();
            all.into_iter().find(|it| it.key == "tier.preset").expect("shown").value
        };
        assert_eq!(shown(&TierSettings::default()), "none");
        for preset in CleaningPreset::ALL {
            let settings = with(&format!("tier.preset={}", preset.name())).unwrap();
            assert_eq!(settings.cleaning, preset.apply(TierSettings::default().cleaning));
            assert_eq!(shown(&settings), preset.name());
        }
        let error = with("tier.preset=fast").unwrap_err().to_string();
        assert!(error.contains("it is acp-very-aggressive"), "{error}");
    }

    #[test]
    fn a_wrong_name_says_which_there_are() {
        let change: SettingChange = "preset=fast".parse().unwrap();
        let error = CacheSettings::default().with_all(&[change]).unwrap_err().to_string();
        assert!(
            error.contains("it is acp-very-aggressive, alru-very-aggressive, lustre"),
            "{error}"
        );
    }
}
