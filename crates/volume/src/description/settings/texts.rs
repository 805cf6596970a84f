//! What each setting does, in words: a line for the list of all, and more for one alone.

/// The line has at most this many letters.
#[cfg(test)]
const LINE_MAX: usize = 80;

/// Key, line, and what else is to be known, where the line does not say it all.
const TEXTS: &[(&str, &str, &str)] = &[
    (
        "mode",
        "how requests use the cache, and when a write is acknowledged",
        "write-back: writes are acknowledged by the cache and cleaned to the array later. \
         write-through: by cache and array. write-around: writes go to the array, cached blocks are \
         updated. write-invalidate: the same, cached blocks are dropped. write-only: as write-back, \
         and reads insert nothing. pass-through: the cache serves its dirty data and takes nothing \
         new. The mode changes at once; earlier dirty data is cleaned in the background.",
    ),
    (
        "preset",
        "a named set of values of the cleaner, and of the classes",
        "It sets the cleaning policy with all of its parameters; lustre sets the I/O classes of that \
         name too. none restores the default cleaner, and removes the classes of a preset.",
    ),
    (
        "cleaning",
        "when dirty data is written to the array, and in which order",
        "stripe: in address order, at a rate that holds the dirty ratio. ordered: by flushes, oldest \
         first, so that the array is always a consistent earlier state. alru: the data written \
         longest ago, in rounds. acp: the region with the most dirty data, in rounds. nop: nothing, \
         while the mode makes dirty data.",
    ),
    ("cleaning.in-flight-max", "most writes of the cleaner to the array at a time", ""),
    ("cleaning.write-bytes-max", "longest write of the cleaner where there are no stripes", ""),
    (
        "cleaning.core-flush-interval-ms",
        "interval of array flushes that make cleaned data clean, while it is waited for",
        "At least eight times the duration of the last flush where nothing waits for it.",
    ),
    (
        "cleaning.full-wait-ms",
        "how long a write waits for space before it bypasses a full cache",
        "Of a cache that is full of dirty data, or whose log waits for the array.",
    ),
    (
        "cleaning.stripe.low-percent",
        "below this dirty ratio nothing is cleaned under client load",
        "In per cent of the dirty limit. The three ratios must rise.",
    ),
    (
        "cleaning.stripe.target-percent",
        "the dirty ratio that the rate of cleaning aims at",
        "In per cent of the dirty limit. The three ratios must rise.",
    ),
    (
        "cleaning.stripe.high-percent",
        "from this dirty ratio on cleaning goes at full speed",
        "In per cent of the dirty limit. The three ratios must rise.",
    ),
    (
        "cleaning.stripe.idle-after-ms",
        "time without requests after which everything is cleaned",
        "",
    ),
    ("cleaning.alru.wake-up-s", "pause after a round that found nothing stale", ""),
    ("cleaning.alru.staleness-s", "time since its last write after which data is cleaned", ""),
    ("cleaning.alru.flush-max-buffers", "most blocks of one round", ""),
    (
        "cleaning.alru.activity-threshold-ms",
        "time without requests after which a round may begin",
        "",
    ),
    (
        "cleaning.alru.dirty-ratio-threshold-percent",
        "from this dirty ratio on it cleans regardless of age and load; 100: never",
        "",
    ),
    (
        "cleaning.alru.dirty-ratio-inertia-mib",
        "how far below that ratio it stops again, in MiB",
        "",
    ),
    ("cleaning.acp.wake-up-ms", "pause after a round", ""),
    ("cleaning.acp.flush-max-buffers", "most blocks of one round", ""),
    (
        "promotion",
        "which requests put their blocks into the cache",
        "always: each. nhit: blocks are inserted after a number of requests for them \
         (promotion.insertion-threshold), once part of the cache is used (promotion.trigger).",
    ),
    (
        "promotion.insertion-threshold",
        "the request for a block that inserts it, with nhit",
        "A write is inserted when all of its blocks reached it, or one of them is cached.",
    ),
    ("promotion.trigger", "per cent of the cache in use below which nhit inserts every block", ""),
    (
        "eviction",
        "which cached data is dropped for new data",
        "adaptive simulates the four others on a sample of the requests, and uses the one that misses \
         least. A change takes effect at once, with the cached data as it is; lru and arc need more \
         memory.",
    ),
    (
        "seq-cutoff",
        "when a stream of contiguous requests bypasses the cache",
        "full: while the cache is full. always: whatever its filling is. never: not at all. A size \
         sets the threshold too, after which a stream always bypasses it.",
    ),
    ("seq-cutoff.threshold", "bytes of a stream that are cached before it bypasses the cache", ""),
    (
        "seq-cutoff.promotion-count",
        "requests of a stream after which random ones no longer displace it",
        "",
    ),
    (
        "readahead",
        "whether data is read ahead of readers whose data enters the cache",
        "adaptive: from the fourth contiguous request on, as far ahead as the reader needs.",
    ),
    ("readahead.degree-max", "how far ahead of a reader is read at most", ""),
    (
        "classes",
        "I/O classes: which requests are cached, for how long, and how much of them",
        "none; lustre: metadata and requests of up to 128,000 bytes are cached; one rule, such as \
         past:request_size:ge:128K; or a file, which is read now and kept. docs/classes.md has the \
         rules, and `headpond class` checks a file.",
    ),
    (
        "bypass",
        "whether requests go to the array while that is faster than the cache",
        "adaptive: so many clean hits and writes that both have the same latency. Dirty data is never \
         bypassed.",
    ),
    (
        "checksums",
        "when data that is read from the cache is compared with its checksum",
        "auto: not of reads from memory, nor where the device checks itself. always: each time.",
    ),
    (
        "fallback.errors",
        "errors of the cache device after which requests bypass it; 0: never",
        "They are counted within fallback.window-s. Setting a mode, even the same one, ends it.",
    ),
    ("fallback.window-s", "the time within which these errors are counted", ""),
    ("discard", "whether unused parts of the cache device are discarded", ""),
    (
        "checkpoint.every",
        "bytes of log between two checkpoints, which shorten a start after a crash",
        "",
    ),
    (
        "merge-wait-us",
        "how long a sequential write waits for the rest of its stripe",
        "auto: as long as its client can send more. A number: microseconds at most; 0 merges only \
         writes that wait for their stripe anyway. off: writes are never merged.",
    ),
    ("merge-max", "most bytes that wait so at a time", ""),
    (
        "member-read-timeout-ms",
        "after which a read of a member is reconstructed from the others",
        "off: only where a member cannot read. It is never longer than the timeout of the member.",
    ),
    ("member-timeout-ms", "after which a member that completes nothing is failed", ""),
    (
        "member-timeouts-max",
        "timeouts of reads within ten minutes after which a member is failed",
        "",
    ),
    (
        "client-memory",
        "memory for the requests of all clients together",
        "auto: 1 GiB, or an eighth of the machine's memory where that is less.",
    ),
];

