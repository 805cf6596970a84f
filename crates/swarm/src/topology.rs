//! What a case's volume is made of.

mod copies;
mod settings;

pub(crate) use copies::{copy_name, on_disks};
use settings::draw_cleaning;
pub(crate) use settings::{
    all_logged, draw_bypass, draw_checkpoint, draw_classes, draw_eviction, draw_mode,
    draw_promotion, draw_readahead, draw_settings,
};

use headpond_block::{ByteRange, Stability};
use headpond_cache::{CleaningConfig, CleaningPolicy, EvictionPolicy, Mode};
use headpond_raid::{
    Contents, Intent, JournalWhen, Layout, Level, Occupied, Spread, Striping, Weights,
};
use headpond_sim::Random;
use headpond_volume::{
    ArraySettings, BackgroundRate, CacheDescription, CacheSettings, CoreDescription, CreateOptions,
    Description, FurtherCoreDescription, JournalDescription, Size, TierDescription, TierSettings,
    VolumeStatus,
};
use std::fmt;
use uuid::Uuid;

/// What lies before the data on a member, in bytes.
pub(crate) const MEMBER_HEAD_BYTES: u64 = 1 << 20;
/// What the checksums of so small members take, rounded up.
const CHECKSUMS_BYTES: u64 = 1 << 20;
/// Volumes are multiples of so many bytes.
const ROOM_BYTES: u64 = 512 << 10;
const CACHE_HEAD_BYTES: u64 = 2 << 20;
/// Extents of so many bytes go to the slices in turn.
const EXTENT_BYTES: u64 = 4 << 20;

/// The window has so much more when the array has grown: it reaches over the end there was.
pub(crate) const WINDOW_GROWS_BYTES: u64 = 2 * ROOM_BYTES;

/// The members of a core of which nothing is asked.
pub(crate) const IDLE_MEMBERS: [&str; 2] = ["i0", "i1"];
/// The part of that core that is worked on, where there is work for it.
pub(crate) const BESIDE_BYTES: u64 = 128 << 10;
/// What the core is called that is not the first.
pub(crate) const FURTHER: &str = "further";

/// The identity of every case's cache: its world has no other.
pub(crate) const CACHE: Uuid = Uuid::from_u128(0xcac4e);

/// What the copies of every case's cache call themselves, until the cache is made anew.
pub(crate) const MIRROR: Uuid = Uuid::from_u128(0xc0b1e5);

/// A volume's shape, drawn from a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub level: Level,
    pub groups: u16,
    pub members: usize,
    /// Stripes narrower than the array.
    pub spread: Option<Spread>,
    /// Of members without redundancy, where they are not all the same.
    pub weights: Option<Weights>,
    pub strip_bytes: u64,
    /// The members carry a map of the regions that are being written.
    pub has_intent: bool,
    /// The members keep checksums of what a scrub has found whole.
    pub has_integrity: bool,
    /// The parity was right when the array was made.
    pub is_initialised: bool,
    pub members_are: Stability,
    pub slices: u16,
    pub cache: Option<CacheShape>,
    /// Memory in front of that.
    pub tier: Option<TierShape>,
    /// Another core behind the same cache, of which nothing is asked.
    pub idle_core: Option<IdleCore>,
    /// Of that one something is asked after all.
    pub works_beside: bool,
    /// And it is a device with contents of its own, instead of a mirror.
    pub existing_beside: bool,
    /// The array has a stripe journal.
    pub journal: Option<JournalWhen>,
    /// The part of the core that is worked on.
    pub window_start: u64,
    pub window_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheShape {
    pub bytes: u64,
    pub line_bytes: u64,
    pub stability: Stability,
    /// Devices that it lies on, each of which has all of it.
    pub copies: usize,
}

/// Where a core lies of which nothing is asked: a mirror that nothing befalls but power cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleCore {
    /// It is the first core: what is worked on begins somewhere else, and the idle one decides
    /// whether there is a cache.
    First,
    Behind,
}

/// A tier, and what it is set to when a life begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TierShape {
    pub bytes: u64,
    pub line_bytes: u64,
    pub mode: Mode,
    pub cleaning: CleaningConfig,
    pub eviction: EvictionPolicy,
}

