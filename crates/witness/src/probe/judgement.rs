//! From times to explanations, each with its likelihood and the reasons.
//!
//! Every reason multiplies the odds of each explanation by how well it would account for what was
//! seen. The factors are estimates, not measurements of many devices; they are written down where
//! they are used, so that whoever doubts one can see what follows without it.
//!
//! Physics carries most of it. A block that is written over and over passes the head once in a
//! turn, so a disk that puts each write on its platter before it says so does at most as many a
//! second as it turns: 250 at 15,000 turns a minute, the fastest that were ever built. Flash takes
//! hundreds of microseconds to program, where a flush of a cache that need not be emptied takes a
//! command.

use super::measure::{Measured, Writes};
use super::reported::{self, Reported};
use serde::Serialize;

/// A turn of the fastest disk there was, in microseconds.
const TURN_US_MIN: f64 = 4000.0;
/// Of the turn that a disk reports, what counts as one: clocks and motors are not exact.
const TURN_SHARE: f64 = 0.9;
/// A random read that takes longer has moved a head.
const SEEK_US_MIN: f64 = 2500.0;
/// A flush that adds less than this to a write, in multiples of the write, or in microseconds, has
/// not waited for flash.
const FREE_FLUSH_RATIO: f64 = 3.0;
const FREE_FLUSH_US: f64 = 150.0;
/// Of the writes at depth 16 without flushes, what is left with one after each where a flush waits
/// for no medium, and at most where it does. Drives that are protected were seen to keep a quarter
/// with their cache on, and plain ones a twentieth (YourcmcWiki, 2018).
const FREE_AT_DEPTH: f64 = 0.7;
const WAITS_AT_DEPTH: f64 = 0.1;
/// More random blocks than a drive's own cache takes.
const DRIVE_BURST_BLOCKS_MAX: u64 = 16_000;
/// An explanation is named beside the most likely one from here on.
const NAMED_FROM: f64 = 0.1;

/// What a device may do with a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Explanation {
    /// It has a volatile cache and empties it.
    HonoursFlushes,
    /// It has no volatile cache.
    WritesThrough,
    /// Its own cache survives a power cut.
    ProtectedCache,
    /// It is behind a controller, or another layer, with a cache of its own.
    BehindACache,
    /// It answers and does nothing.
    IgnoresFlushes,
}

impl Explanation {
    pub const ALL: [Self; 5] = [
        Self::HonoursFlushes,
        Self::WritesThrough,
        Self::ProtectedCache,
        Self::BehindACache,
        Self::IgnoresFlushes,
    ];
}

/// One thing that was seen, and how it changes the odds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reason {
    pub seen: String,
    /// By which factor it speaks for each explanation, in the order of [`Explanation::ALL`].
    pub factors: [f64; 5],
}

/// What the times come to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The explanations that remain, the most likely first; several where timing cannot tell them
    /// apart; none where nothing can be said.
    pub named: Vec<Explanation>,
    /// All of them with their likelihoods.
    pub likelihoods: Vec<(Explanation, f64)>,
    pub reasons: Vec<Reason>,
}

/// Weighs what was reported and measured.
pub fn judge(reported: &Reported, measured: &Measured) -> Judgement {
    let mut reasons = reported::reasons(reported);
    let is_disk = has_a_head(measured);
    reasons.extend(read_reason(reported, measured));
    match &measured.writes {
        Some(writes) if is_disk => reasons.extend(disk_reasons(writes, turn_us(reported))),
        Some(writes) => reasons.extend(flash_reasons(writes)),
        None => {}
    }
    reasons.extend(measured.writes.as_ref().and_then(depth_reason));
    // Before anything is known: most drives honour flushes.
    let mut weights = [0.45, 0.1, 0.2, 0.1, 0.15];
    for reason in &reasons {
        weights.iter_mut().zip(reason.factors).for_each(|(weight, factor)| *weight *= factor);
    }
    let sum: f64 = weights.iter().sum();
    let mut likelihoods: Vec<(Explanation, f64)> =
        Explanation::ALL.into_iter().zip(weights.map(|weight| weight / sum)).collect();
    likelihoods.sort_by(|one, other| other.1.total_cmp(&one.1));
    let can_tell = measured.writes.is_some();
    let named = likelihoods.iter().filter(|(_, likelihood)| can_tell && *likelihood >= NAMED_FROM);
    let named = named.map(|(explanation, _)| *explanation).collect();
    Judgement { named, likelihoods, reasons }
}

/// How long a turn takes at least: as it says, or of the fastest disk there was.
fn turn_us(reported: &Reported) -> f64 {
    let said = reported.turns_per_minute.filter(|turns| *turns > 0);
    said.map_or(TURN_US_MIN, |turns| TURN_SHARE * 60e6 / f64::from(turns)).max(TURN_US_MIN)
}

pub(super) fn reason(seen: impl Into<String>, factors: [f64; 5]) -> Reason {
    Reason { seen: seen.into(), factors }
}

/// Virtual disks are called rotational whatever they are made of: what reads show counts.
fn has_a_head(measured: &Measured) -> bool {
    measured.reads.random.median_us > SEEK_US_MIN
}

