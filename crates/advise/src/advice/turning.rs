//! What would change the answer: the same work with another cache size, depth or share of reads.

use crate::search::{
    Candidate, DIRTY_MODES, GAIN_MIN, Gain, Judge, JudgeError, Quest, Question, SearchResult, Twist,
};
use crate::signature::Signature;
use crate::situation::Situation;
use serde::Serialize;

/// What the gain depends on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Turning {
    /// `cache size`, `depth` or `share of reads`.
    pub of: &'static str,
    pub points: Vec<Point>,
    /// Where the answer is another one, in words.
    pub says: String,
}

/// The gain of a cache at one value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Bytes, requests in flight, or a share.
    pub at: f64,
    pub gain: Gain,
}

/// Beside the cache that there is, parts of what the trace touches.
const FOOTPRINT_PARTS: [f64; 4] = [1.0 / 64.0, 1.0 / 16.0, 0.25, 1.0];
const CACHE_BYTES_MIN: f64 = (64 << 20) as f64;
const DEPTHS: [u32; 5] = [1, 4, 16, 64, 256];
const READ_SHARES: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// Of the requests of a replay.
const PART: usize = 4;
const REQUESTS_MIN: usize = 1000;

/// Asks the judge.
///
/// # Errors
/// Where it cannot answer.
pub(super) fn points(
    signature: &Signature,
    situation: &Situation,
    found: &SearchResult,
    quest: &Quest,
    judge: &mut dyn Judge,
) -> Result<Vec<Turning>, JudgeError> {
    let candidate = found.best_with_cache().candidate.clone();
    let cache_bytes = situation.stack.cache.as_ref().map_or(0, |cache| cache.size.bytes());
    let requests = (quest.requests / PART).max(REQUESTS_MIN).min(quest.requests);
    let mut gains = |twists: &[Twist]| -> Result<Vec<Gain>, JudgeError> {
        let ask = |candidate: &Candidate, twist: Twist| Question {
            candidate: candidate.clone(),
            requests,
            twist,
        };
        let without = Candidate::without_cache();
        let pairs = twists.iter().flat_map(|&twist| [ask(&without, twist), ask(&candidate, twist)]);
        let trials = judge.judge(&pairs.collect::<Vec<_>>())?;
        let gain = |pair: &[_]| -> Gain {
            let [without, with]: &[crate::search::Trial; 2] = pair.try_into().expect("two of each");
            with.gain_over(without, quest.goal)
        };
        Ok(trials.chunks(2).map(gain).collect())
    };
    let mut all = Vec::new();
    let at = cache_sizes(cache_bytes, signature.volume.footprint_bytes);
    let times: Vec<Twist> =
        at.iter().map(|bytes| Twist::CacheTimes(bytes / cache_bytes as f64)).collect();
    let sizes = gains(&times)?;
    all.push(turning("cache size", &at, sizes, |bytes| headpond_report::size(bytes as u64)));
    if !quest.goal.is_about_responses() {
        let depths = gains(&DEPTHS.map(Twist::Depth))?;
        let at = DEPTHS.map(f64::from);
        all.push(turning("depth", &at, depths, |depth| format!("depth {depth:.0}")));
    }
    if signature.volume.written_bytes > 0 || DIRTY_MODES.contains(&candidate.mode()) {
        let shares = gains(&READ_SHARES.map(Twist::ReadShare))?;
        let words = |share: f64| format!("{:.0} % reads", share * 100.0);
        all.push(turning("share of reads", &READ_SHARES, shares, words));
    }
    Ok(all)
}

fn cache_sizes(cache_bytes: u64, footprint_bytes: u64) -> Vec<f64> {
    let parts = FOOTPRINT_PARTS.map(|part| footprint_bytes as f64 * part);
    let mut sizes: Vec<f64> = parts.into_iter().filter(|size| *size >= CACHE_BYTES_MIN).collect();
    sizes.push(cache_bytes as f64);
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    sizes
}

fn turning(
    of: &'static str,
    at: &[f64],
    gains: Vec<Gain>,
    words: impl Fn(f64) -> String,
) -> Turning {
    let points: Vec<Point> = at.iter().zip(gains).map(|(&at, gain)| Point { at, gain }).collect();
    let pays = |point: &Point| point.gain.factor >= GAIN_MIN;
    let turns = points.windows(2).filter(|pair| pays(&pair[0]) != pays(&pair[1]));
    let turns: Vec<String> = turns
        .map(|pair| {
            let verb = if pays(&pair[1]) { "begins to pay" } else { "no longer pays" };
            format!("it {verb} between {} and {}", words(pair[0].at), words(pair[1].at))
        })
        .collect();
    let says = match (turns.is_empty(), points.first().is_some_and(pays)) {
        (false, _) => turns.join("; "),
        (true, true) => "a cache pays at all of them".to_owned(),
        (true, false) => "a cache pays at none of them".to_owned(),
    };
    Turning { of, points, says }
}