impl Topology {
    pub fn draw(random: &mut Random) -> Self {
        use Level::{Raid0, Raid1, Raid5, Raid6, Raid10, Raid50, Raid60};
        let shapes: [(Level, u16, usize); 13] = [
            (Raid5, 1, 3),
            (Raid5, 1, 4),
            (Raid5, 1, 6),
            (Raid6, 1, 4),
            (Raid6, 1, 5),
            (Raid6, 1, 7),
            (Raid50, 2, 6),
            (Raid60, 2, 8),
            (Raid1, 1, 2),
            (Raid1, 1, 3),
            (Raid10, 2, 4),
            (Raid10, 3, 6),
            (Raid0, 1, 2),
        ];
        let (level, groups, members) = *random.pick(&shapes);
        let slices = *random.pick(&[1, 1, 1, 2, 3]);
        let window_bytes = *random.pick(&[128 << 10, 256 << 10, 512 << 10, 1 << 20]);
        let cache = (!random.one_in(8)).then(|| CacheShape::draw(slices, random));
        let around = EXTENT_BYTES - window_bytes / 2;
        let window_start = *random.pick(&[0, around, 4096 * random.clone().below(256)]);
        // Drawn aside: a case is what it is without one.
        let mut aside = random.clone().fork();
        let tier = aside.one_in(6).then(|| TierShape::draw(slices, &mut aside));
        let idle = [IdleCore::First, IdleCore::Behind];
        let idle_core = aside.one_in(4).then(|| *aside.pick(&idle));
        let (members, spread) = draw_spread((level, members), &mut aside);
        let mut topology = Self {
            journal: None,
            level,
            groups,
            members,
            spread,
            weights: None,
            strip_bytes: *random.pick(&[4 << 10, 16 << 10, 64 << 10]),
            // Copies that differ after a cut are only made equal where something marks them.
            has_intent: level.is_mirrored() || !random.one_in(4),
            has_integrity: false,
            is_initialised: !random.one_in(5),
            members_are: *random.pick(&[
                Stability::Flushable,
                Stability::Flushable,
                Stability::StableOnCompletion,
            ]),
            slices,
            cache,
            tier,
            idle_core,
            works_beside: false,
            existing_beside: false,
            window_start,
            window_bytes,
        };
        topology.draw_journal(&mut aside);
        topology.draw_weights(&mut aside);
        topology.has_integrity = topology.redundancy() > 0 && aside.one_in(5);
        topology.draw_copies(&mut aside);
        // That core is a mirror, which only what is marked makes equal after a cut.
        let may_work = topology.idle_core.is_some() && topology.has_intent;
        topology.works_beside = may_work && aside.one_in(2);
        topology.existing_beside = topology.works_beside && aside.one_in(2);
        topology
    }

    fn draw_copies(&mut self, random: &mut Random) {
        let lasting = self.cache.as_mut().filter(|it| it.stability != Stability::LostOnPower);
        if let Some(cache) = lasting.filter(|_| random.one_in(4)) {
            cache.copies = *random.pick(&[2, 2, 2, 3]);
        }
    }

    /// How many devices the cache lies on, where that is several.
    pub(crate) fn copies(&self) -> Option<usize> {
        self.cache.as_ref().map(|cache| cache.copies).filter(|copies| *copies > 1)
    }

    fn draw_weights(&mut self, random: &mut Random) {
        if self.level == Level::Raid0 && random.one_in(2) {
            let all = [&[3, 1][..], &[1, 2], &[5, 3], &[2, 1, 4], &[7, 1]];
            let weights = random.pick(&all);
            let weights = Weights::new(weights.to_vec()).expect("few, and none is zero");
            self.members = weights.as_slice().len();
            self.weights = Some(weights);
        }
    }

    fn draw_journal(&mut self, random: &mut Random) {
        // While it is not used always, the time before is the intent bitmap's.
        let when = *random.pick(&[JournalWhen::Degraded, JournalWhen::Always]);
        let when = if self.has_intent { when } else { JournalWhen::Always };
        self.journal = (self.has_parity() && random.one_in(2)).then_some(when);
    }

    /// Members that may be lost at once, whichever they are.
    pub fn redundancy(&self) -> usize {
        match self.level {
            Level::Raid0 => 0,
            Level::Raid1 => self.members - 1,
            Level::Raid10 | Level::Raid5 | Level::Raid50 => 1,
            Level::Raid6 | Level::Raid60 => 2,
        }
    }

    /// Whether a scrub has something to compare, however few copies may have everything.
    pub fn has_copies_or_parity(&self) -> bool {
        self.level != Level::Raid0
    }

    /// Whether its array can be given more members.
    pub(crate) fn can_grow(&self) -> bool {
        let is_plain = self.spread.is_none() && self.weights.is_none() && self.journal.is_none();
        // Without an intent bitmap nobody would know what a cut tore on the way.
        let is_marked = self.has_intent || self.redundancy() == 0;
        is_plain && is_marked && self.level != Level::Raid1
    }

