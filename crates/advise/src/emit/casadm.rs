//! Open CAS Linux, by `casadm`.

use super::Cache;
use super::fit::Fit;
use super::script::Script;
use super::wanted::{Named, Wanted};
use headpond_cache::{CleaningPolicy, CutoffPolicy, Mode, PromotionPolicy};

pub(super) struct Casadm;

/// Lines that `--cache-line-size` takes, in KiB.
const LINE_KIB_MAX: u64 = 64;
const THRESHOLD_KIB: (u64, u64) = (1, 4_194_181);
const PROMOTION_COUNT: (u64, u64) = (1, 65_535);
const ALRU_WAKE_UP_S: (u64, u64) = (0, 3600);
const ALRU_STALENESS_S: (u64, u64) = (1, 3600);
const ALRU_ACTIVITY_MS: (u64, u64) = (0, 1_000_000);
const ACP_WAKE_UP_MS: (u64, u64) = (0, 10_000);
const FLUSH_MAX_BUFFERS: (u64, u64) = (1, 10_000);
const NHIT_THRESHOLD: (u64, u64) = (2, 1000);
const NHIT_TRIGGER: (u64, u64) = (0, 100);

impl Cache for Casadm {
    fn name(&self) -> &'static str {
        "Open CAS"
    }

    fn fit(&self, setting: &Named, wanted: &Wanted) -> Option<Fit> {
        let cleaning = wanted.cache.cleaning.policy;
        match (setting.key.as_str(), setting.root()) {
            ("mode", _) => mode_fit(wanted.mode()),
            ("cleaning" | "preset", _) => cleaning_fit(cleaning),
            ("cleaning.alru.dirty-ratio-threshold-percent", _) if setting.value != "100" => {
                Fit::not("casadm 22.6 has no option for it")
            }
            ("cleaning.alru.dirty-ratio-inertia-mib", _) => {
                Fit::not("casadm 22.6 has no option for it")
            }
            (key, _) if key.starts_with("cleaning.alru.") => {
                is_in_force(cleaning == CleaningPolicy::Alru, "set-param --name cleaning-alru")
            }
            (key, _) if key.starts_with("cleaning.acp.") => {
                is_in_force(cleaning == CleaningPolicy::Acp, "set-param --name cleaning-acp")
            }
            (_, "seq-cutoff") => Fit::same("as set-param --name seq-cutoff"),
            (_, "promotion") => Fit::same("as set-param --name promotion and promotion-nhit"),
            ("eviction", _) if setting.value == "lru" => Fit::same("Open CAS evicts so"),
            ("eviction", _) => Fit::not("Open CAS evicts by LRU"),
            ("line", _) if line_kib(wanted) < wanted.line.bytes() >> 10 => {
                Fit::nearly(format!("{LINE_KIB_MAX} KiB is the longest"))
            }
            ("line", _) => Fit::same("as --cache-line-size"),
            ("classes", _) if setting.value == "none" => Fit::same("no classes are loaded"),
            ("classes", _) => Fit::not("--emit opencas-io-class writes the file for it"),
            _ => None,
        }
    }

    fn write(&self, wanted: &Wanted, script: &mut Script) {
        if !wanted.has_cache {
            return;
        }
        script.needs_cache_device(wanted);
        script.needs("CORE_DEVICE", "the slow device, with its data");
        script.has("CACHE_ID", "1");
        script.run(format!(
            "casadm --start-cache --cache-device \"$CACHE_DEVICE\" --cache-id \"$CACHE_ID\" \
             --cache-mode {} --cache-line-size {}",
            mode(wanted.mode()),
            line_kib(wanted)
        ));
        script.run(
            "casadm --add-core --cache-id \"$CACHE_ID\" --core-device \"$CORE_DEVICE\" --core-id 1",
        );
        seq_cutoff(wanted, script);
        if wanted.mode().is_write_back() {
            cleaning(wanted, script);
        }
        promotion(wanted, script);
    }
}

/// A parameter of a policy that is not in force says nothing.
fn is_in_force(holds: bool, words: &str) -> Option<Fit> {
    match holds {
        true => Fit::same(format!("as {words}")),
        false => Fit::not("a parameter of another policy than the one in force"),
    }
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::WriteThrough => "wt",
        Mode::WriteBack => "wb",
        Mode::WriteAround | Mode::WriteInvalidate => "wa",
        Mode::WriteOnly => "wo",
        Mode::PassThrough => "pt",
    }
}

fn mode_fit(wanted: Mode) -> Option<Fit> {
    match wanted {
        Mode::WriteInvalidate => {
            Fit::nearly("wa: what is cached and written is kept up to date, and does not leave")
        }
        other => Fit::same(format!("as --cache-mode {}", mode(other))),
    }
}

