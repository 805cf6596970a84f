//! The settings of caches and tiers, drawn from a seed.

use headpond_cache::{
    AlruConfig, BypassPolicy, Checksums, CleaningConfig, CleaningPolicy, CleaningPreset,
    CutoffPolicy, EvictionPolicy, FallbackConfig, Mode, Promotion, PromotionPolicy, StripeConfig,
};
use headpond_sim::Random;
use headpond_volume::{CacheSettings, ClassSetting, Readahead, ReadaheadPolicy, SeqCutoff, Size};

/// The settings that a life starts with.
pub(crate) fn draw_settings(random: &mut Random) -> CacheSettings {
    let mut settings = CacheSettings {
        mode: draw_mode(random),
        cleaning: draw_cleaning(random),
        classes: draw_classes(random),
        seq_cutoff: *random.pick(&[
            SeqCutoff::NEVER,
            SeqCutoff::NEVER,
            SeqCutoff::always(Size(64 << 10)),
            SeqCutoff { policy: CutoffPolicy::Full, ..SeqCutoff::always(Size(32 << 10)) },
        ]),
        promotion: draw_promotion(random),
        eviction: draw_eviction(random),
        bypass: draw_bypass(&mut random.clone().fork()),
        readahead: Readahead { policy: draw_readahead(random), ..Readahead::default() },
        ..CacheSettings::default()
    };
    // Drawn aside: the other settings are what they are without these.
    let mut aside = random.clone().fork();
    settings.fallback = draw_fallback(&mut aside);
    settings.discard = aside.one_in(3);
    settings.checkpoint.every = draw_checkpoint(&mut aside);
    settings.checksums = *aside.pick(&[Checksums::Auto, Checksums::Always]);
    settings
}

/// The same, such that each write is in the log before it is anywhere else.
pub(crate) fn all_logged(settings: CacheSettings) -> CacheSettings {
    let mode = if settings.mode.is_write_back() { settings.mode } else { Mode::WriteBack };
    let promotion = Promotion { policy: PromotionPolicy::Always, ..settings.promotion };
    CacheSettings {
        mode,
        promotion,
        seq_cutoff: SeqCutoff::NEVER,
        classes: ClassSetting::None,
        bypass: BypassPolicy::Off,
        ..settings
    }
}

/// So often that short lives have several; in every second case too rarely for these small caches,
/// or never: a checkpoint makes stable what a mistake might have left unstable.
pub(crate) fn draw_checkpoint(random: &mut Random) -> Size {
    Size(*random.pick(&[1, 1, 512 << 10, 1 << 20, 256 << 20, 256 << 20, 256 << 20, 0]))
}

/// Lives are short: parameters are such that the policies have something to do in them.
pub(super) fn draw_cleaning(random: &mut Random) -> CleaningConfig {
    let default = CleaningConfig::default();
    let soon =
        |percent| StripeConfig { low_percent: percent, target_percent: percent, ..default.stripe };
    let early = AlruConfig { dirty_ratio_threshold_percent: 2, ..default.alru };
    let ordered = random.clone().fork().one_in(8);
    let other = *random.pick(&[
        default,
        CleaningConfig { stripe: soon(0), ..default },
        CleaningConfig { stripe: soon(2), ..default },
        CleaningConfig { policy: CleaningPolicy::Nop, ..default },
        CleaningConfig { policy: CleaningPolicy::Alru, alru: early, ..default },
        CleaningConfig { policy: CleaningPolicy::Acp, ..default },
        CleaningPreset::AcpVeryAggressive.apply(default),
    ]);
    let chosen = match ordered {
        true => CleaningConfig { policy: CleaningPolicy::Ordered, stripe: soon(0), ..default },
        false => other,
    };
    // Drawn aside: how long a write waits for room.
    let full_wait_ms = *random.clone().fork().fork().pick(&[5000, 5000, 5000, 5000, 20, 0]);
    CleaningConfig { full_wait_ms, ..chosen }
}

/// Where there are any, some requests go past the cache, by size, direction or place; or some
/// classes have a priority and a share.
pub(crate) fn draw_classes(random: &mut Random) -> ClassSetting {
    // Drawn aside: a case is what it is without them.
    let mut aside = random.clone().fork();
    let rule = match random.below(6) {
        0 => "request_size:ge:16384&done",
        1 => "io_direction:write&lba:ge:64&done",
        2 => return ClassSetting::Lustre,
        3 | 4 if aside.one_in(3) => return draw_shares(&mut aside),
        _ => return ClassSetting::None,
    };
    let text = format!("[[class]]\nid = 1\nwhen = \"{rule}\"\npass_through = true\n");
    ClassSetting::parse(&text).expect("a sound rule")
}

fn draw_shares(random: &mut Random) -> ClassSetting {
    // Drawn aside: the shares are what they are without.
    let is_by_core = random.clone().fork().one_in(3);
    let last = if is_by_core { "core_id:eq:2&done" } else { "lba:ge:256&done" };
    let rules = ["", "request_size:ge:16384&done", "io_direction:write&done", last];
    let mut text = String::new();
    for (id, rule) in rules.into_iter().enumerate() {
        let priority = random.pick(&["\"pinned\"", "0", "1", "1", "255"]);
        let share = random.pick(&["1.00", "1.00", "0.50", "0.10", "0.01", "0.00"]);
        let when = if id > 0 { format!("when = \"{rule}\"\n") } else { String::new() };
        text += &format!("[[class]]\nid = {id}\n{when}");
        text += &format!("priority = {priority}\noccupancy = {share}\n\n");
    }
    ClassSetting::parse(&text).expect("sound rules")
}

pub(crate) fn draw_readahead(random: &mut Random) -> ReadaheadPolicy {
    if random.one_in(3) { ReadaheadPolicy::Off } else { ReadaheadPolicy::Adaptive }
}

fn draw_fallback(random: &mut Random) -> FallbackConfig {
    let default = FallbackConfig::default();
    if random.one_in(4) { FallbackConfig { errors: 2, ..default } } else { default }
}

pub(crate) fn draw_promotion(random: &mut Random) -> Promotion {
    let policy = match random.one_in(4) {
        true => PromotionPolicy::Nhit,
        false => PromotionPolicy::Always,
    };
    Promotion { policy, insertion_threshold: 2, trigger: *random.pick(&[0, 30, 80]) }
}

pub(crate) fn draw_eviction(random: &mut Random) -> EvictionPolicy {
    let adaptive = EvictionPolicy::Adaptive;
    if random.one_in(4) { adaptive } else { *random.pick(&EvictionPolicy::PLAIN) }
}

/// What may go past the cache then does so for a part only, and soon.
pub(crate) fn draw_bypass(random: &mut Random) -> BypassPolicy {
    if random.one_in(8) { BypassPolicy::Adaptive } else { BypassPolicy::Off }
}

pub(crate) fn draw_mode(random: &mut Random) -> Mode {
    if random.one_in(2) { Mode::WriteBack } else { *random.pick(&Mode::ALL) }
}