    /// Whether its caches may stay where they are while it grows.
    pub(crate) fn grows_behind_caches(&self) -> bool {
        self.slices == 1 && self.idle_core.is_none()
    }

    /// Whether there is a core that may be taken away, and be made anew: one of which nothing is
    /// asked, behind the first.
    pub(crate) fn core_may_go(&self) -> bool {
        self.idle_core == Some(IdleCore::Behind) && !self.works_beside
    }

    /// Whether a tier keeps what is told of its size as it was.
    pub(crate) fn size_waits(&self, volume: &VolumeStatus) -> bool {
        self.idle_core.is_some() && volume.tier.is_some()
    }

    /// The most members that it is given at a time: a group, where there are groups.
    pub(crate) fn further_members(&self) -> usize {
        match (self.can_grow(), self.level.has_groups()) {
            (false, _) => 0,
            (true, true) => self.members / usize::from(self.groups),
            (true, false) => 2,
        }
    }

    /// Disks beside those of the array and one that may take the place of any.
    pub(crate) fn further_disks(&self) -> usize {
        if self.level == Level::Raid1 { 2 } else { self.further_members() }
    }

    /// Its array, with so many members more.
    pub(crate) fn with_more_members(&self, more: usize) -> Self {
        let width = self.members / usize::from(self.groups);
        let groups = if self.level.has_groups() { more / width } else { 0 };
        let (members, groups) = (self.members + more, self.groups + groups as u16);
        Self { members, groups, ..self.clone() }
    }

    pub fn has_parity(&self) -> bool {
        self.level.parity() > 0
    }

    /// Where the data of a member begins.
    fn head_bytes(&self) -> u64 {
        MEMBER_HEAD_BYTES + if self.has_integrity { CHECKSUMS_BYTES } else { 0 }
    }

    /// Room for the window and a little more: an unclean stop may have all of it looked through.
    pub(crate) fn member_bytes(&self) -> u64 {
        let volume_bytes = (self.window_start + self.window_bytes).next_multiple_of(ROOM_BYTES);
        if let Some(weights) = &self.weights {
            let rounds = volume_bytes.div_ceil(weights.total() * self.strip_bytes);
            return self.head_bytes() + rounds * u64::from(weights.largest()) * self.strip_bytes;
        }
        let each = volume_bytes.div_ceil(self.data_members());
        // Only whole bands of piles are used.
        let seam = if self.spread.is_some() { each / 8 } else { 0 };
        self.head_bytes() + (each + seam).next_multiple_of(self.band_bytes())
    }

    /// In which band of rows a byte of a member's data lies: no stripe lies in two.
    pub(crate) fn band_of(&self, address: u64) -> u64 {
        (address - self.head_bytes()) / self.band_bytes()
    }

    /// What a member has of such a band.
    pub(crate) fn band_bytes(&self) -> u64 {
        self.strip_bytes * self.band_rows()
    }

    /// No stripe goes on in the rows after so many.
    fn band_rows(&self) -> u64 {
        self.spread.map_or(1, |spread| u64::from(spread.width))
    }

    /// Members' worth of data, rounded down.
    pub(crate) fn data_members(&self) -> u64 {
        if let Some(Spread { width, spares }) = self.spread {
            let columns = self.members - usize::from(spares);
            let data = width - u16::from(self.level.parity());
            return (columns * usize::from(data) / usize::from(width)) as u64;
        }
        let members = match self.level {
            Level::Raid0 => self.members,
            Level::Raid1 => 1,
            Level::Raid10 => usize::from(self.groups),
            _ => self.members - usize::from(self.groups) * usize::from(self.level.parity()),
        };
        members as u64
    }

    /// What the stripe journal needs at least: it goes round soon.
    pub(crate) fn journal_bytes(&self) -> u64 {
        let (groups, strip) = (usize::from(self.groups), self.strip_bytes as u32);
        let data_bytes = self.member_bytes() - self.head_bytes();
        let layout = match self.spread {
            None => Layout::new(self.level, self.members, groups, strip, data_bytes),
            Some(spread) => {
                Layout::decluster(self.level, self.members, spread, (strip, data_bytes)).and_then(
                    |it| Layout::declustered(self.level, self.members, &it, strip, data_bytes),
                )
            }
        };
        headpond_raid::journal::bytes_min(&layout.expect("a shape that is drawn is possible"))
    }