/// The line of a setting, and what else is to be known.
///
/// # Panics
/// Where the key is not one of the settings.
pub(super) fn text_of(key: &str) -> (&'static str, &'static str) {
    let found = TEXTS.iter().find(|(known, ..)| *known == key);
    let (_, line, more) = found.unwrap_or_else(|| panic!("{key} has no text"));
    (line, more)
}

#[cfg(test)]
mod tests {
    use super::super::known::keys;
    use super::*;

    const DOCUMENTS: [&str; 3] = [
        include_str!("../../../../../docs/cache.md"),
        include_str!("../../../../../docs/array.md"),
        include_str!("../../../../../docs/clients.md"),
    ];

    #[test]
    fn every_setting_has_a_line_that_fits_and_stands_in_a_document() {
        for key in keys() {
            let (line, _) = text_of(key);
            assert!((10..=LINE_MAX).contains(&line.len()), "{key}: {line}");
            let short = key.strip_prefix("cleaning.").unwrap_or(key);
            let last = format!("`.{}`", key.rsplit('.').next().unwrap_or(key));
            let is_named = |document: &&str| {
                document.contains(&format!("`{short}")) || document.contains(&last)
            };
            assert!(DOCUMENTS.iter().any(is_named), "{key} is in no document");
        }
    }

    #[test]
    fn no_text_is_left_of_a_setting_that_is_gone() {
        let known = keys();
        assert!(TEXTS.iter().all(|(key, ..)| known.contains(key)));
        assert_eq!(TEXTS.len(), known.len());
    }
}
