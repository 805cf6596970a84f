//! Why each setting, in figures.

use super::candidates::{Candidate, GAIN_MIN, best};
use super::loads::WeightedLoad;
use super::{Reasoned, Situation, StreamAdvice};
use crate::facts::{CacheFacts, CoreFacts};
use crate::model::writes_fit;
use crate::render::{factor, rate, size};
use crate::settings::{CacheMode, Cleaning, SeqCutoff};

/// Why this mode: what it gains over all streams, where most, and what the others would give.
pub(super) fn of_mode(
    all: &[Candidate],
    chosen: &Candidate,
    streams: &[StreamAdvice],
    cache: &CacheFacts,
    allowed: impl Fn(CacheMode) -> bool,
) -> Reasoned<CacheMode> {
    let reason = match chosen.mode {
        CacheMode::PassThrough => why_not(all, streams, &allowed),
        mode => {
            let next = best(all, |other| other != mode && allowed(other));
            format!(
                "{} in a burst and {} sustained over all streams ({} would give {} and {}); {}",
                factor(chosen.burst_gain()),
                factor(chosen.sustained_gain()),
                next.mode,
                factor(next.burst_gain()),
                factor(next.sustained_gain()),
                largest_gain(streams),
            )
        }
    };
    let forced = cache.lost_on_power && chosen.mode == CacheMode::WriteBack;
    let note = if forced { "; the cache loses its contents with the power: forced" } else { "" };
    Reasoned { value: chosen.mode, reason: format!("{reason}{note}") }
}

fn why_not(
    all: &[Candidate],
    streams: &[StreamAdvice],
    allowed: &impl Fn(CacheMode) -> bool,
) -> String {
    if streams.is_empty() {
        return "the trace holds no requests to judge by".to_owned();
    }
    let cached = |mode| mode != CacheMode::PassThrough && allowed(mode);
    let tried = all.iter().filter(|candidate| cached(candidate.mode));
    let Some(tried) = tried.max_by(|one, other| one.score().total_cmp(&other.score())) else {
        return "no caching mode is allowed on this cache".to_owned();
    };
    format!(
        "do not cache: the best caching mode, {}, would give {} in a burst and {} sustained over \
         all streams, less than the {} that are worth a cache",
        tried.mode,
        factor(tried.burst_gain()),
        factor(tried.sustained_gain()),
        factor(GAIN_MIN),
    )
}

fn largest_gain(streams: &[StreamAdvice]) -> String {
    let cached = streams.iter().filter(|stream| !stream.past_the_cache);
    let by_gain = |one: &&StreamAdvice, other: &&StreamAdvice| {
        one.rates.sustained_gain().total_cmp(&other.rates.sustained_gain())
    };
    let Some(stream) = cached.max_by(by_gain) else {
        return "every stream goes past the cache".to_owned();
    };
    let rates = &stream.rates;
    format!(
        "most for stream {} ({}): {} without, {} in a burst, {} sustained ({})",
        stream.number,
        stream.description,
        rate(rates.without_cache),
        rate(rates.burst),
        rate(rates.sustained),
        factor(rates.sustained_gain()),
    )
}

/// Why this cleaning: what the other would sustain.
pub(super) fn of_cleaning(
    all: &[Candidate],
    chosen: &Candidate,
    loads: &[WeightedLoad],
    cache: &CacheFacts,
) -> Reasoned<Cleaning> {
    Reasoned { value: chosen.cleaning, reason: cleaning_words(all, chosen, loads, cache) }
}

fn cleaning_words(
    all: &[Candidate],
    chosen: &Candidate,
    loads: &[WeightedLoad],
    cache: &CacheFacts,
) -> String {
    if chosen.mode != CacheMode::WriteBack {
        return format!("{} leaves nothing dirty; what still is, is cleaned", chosen.mode);
    }
    let cached = loads.iter().zip(&chosen.streams).filter(|(_, rates)| !rates.past_the_cache);
    if cached.map(|(weighted, _)| &weighted.load).all(|load| writes_fit(load, cache)) {
        return "what is written stays within the cache, so cleaning never has to keep pace; it \
                keeps little dirty"
            .to_owned();
    }
    let other = all.iter().find(|candidate| {
        (candidate.mode, candidate.cutoff) == (chosen.mode, chosen.cutoff)
            && candidate.cleaning != chosen.cleaning
    });
    let other_words = other.map_or(String::new(), |other| {
        format!(", {} with {}", factor(other.sustained_gain()), other.cleaning)
    });
    format!(
        "with the cache full of dirty data {} sustained{other_words}: whole stripes in address \
         order cost the disks less than each write by itself",
        factor(chosen.sustained_gain()),
    )
}