    /// Where the window lies on every member, to within a stripe.
    pub(crate) fn window_on_member(&self) -> ByteRange {
        if let Some(weights) = &self.weights {
            // From where it begins on the one with the least to where it ends on the other.
            let round_bytes = weights.total() * self.strip_bytes;
            let first = self.window_start / round_bytes * self.strip_bytes;
            let rounds = (self.window_start + self.window_bytes).div_ceil(round_bytes);
            let end = rounds * u64::from(weights.largest()) * self.strip_bytes;
            return ByteRange::between(self.head_bytes() + first, self.head_bytes() + end);
        }
        let unit = self.band_bytes();
        let start = self.window_start / self.data_members() / unit * unit;
        let len = (self.window_bytes / self.data_members()).next_multiple_of(unit);
        ByteRange::at(self.head_bytes() + start, len)
    }

    pub(crate) fn description(&self, settings: &CacheSettings) -> Description {
        let cache = self.cache.as_ref().map(|cache| CacheDescription {
            device: "cache".into(),
            line: Size(cache.line_bytes),
            size: None,
            settings: settings.clone(),
            volatile_allowed: cache.stability == Stability::LostOnPower,
            mirror: None,
        });
        let cache = cache.map(|cache| match self.copies() {
            Some(count) => on_disks(cache, &Vec::from_iter(0..count), MIRROR),
            None => cache,
        });
        let tier = self.tier.as_ref().map(TierShape::description);
        let worked_on = CoreDescription {
            raid: self.level,
            groups: self.groups,
            strip: Size(self.strip_bytes),
            intent: self.has_intent,
            integrity: self.has_integrity,
            members: (0..self.members).map(|index| format!("m{index}")).collect(),
            spares: Vec::new(),
            declustered: self.spread,
            striping: self.weights.clone().map_or(Striping::Plain, Striping::Weighted),
            background: BackgroundRate::default(),
            journal: self.journal.map(|when| JournalDescription::of("journal".into(), when)),
        };
        let idle = self.idle_description(&worked_on);
        let (core, further) = match self.idle_core {
            None => (worked_on, None),
            Some(IdleCore::First) => (idle, Some(worked_on)),
            Some(IdleCore::Behind) => (worked_on, Some(idle)),
        };
        let further = further.map(|core| FurtherCoreDescription {
            name: FURTHER.into(),
            id: 2,
            uuid: Uuid::from_u128(0x5eed2),
            core,
        });
        let further_cores = further.into_iter().collect();
        let (name, uuid) = ("swarm".into(), Uuid::from_u128(0x5eed));
        Description {
            name,
            uuid,
            slices: self.slices,
            heartbeat_ms: 0,
            tier,
            cache,
            core,
            array: ArraySettings::default(),
            further_cores,
            exports: Vec::new(),
        }
    }

    /// What would be refused becomes the default.
    pub(crate) fn put_right(&self, settings: &mut CacheSettings) {
        if self.slices > 1 && settings.cleaning.policy == CleaningPolicy::Ordered {
            settings.cleaning.policy = CleaningPolicy::default();
        }
    }

    /// The core beside the one that is worked on: a mirror, or an existing device.
    fn idle_description(&self, worked_on: &CoreDescription) -> CoreDescription {
        let [body, head] = IDLE_MEMBERS;
        let (raid, members) = match self.existing_beside {
            true => (Level::Raid0, vec![format!("existing:{body}?head={head}")]),
            false => (Level::Raid1, IDLE_MEMBERS.map(String::from).into()),
        };
        CoreDescription {
            raid,
            groups: 1,
            integrity: false,
            members,
            declustered: None,
            striping: Striping::Plain,
            journal: None,
            ..worked_on.clone()
        }
    }

    /// Of the cores, the one that is worked on.
    pub(crate) fn worked_on(&self) -> usize {
        usize::from(self.idle_core == Some(IdleCore::First))
    }

    pub(crate) fn idle_member_bytes(&self, name: &str) -> u64 {
        let data = ROOM_BYTES.next_multiple_of(self.strip_bytes);
        // An existing device has nothing in front of its data.
        let is_body = self.existing_beside && name == IDLE_MEMBERS[0];
        if is_body { data } else { MEMBER_HEAD_BYTES + data }
    }

    pub(crate) fn create_options(&self) -> CreateOptions {
        CreateOptions {
            contents: if self.is_initialised { Contents::Zeros } else { Contents::Unknown },
            intent: if self.has_intent { Intent::Bitmap } else { Intent::None },
            occupied: Occupied::Refuse,
            cache: CACHE,
            journal: CACHE,
        }
    }
}

