//! bcache, by `make-bcache` and sysfs.

use super::Cache;
use super::casadm::within;
use super::fit::Fit;
use super::script::Script;
use super::wanted::{Named, Wanted};
use headpond_cache::{BypassPolicy, CleaningPolicy, CutoffPolicy, EvictionPolicy, Mode};

pub(super) struct Bcache;

/// What `sequential_cutoff` takes, in bytes; 0 is never.
const SEQUENTIAL_CUTOFF: (u64, u64) = (0, u32::MAX as u64);
/// The kernel's `bch_cutoff_writeback`, where it was not loaded with another.
const WRITEBACK_PERCENT: (u64, u64) = (0, 40);
const WRITEBACK_DELAY_S: (u64, u64) = (0, u32::MAX as u64);
/// An erase block of most flash devices.
const BUCKET: &str = "512k";
const BLOCK: &str = "4k";

/// Latencies of the cache device from which on bcache sends requests past it, by itself: reads and
/// writes, in microseconds.
const CONGESTED_US: (u32, u32) = (2000, 20_000);

impl Cache for Bcache {
    fn name(&self) -> &'static str {
        "bcache"
    }

    fn fit(&self, setting: &Named, wanted: &Wanted) -> Option<Fit> {
        let policy = wanted.cache.cleaning.policy;
        match (setting.key.as_str(), setting.root()) {
            ("mode", _) => mode_fit(wanted.mode()),
            ("cleaning" | "preset", _) => cleaning_fit(policy),
            ("cleaning.alru.staleness-s", _) if policy == CleaningPolicy::Alru => {
                Fit::nearly("writeback_delay, which counts from the first dirty block")
            }
            ("cleaning.stripe.target-percent", _)
                if matches!(policy, CleaningPolicy::Stripe | CleaningPolicy::Ordered) =>
            {
                Fit::same("as writeback_percent")
            }
            ("seq-cutoff" | "seq-cutoff.threshold", _) => match wanted.cache.seq_cutoff.policy {
                CutoffPolicy::Full => {
                    Fit::nearly("sequential_cutoff, whether the cache is full or not")
                }
                _ => Fit::nearly("sequential_cutoff; the average of a process counts as well"),
            },
            ("eviction", _) => match wanted.cache.eviction {
                EvictionPolicy::Lru => Fit::same("as cache_replacement_policy lru"),
                EvictionPolicy::Fifo => Fit::same("as cache_replacement_policy fifo"),
                _ => Fit::not("there are lru, fifo and random, by buckets; lru is set"),
            },
            ("bypass", _) => match wanted.cache.bypass {
                BypassPolicy::Off => Fit::same("as congested thresholds of 0"),
                BypassPolicy::Adaptive => {
                    Fit::nearly("the congested thresholds: by the latency of the cache alone")
                }
            },
            ("promotion", _) if setting.value != "always" => {
                Fit::not("bcache takes in what is asked for the first time")
            }
            ("line", _) => Fit::not("bcache keeps extents of any length, and has no lines"),
            ("discard", _) if setting.value == "true" => Fit::same("as make-bcache --discard"),
            _ => None,
        }
    }

    fn write(&self, wanted: &Wanted, script: &mut Script) {
        if !wanted.has_cache {
            return;
        }
        script.needs_cache_device(wanted);
        script.needs("CORE_DEVICE", "the slow device");
        script.has("BCACHE", "bcache0");
        script.note("--bucket: the erase block of the device, where it is known.");
        script.note("--block: 512 for what needs sectors of 512 bytes.");
        script.note(
            "8 KiB of bcache's own come before the data: what is on the slow device is lost.",
        );
        let discard = if wanted.cache.discard { " --discard" } else { "" };
        let eviction = replacement(wanted.cache.eviction);
        script.run(format!(
            "make-bcache --bucket {BUCKET} --block {BLOCK}{discard} \
             --cache_replacement_policy={eviction} -C \"$CACHE_DEVICE\" -B \"$CORE_DEVICE\""
        ));
        script.note("udev registers both; without it: echo DEVICE > /sys/fs/bcache/register");
        script.run("udevadm settle");
        script.has("SETTINGS", "/sys/block/$BCACHE/bcache");
        echo(script, "cache_mode", mode(wanted.mode()));
        let cutoff = wanted.cache.seq_cutoff;
        let bytes = match cutoff.policy {
            CutoffPolicy::Never => 0,
            _ => within(script, "sequential_cutoff", cutoff.threshold.bytes(), SEQUENTIAL_CUTOFF),
        };
        echo(script, "sequential_cutoff", &bytes.to_string());
        if wanted.mode().is_write_back() {
            writeback(wanted, script);
        }
        let (reads, writes) = match wanted.cache.bypass {
            BypassPolicy::Off => (0, 0),
            BypassPolicy::Adaptive => CONGESTED_US,
        };
        echo(script, "cache/congested_read_threshold_us", &reads.to_string());
        echo(script, "cache/congested_write_threshold_us", &writes.to_string());
    }
}

fn echo(script: &mut Script, name: &str, value: &str) {
    script.run(format!("echo {value} > \"$SETTINGS/{name}\""));
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::WriteBack | Mode::WriteOnly => "writeback",
        Mode::WriteThrough => "writethrough",
        Mode::WriteAround | Mode::WriteInvalidate => "writearound",
        Mode::PassThrough => "none",
    }
}

fn mode_fit(wanted: Mode) -> Option<Fit> {
    match wanted {
        Mode::WriteOnly => Fit::nearly("writeback: what is read is taken in as well"),
        Mode::WriteAround => {
            Fit::nearly("writearound: what is cached and written leaves the cache")
        }
        other => Fit::same(format!("as cache_mode {}", mode(other))),
    }
}

fn cleaning_fit(policy: CleaningPolicy) -> Option<Fit> {
    match policy {
        CleaningPolicy::Stripe => {
            Fit::nearly("writeback_percent keeps the dirty ratio, in address order; no stripes")
        }
        CleaningPolicy::Ordered => {
            Fit::nearly("writeback_percent; in address order, and not in that of flushes")
        }
        CleaningPolicy::Alru => Fit::nearly("writeback_delay, then all at once; not by age"),
        CleaningPolicy::Acp => Fit::nearly("writeback_percent 0: all the time, in address order"),
        CleaningPolicy::Nop => Fit::same("as writeback_running 0"),
    }
}

fn replacement(eviction: EvictionPolicy) -> &'static str {
    match eviction {
        EvictionPolicy::Fifo => "fifo",
        _ => "lru",
    }
}

fn writeback(wanted: &Wanted, script: &mut Script) {
    let cleaning = wanted.cache.cleaning;
    let (percent, delay_s) = match cleaning.policy {
        CleaningPolicy::Nop => {
            echo(script, "writeback_running", "0");
            return;
        }
        CleaningPolicy::Stripe | CleaningPolicy::Ordered => (cleaning.stripe.target_percent, None),
        CleaningPolicy::Alru => (0, Some(cleaning.alru.staleness_s)),
        CleaningPolicy::Acp => (0, Some(0)),
    };
    let percent = within(script, "writeback_percent", percent.into(), WRITEBACK_PERCENT);
    echo(script, "writeback_percent", &percent.to_string());
    if let Some(delay_s) = delay_s {
        let delay_s = within(script, "writeback_delay", delay_s.into(), WRITEBACK_DELAY_S);
        echo(script, "writeback_delay", &delay_s.to_string());
    }
}