fn read_reason(reported: &Reported, measured: &Measured) -> Option<Reason> {
    let (ms, all_alike) = (measured.reads.random.median_us / 1000.0, [1.0; 5]);
    if has_a_head(measured) {
        let seen = format!("random reads take {ms:.1} ms: there are heads that move");
        return Some(reason(seen, all_alike));
    }
    (reported.rotational == Some(true)).then(|| {
        let seen = format!(
            "it is called rotational, and random reads take {ms:.2} ms: no head moves, so it is flash \
             or memory, or lies behind some"
        );
        reason(seen, [1.0, 1.0, 1.0, 2.0, 1.0])
    })
}

fn disk_reasons(writes: &Writes, turn_us: f64) -> Vec<Reason> {
    let synced = writes.same_synced;
    let (ms, rate) = (synced.median_us / 1000.0, synced.per_second);
    let mut reasons = Vec::new();
    if synced.median_us >= turn_us {
        reasons.push(reason(
            format!(
                "the same block with a flush after each write takes {ms:.1} ms ({rate:.0} a second): \
                 as long as a turn, so the platter is waited for"
            ),
            [1.0, 1.0, 0.02, 0.02, 0.01],
        ));
        reasons.push(match writes.same_unsynced.median_us < synced.median_us / 4.0 {
            true => reason(
                "without flushes the same block is written much faster: a cache is there, and a \
                 flush empties it",
                [1.0, 0.02, 1.0, 1.0, 1.0],
            ),
            false => reason(
                "without flushes it is not faster: no cache takes writes",
                [0.1, 1.0, 1.0, 1.0, 1.0],
            ),
        });
        return reasons;
    }
    reasons.push(reason(
        format!(
            "the same block with a flush after each write takes {ms:.2} ms ({rate:.0} a second): it \
             does not turn so fast, so a flush is answered before the platter has it"
        ),
        [0.005, 0.005, 0.3, 1.0, 1.0],
    ));
    let burst = writes.burst_blocks;
    reasons.push(match writes.burst_is_bounded {
        true if burst < DRIVE_BURST_BLOCKS_MAX => reason(
            format!(
                "after {burst} random blocks it falls to the speed of heads: a cache of a drive's own \
                 size"
            ),
            [1.0, 1.0, 1.0, 0.05, 1.0],
        ),
        _ if burst >= DRIVE_BURST_BLOCKS_MAX => reason(
            format!("it takes {burst} random blocks at once: more than a drive's own cache holds"),
            [0.1, 0.1, 0.1, 1.0, 0.1],
        ),
        _ => reason("how much it takes at once was not found out", [1.0; 5]),
    });
    reasons
}

fn flash_reasons(writes: &Writes) -> Vec<Reason> {
    let (write_us, both_us) = (writes.same_unsynced.median_us, writes.same_synced.median_us);
    let flush_us = writes.flush.median_us;
    let ratio = both_us / write_us.max(1e-9);
    let mut reasons = Vec::new();
    if ratio < FREE_FLUSH_RATIO && flush_us < FREE_FLUSH_US.max(write_us * 2.0) {
        reasons.push(reason(
            format!(
                "a write takes {write_us:.0} us, with a flush {both_us:.0} us: a flush costs a command \
                 and waits for no flash. A protected cache and a flush that is ignored look alike"
            ),
            [0.02, 0.2, 1.0, 0.3, 1.0],
        ));
    } else {
        reasons.push(reason(
            format!(
                "a write takes {write_us:.0} us, with a flush {both_us:.0} us ({ratio:.1} times as \
                 long): a flush waits for something"
            ),
            [1.0, 0.05, 0.03, 0.05, 0.02],
        ));
    }
    let burst_us = writes.burst_flush_us;
    reasons.push(match burst_us > 4.0 * flush_us.max(FREE_FLUSH_US) {
        true => reason(
            format!("after a burst a flush takes {:.1} ms: it has more to do then", burst_us / 1e3),
            [1.0, 0.2, 0.2, 0.2, 0.1],
        ),
        false => reason(
            format!("after a burst a flush takes {burst_us:.0} us, no longer than otherwise"),
            [0.6, 1.0, 1.0, 1.0, 1.0],
        ),
    });
    reasons
}

/// Blocks everywhere, 16 at a time: what a flush after each leaves of the rate without. It repeats
/// in part what one block at a time has shown, and so it weighs less.
fn depth_reason(writes: &Writes) -> Option<Reason> {
    let (with, without) = (writes.spread_synced.per_second, writes.spread_unsynced.per_second);
    let left = (without > 0.0).then_some(with / without)?;
    let seen = format!(
        "16 at a time, {without:.0} random writes a second without flushes and {with:.0} with one \
         after each ({:.0} % are left): ",
        left.min(1.0) * 100.0
    );
    Some(match left {
        left if left >= FREE_AT_DEPTH => {
            reason(seen + "a flush has nothing to do", [0.3, 1.0, 1.0, 0.8, 1.0])
        }
        left if left <= WAITS_AT_DEPTH => {
            reason(seen + "each waits for the medium", [1.0, 0.3, 0.2, 0.2, 0.15])
        }
        _ => reason(seen + "a flush costs something, and not the whole medium", [1.0; 5]),
    })
}