impl CacheShape {
    fn draw(slices: u16, random: &mut Random) -> Self {
        // The smallest is just large enough for a log, which then goes round soon.
        let each = *random.pick(&[6 << 20, 6 << 20, 8 << 20, 12 << 20]);
        let (flushable, stable) = (Stability::Flushable, Stability::StableOnCompletion);
        let kinds = [flushable, flushable, flushable, flushable, stable, Stability::LostOnPower];
        let bytes = CACHE_HEAD_BYTES + each * u64::from(slices);
        let stability = *random.pick(&kinds);
        let lines = [4 << 10, 4 << 10, 4 << 10, 8 << 10, 16 << 10, 64 << 10, 64 << 10, 1 << 20];
        let line_bytes = *random.pick(&lines);
        // Drawn aside: a case is what it is without them.
        let mut aside = random.clone().fork();
        let others = [32 << 10, 128 << 10, 256 << 10, 512 << 10];
        let line_bytes = if aside.one_in(4) { *aside.pick(&others) } else { line_bytes };
        Self { bytes, line_bytes, stability, copies: 1 }
    }
}

impl TierShape {
    fn draw(slices: u16, random: &mut Random) -> Self {
        let cache = CacheShape::draw(slices, random);
        Self {
            bytes: cache.bytes,
            line_bytes: cache.line_bytes,
            mode: draw_mode(random),
            cleaning: draw_cleaning(random),
            eviction: draw_eviction(random),
        }
    }

    pub(crate) fn description(&self) -> TierDescription {
        let Self { mode, cleaning, eviction, .. } = *self;
        TierDescription {
            device: "tier".into(),
            line: Size(self.line_bytes),
            settings: TierSettings { mode, cleaning, eviction, ..TierSettings::default() },
            volatile_allowed: true,
        }
    }
}

/// In some cases of one group with parity: more members, or narrower stripes, and spare space.
fn draw_spread((level, members): (Level, usize), random: &mut Random) -> (usize, Option<Spread>) {
    let can_spread = matches!(level, Level::Raid5 | Level::Raid6);
    if !random.one_in(3) || !can_spread {
        return (members, None);
    }
    let width = (level.group_members_min() + random.below(2) as usize).min(members) as u16;
    let spares = 1 + random.below(2) as u16;
    let members = members.max(usize::from(width + spares)) + random.below(2) as usize;
    (members, Some(Spread { width, spares }))
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, groups, members, slices, .. } = self;
        let strip = Size(self.strip_bytes);
        write!(f, "{level}, {members} members")?;
        if *groups > 1 {
            write!(f, " in {groups} groups")?;
        }
        if let Some(Spread { width, spares }) = self.spread {
            write!(f, " in stripes of {width} with {spares} distributed spares")?;
        }
        if let Some(weights) = &self.weights {
            write!(f, " of weights {weights}")?;
        }
        write!(f, " ({:?}), strip {strip}", self.members_are)?;
        write!(f, ", {} intent bitmap", if self.has_intent { "with" } else { "no" })?;
        if self.has_integrity {
            write!(f, ", checksums")?;
        }
        if !self.is_initialised {
            write!(f, ", parity not initialised")?;
        }
        match &self.cache {
            Some(cache) => {
                let (size, line) = (Size(cache.bytes), Size(cache.line_bytes));
                let stability = cache.stability;
                write!(f, "; cache of {size} ({stability:?}) in {slices} slices, lines of {line}")?;
                if let Some(copies) = self.copies() {
                    write!(f, ", on {copies} devices")?;
                }
            }
            None => write!(f, "; no cache")?,
        }
        if let Some(tier) = &self.tier {
            let (size, line, mode) = (Size(tier.bytes), Size(tier.line_bytes), tier.mode);
            write!(f, "; tier of {size} in {mode:?}, lines of {line}")?;
        }
        if let Some(when) = self.journal {
            write!(f, "; stripe journal ({when:?})")?;
        }
        if let Some(place) = self.idle_core.filter(|_| self.works_beside) {
            let what = if self.existing_beside { "an existing device" } else { "a core" };
            write!(f, "; {what} ({place:?}) with work of its own beside it")?;
        } else if let Some(idle) = self.idle_core {
            write!(f, "; an idle core ({idle:?}) beside it")?;
        }
        write!(f, "; window {} at {}", Size(self.window_bytes), Size(self.window_start))
    }
}