/// Why this cutoff: what the streams that it concerns get on either side of the cache.
pub(super) fn of_cutoff(
    all: &[Candidate],
    chosen: &Candidate,
    streams: &[StreamAdvice],
) -> Reasoned<SeqCutoff> {
    let twin = all.iter().find(|candidate| {
        (candidate.mode, candidate.cleaning) == (chosen.mode, chosen.cleaning)
            && match chosen.cutoff {
                SeqCutoff::Never => candidate.cutoff != SeqCutoff::Never,
                SeqCutoff::Bytes(_) => candidate.cutoff == SeqCutoff::Never,
            }
    });
    let reason = match (chosen.mode, twin) {
        (CacheMode::PassThrough, _) => "nothing is cached that could be kept out".to_owned(),
        (_, None) => "no long sequential run that a cutoff would concern".to_owned(),
        (_, Some(twin)) => compare_cutoffs(chosen, twin, streams),
    };
    Reasoned { value: chosen.cutoff, reason }
}

fn compare_cutoffs(chosen: &Candidate, twin: &Candidate, streams: &[StreamAdvice]) -> String {
    let pairs = streams.iter().zip(chosen.streams.iter().zip(&twin.streams));
    let concerned = pairs.filter(|(_, (one, other))| one.past_the_cache != other.past_the_cache);
    let words: Vec<String> = concerned
        .map(|(stream, (one, other))| {
            let (past, through) = if one.past_the_cache { (one, other) } else { (other, one) };
            format!(
                "stream {} ({}): {} past the cache, {} sustained through it",
                stream.number,
                stream.description,
                rate(past.sustained),
                rate(through.sustained),
            )
        })
        .collect();
    words.join("; ")
}

/// What the figures hold for.
pub(super) fn assumptions(
    situation: &Situation,
    core: &CoreFacts,
    cache: &CacheFacts,
) -> Vec<String> {
    let origin = |given: bool| if given { "as given" } else { "assumed, as nothing was given" };
    vec![
        format!("core, {}: {}", origin(situation.core.is_some()), core_words(core)),
        format!("cache, {}: {}", origin(situation.cache.is_some()), cache_words(cache)),
        "streams are predicted one by one, each alone on the devices".to_owned(),
    ]
}

fn core_words(core: &CoreFacts) -> String {
    let member = &core.member;
    let drive = if member.rotational { "disk" } else { "flash drive" };
    let write_cache = if member.write_cache { "on" } else { "off" };
    let layout = format!(
        "{} of {} ({} x {}+{}, strip {})",
        core.level,
        core.members(),
        core.groups,
        core.data_members,
        core.redundant_members,
        size(core.strip_bytes),
    );
    format!(
        "{layout}; each {drive} {:.0} random operations/s one at a time, {:.0} MB/s sequential, \
         write cache {write_cache}; small sequential writes are {}gathered into stripes",
        member.random_iops,
        member.seq_mb_s,
        if core.merges_sequential { "" } else { "not " },
    )
}

fn cache_words(cache: &CacheFacts) -> String {
    format!(
        "{} of {}, {:.0} us a write, {:.0} us a read, {:.0}/{:.0} MB/s written/read, {}, {}",
        cache.class,
        size(cache.size_bytes),
        cache.write_us,
        cache.read_us,
        cache.write_mb_s,
        cache.read_mb_s,
        if cache.lost_on_power { "lost on power failure" } else { "keeps its contents" },
        if cache.mirrored { "mirrored" } else { "not mirrored" },
    )
}
