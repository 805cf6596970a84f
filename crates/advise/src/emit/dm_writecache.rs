//! dm-writecache, by `dmsetup`. It holds what was written, and nothing that was only read.

use super::Cache;
use super::fit::Fit;
use super::script::Script;
use super::wanted::{Named, Wanted};
use headpond_cache::{CleaningConfig, CleaningPolicy, CutoffPolicy, Mode};

pub(super) struct DmWritecache;

/// The least and the recommended block.
const BLOCK_BYTES: u64 = 4096;

/// What writes back, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writeback {
    /// Begins when so many per cent are used.
    pub high_watermark: u32,
    /// Ends when fewer are; not more than the other.
    pub low_watermark: u32,
    /// Blocks in flight.
    pub jobs: u32,
    /// What is so old is written back whatever is used.
    pub max_age_ms: Option<u64>,
}

impl Cache for DmWritecache {
    fn name(&self) -> &'static str {
        "dm-writecache"
    }

    fn refusal(&self, wanted: &Wanted) -> Option<String> {
        let is_read_cache = !wanted.mode().is_write_back();
        is_read_cache.then(|| {
            "this is a read cache, and dm-writecache holds nothing but what was written".to_owned()
        })
    }

    fn fit(&self, setting: &Named, wanted: &Wanted) -> Option<Fit> {
        match setting.key.as_str() {
            _ if !wanted.mode().is_write_back() => Fit::not("nothing is set up"),
            "line" if wanted.line.bytes() == BLOCK_BYTES => Fit::same("as the block size"),
            "line" => Fit::not("its blocks are no longer than a page"),
            _ => fit(setting, wanted),
        }
    }

    fn write(&self, wanted: &Wanted, script: &mut Script) {
        if !wanted.has_cache {
            return;
        }
        script.needs_cache_device(wanted);
        script.needs("CORE_DEVICE", "the slow device, with its data");
        script.has("NAME", "cached");
        let parameters = Writeback::of(&wanted.cache.cleaning).parameters(" ");
        let count = parameters.split(' ').count();
        script.note("A cache device without zeros at its begin would be taken for one in use.");
        script.run(format!("dd if=/dev/zero of=\"$CACHE_DEVICE\" bs={BLOCK_BYTES} count=1"));
        script.run("SECTORS=$(blockdev --getsz \"$CORE_DEVICE\")");
        script.run(format!(
            "dmsetup create \"$NAME\" --table \
             \"0 $SECTORS writecache s $CORE_DEVICE $CACHE_DEVICE {BLOCK_BYTES} {count} {parameters}\""
        ));
        script.note("The table is gone after a restart: dmsetup create again, without dd.");
    }
}

/// Whatever sets it up.
pub(super) fn fit(setting: &Named, wanted: &Wanted) -> Option<Fit> {
    let policy = wanted.cache.cleaning.policy;
    match setting.key.as_str() {
        "mode" if wanted.mode() == Mode::WriteOnly => Fit::same("what dm-writecache does"),
        "mode" => Fit::nearly("what is read is not taken in"),
        "cleaning" | "preset" => Fit::nearly(match policy {
            CleaningPolicy::Stripe => {
                "the watermarks; it writes back what was written longest ago first, and no stripes"
            }
            CleaningPolicy::Alru => "max_age, and watermarks at the dirty ratio; no rounds",
            CleaningPolicy::Acp => "watermarks at 0: all is written back at once, oldest first",
            CleaningPolicy::Nop => "watermarks at 100: what is written back makes room, no more",
            CleaningPolicy::Ordered => {
                "the watermarks; it keeps no order over a cache that is lost"
            }
        }),
        "cleaning.in-flight-max" => Fit::same("as writeback_jobs"),
        "cleaning.stripe.target-percent" | "cleaning.stripe.low-percent"
            if matches!(policy, CleaningPolicy::Stripe | CleaningPolicy::Ordered) =>
        {
            Fit::nearly("a watermark; the pace is not controlled")
        }
        "cleaning.alru.staleness-s" if policy == CleaningPolicy::Alru => {
            Fit::same("as max_age, in milliseconds")
        }
        "cleaning.alru.dirty-ratio-threshold-percent" if policy == CleaningPolicy::Alru => {
            Fit::nearly("the watermarks")
        }
        "seq-cutoff" if wanted.cache.seq_cutoff.policy == CutoffPolicy::Never => {
            Fit::same("it looks at no streams")
        }
        "seq-cutoff" => Fit::not("it looks at no streams"),
        "eviction" => Fit::not("it holds what is to be written back, oldest out first"),
        "promotion" if setting.value != "always" => Fit::not("it takes in every write"),
        _ => None,
    }
}

impl Writeback {
    pub(super) fn of(cleaning: &CleaningConfig) -> Self {
        let (stripe, alru) = (cleaning.stripe, cleaning.alru);
        let (high_watermark, low_watermark) = match cleaning.policy {
            CleaningPolicy::Stripe | CleaningPolicy::Ordered => {
                (stripe.target_percent, stripe.low_percent)
            }
            CleaningPolicy::Alru => {
                let threshold = alru.dirty_ratio_threshold_percent;
                (threshold, threshold)
            }
            CleaningPolicy::Acp => (0, 0),
            CleaningPolicy::Nop => (100, 100),
        };
        let is_alru = cleaning.policy == CleaningPolicy::Alru;
        Self {
            high_watermark,
            low_watermark: low_watermark.min(high_watermark),
            jobs: cleaning.in_flight_max,
            max_age_ms: is_alru.then_some(u64::from(alru.staleness_s) * 1000),
        }
    }

    /// Names and values, apart by `between`.
    pub(super) fn parameters(&self, between: &str) -> String {
        let mut parameters = vec![
            format!("high_watermark{between}{}", self.high_watermark),
            format!("low_watermark{between}{}", self.low_watermark),
            format!("writeback_jobs{between}{}", self.jobs),
        ];
        parameters.extend(self.max_age_ms.map(|age| format!("max_age{between}{age}")));
        parameters.join(" ")
    }
}