fn cleaning_fit(policy: CleaningPolicy) -> Option<Fit> {
    match policy {
        CleaningPolicy::Nop => Fit::same("as set-param --name cleaning --policy nop"),
        CleaningPolicy::Alru => Fit::same("as set-param --name cleaning and cleaning-alru"),
        CleaningPolicy::Acp => Fit::same("as set-param --name cleaning and cleaning-acp"),
        CleaningPolicy::Stripe => Fit::nearly(
            "acp: it cleans all the time and knows no stripes; nothing there keeps a share dirty",
        ),
        CleaningPolicy::Ordered => {
            Fit::nearly("acp: nothing there keeps the order in which clients flushed")
        }
    }
}

fn line_kib(wanted: &Wanted) -> u64 {
    (wanted.line.bytes() >> 10).min(LINE_KIB_MAX)
}

fn seq_cutoff(wanted: &Wanted, script: &mut Script) {
    let cutoff = wanted.cache.seq_cutoff;
    let policy = match cutoff.policy {
        CutoffPolicy::Always => "always",
        CutoffPolicy::Full => "full",
        CutoffPolicy::Never => "never",
    };
    if !cutoff.threshold.bytes().is_multiple_of(1 << 10) {
        script.note(&format!("The threshold of {} is rounded down to KiB.", cutoff.threshold));
    }
    let threshold = within(script, "--threshold", cutoff.threshold.bytes() >> 10, THRESHOLD_KIB);
    let count = within(script, "--promotion-count", cutoff.promotion_count.into(), PROMOTION_COUNT);
    script.run(format!(
        "casadm --set-param --name seq-cutoff --cache-id \"$CACHE_ID\" --core-id 1 --policy {policy} \
         --threshold {threshold} --promotion-count {count}"
    ));
}

fn cleaning(wanted: &Wanted, script: &mut Script) {
    let cleaning = wanted.cache.cleaning;
    let policy = match cleaning.policy {
        CleaningPolicy::Nop => "nop",
        CleaningPolicy::Alru => "alru",
        CleaningPolicy::Acp | CleaningPolicy::Stripe | CleaningPolicy::Ordered => "acp",
    };
    script.run(format!(
        "casadm --set-param --name cleaning --cache-id \"$CACHE_ID\" --policy {policy}"
    ));
    if policy == "alru" {
        let alru = cleaning.alru;
        let wake_up = within(script, "--wake-up", alru.wake_up_s.into(), ALRU_WAKE_UP_S);
        let stale = within(script, "--staleness-time", alru.staleness_s.into(), ALRU_STALENESS_S);
        let buffers = flush_max_buffers(script, alru.flush_max_buffers);
        let threshold = alru.activity_threshold_ms.into();
        let activity = within(script, "--activity-threshold", threshold, ALRU_ACTIVITY_MS);
        script.run(format!(
            "casadm --set-param --name cleaning-alru --cache-id \"$CACHE_ID\" --wake-up {wake_up} \
             --staleness-time {stale} --flush-max-buffers {buffers} --activity-threshold {activity}"
        ));
    }
    if policy == "acp" {
        let acp = cleaning.acp;
        let wake_up = within(script, "--wake-up", acp.wake_up_ms.into(), ACP_WAKE_UP_MS);
        let buffers = flush_max_buffers(script, acp.flush_max_buffers);
        script.run(format!(
            "casadm --set-param --name cleaning-acp --cache-id \"$CACHE_ID\" --wake-up {wake_up} \
             --flush-max-buffers {buffers}"
        ));
    }
}

fn flush_max_buffers(script: &mut Script, wanted: u32) -> u64 {
    within(script, "--flush-max-buffers", wanted.into(), FLUSH_MAX_BUFFERS)
}

fn promotion(wanted: &Wanted, script: &mut Script) {
    let promotion = wanted.cache.promotion;
    let policy = match promotion.policy {
        PromotionPolicy::Always => "always",
        PromotionPolicy::Nhit => "nhit",
    };
    script.run(format!(
        "casadm --set-param --name promotion --cache-id \"$CACHE_ID\" --policy {policy}"
    ));
    if promotion.policy == PromotionPolicy::Nhit {
        let threshold =
            within(script, "--threshold", promotion.insertion_threshold.into(), NHIT_THRESHOLD);
        let trigger = within(script, "--trigger", promotion.trigger.into(), NHIT_TRIGGER);
        script.run(format!(
            "casadm --set-param --name promotion-nhit --cache-id \"$CACHE_ID\" --threshold {threshold} \
             --trigger {trigger}"
        ));
    }
}

/// A value within what is taken there; where it has to be moved, a comment says so.
pub(super) fn within(
    script: &mut Script,
    what: &str,
    value: u64,
    (least, most): (u64, u64),
) -> u64 {
    let taken = value.clamp(least, most);
    if taken != value {
        script.note(&format!("{what} takes {least} to {most}: {value} becomes {taken}."));
    }
    taken
}
