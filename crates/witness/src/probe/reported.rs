//! What is said of a device before anything is measured, and how that changes the odds.
//!
//! A device's word is not much: what lies about flushes may lie about the rest. So no word of its
//! own outweighs what the times show, but it tells apart what the times do not.

use super::judgement::{Reason, reason};
use serde::Serialize;

/// What the kernel and the device itself say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reported {
    pub rotational: Option<bool>,
    pub turns_per_minute: Option<u32>,
    /// Whether the kernel believes that there is a volatile cache, and so sends flushes.
    pub write_cache: Option<bool>,
    pub fua: Option<bool>,
    pub model: Option<String>,
    /// The volatile write cache by the device's own word.
    pub own_cache: Option<OwnCache>,
    /// Whether it says that it has a cache that does not forget.
    pub non_volatile_cache: Option<bool>,
    /// Hints at protection, or at a controller, in words.
    pub is_sold_as_protected: Option<String>,
    pub controller: Option<String>,
    /// Why its contents are lost without power in any case.
    pub volatile: Option<String>,
}

/// A volatile write cache, as a device describes its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OwnCache {
    Absent,
    Off,
    On,
}

pub(super) fn reasons(reported: &Reported) -> Vec<Reason> {
    let all = [kernel(reported), fua(reported), own(reported), non_volatile(reported)];
    all.into_iter().chain([protected(reported), controller(reported)]).flatten().collect()
}

fn kernel(reported: &Reported) -> Option<Reason> {
    Some(match reported.write_cache? {
        true => reason(
            "the kernel is told of a volatile write cache, and sends flushes",
            [1.0, 0.1, 0.8, 0.6, 1.0],
        ),
        // The kernel then sends none, so nothing that is measured is a flush of the device's.
        false => reason(
            "the kernel is told of no volatile write cache, and sends no flushes: timing then says \
             nothing of how one would be answered",
            [0.1, 1.0, 1.0, 1.0, 0.3],
        ),
    })
}

fn fua(reported: &Reported) -> Option<Reason> {
    reported.fua?.then(|| {
        reason(
            "it takes writes that are stable by themselves (FUA): whoever built that has thought of \
             its cache",
            [1.0, 1.0, 1.0, 1.0, 0.7],
        )
    })
}

fn own(reported: &Reported) -> Option<Reason> {
    Some(match (reported.own_cache?, reported.write_cache) {
        (OwnCache::Absent, _) => {
            reason("the drive itself says that it has no volatile cache", [0.2, 1.0, 1.0, 0.7, 0.4])
        }
        (OwnCache::Off, _) => {
            reason("the drive itself says that its cache is off", [0.2, 1.0, 0.7, 0.8, 0.4])
        }
        (OwnCache::On, Some(false)) => reason(
            "the drive itself says that its cache is on, and the kernel sends no flushes: what is \
             measured without them may be lost with the power",
            [0.5, 0.1, 0.8, 1.0, 1.0],
        ),
        (OwnCache::On, _) => {
            reason("the drive itself says that its cache is on", [1.0, 0.1, 0.9, 0.9, 1.0])
        }
    })
}

fn non_volatile(reported: &Reported) -> Option<Reason> {
    reported.non_volatile_cache?.then(|| {
        reason(
            "the drive itself says that it has a cache that keeps its contents without power",
            [0.5, 0.5, 1.0, 0.7, 0.4],
        )
    })
}

fn protected(reported: &Reported) -> Option<Reason> {
    let name = reported.is_sold_as_protected.as_ref()?;
    Some(reason(name.clone(), [0.4, 0.5, 1.0, 0.6, 0.2]))
}

fn controller(reported: &Reported) -> Option<Reason> {
    let words = reported.controller.as_ref()?;
    Some(reason(words.clone(), [0.5, 0.5, 0.6, 1.0, 0.6]))
}
