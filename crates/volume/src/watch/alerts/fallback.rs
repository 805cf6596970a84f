//! The condition of a cache device with too many errors.

use super::{Alert, AlertKind, CacheRole, Risk};
use crate::description::settings::CacheSettings;
use crate::watch::status::CacheStatus;
use headpond_cache::FallbackConfig;

pub(super) fn in_fallback(
    place: CacheRole<'_>,
    cache: &CacheStatus,
    settings: &CacheSettings,
) -> Option<Alert> {
    let FallbackConfig { errors, window_s } = settings.fallback;
    let action = || {
        let mode = place.set("mode", settings.mode.name());
        format!("{}, or use it again: {mode}", place.replace())
    };
    (cache.in_fallback && !cache.failed).then(|| Alert {
        kind: AlertKind::CacheFallback,
        cause: format!(
            "{} had {errors} errors within {window_s} s: requests bypass it",
            cache.device
        ),
        at_risk: Risk::of_dirty(cache),
        action: action(),
    })
}
