//! What a volume is made of, as a file that people read and edit.
//!
//! The superblocks on the devices are the truth about what is on them; the description names the
//! devices to look at, the exports and the settings to start with.

pub(crate) mod change;
pub(crate) mod class_setting;
pub(crate) mod cutoff;
pub(crate) mod readahead;
pub(crate) mod settings;

use crate::{ArraySettings, BackgroundRate, CacheSettings, Size, TierSettings};
use headpond_block::BLOCK_BYTES;
use headpond_cache::{CleaningPolicy, SliceConfig};
use headpond_raid::{JournalWhen, Level, Spread, Striping};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A whole volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    pub name: String,
    /// Identity that the superblocks carry.
    pub uuid: Uuid,
    /// Parts of the volume with a log of their own; fixed at create.
    pub slices: u16,
    /// Interval of the owner's heartbeat on shared devices; 0 = none.
    #[serde(default = "each_second", skip_serializing_if = "is_each_second")]
    pub heartbeat_ms: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierDescription>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheDescription>,
    /// The first core, or the only one.
    pub core: CoreDescription,
    /// How the arrays of all cores work, and what clients may hold.
    #[serde(default, skip_serializing_if = "ArraySettings::is_default")]
    pub array: ArraySettings,
    /// Cores that share the cache with it.
    #[serde(default, rename = "further_core", skip_serializing_if = "Vec::is_empty")]
    pub further_cores: Vec<FurtherCoreDescription>,
    #[serde(default, rename = "export", skip_serializing_if = "Vec::is_empty")]
    pub exports: Vec<ExportDescription>,
}

/// A cache in memory in front of the cache, or of the core where there is no cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TierDescription {
    /// A volatile device, such as `ram:1G`.
    pub device: String,
    #[serde(default = "one_block", skip_serializing_if = "is_one_block")]
    pub line: Size,
    #[serde(flatten)]
    pub settings: TierSettings,
    /// The user accepts that its dirty data is lost in a power failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub volatile_allowed: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheDescription {
    /// Name of the device: a path, `ram:256M`, `model:...`.
    pub device: String,
    /// Line size for a new cache; later its superblock has it.
    #[serde(default = "one_block", skip_serializing_if = "is_one_block")]
    pub line: Size,
    /// Used part of the device for a new cache; `None` for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    #[serde(flatten)]
    pub settings: CacheSettings,
    /// The user accepts that the device is volatile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub volatile_allowed: bool,
    /// Where the device is one of several copies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirror: Option<MirrorDescription>,
}

/// The other copies of a cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MirrorDescription {
    /// Identity that the superblocks of all copies carry.
    pub uuid: Uuid,
    /// Beside the device of the cache, in any order.
    pub copies: Vec<String>,
    /// Hot spares for copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreDescription {
    pub raid: Level,
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub groups: u16,
    pub strip: Size,
    /// Whether the members have an intent bitmap.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub intent: bool,
    /// Whether the members have space for checksums of verified blocks; fixed at create.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub integrity: bool,
    /// In any order: the superblocks have the roles.
    pub members: Vec<String>,
    /// Hot spares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<String>,
    /// Stripes narrower than the array; fixed at create.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declustered: Option<Spread>,
    /// Striping over unequal members of level 0: `plain`, `capacity` or a list of weights; fixed at
    /// create.
    #[serde(default, skip_serializing_if = "is_plain")]
    pub striping: Striping,
    /// How fast background work on the array goes.
    #[serde(default, skip_serializing_if = "is_usual", alias = "upkeep")]
    pub background: BackgroundRate,
    /// Where the array was made with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalDescription>,
}

/// The stripe journal of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalDescription {
    pub device: String,
    /// Where an array is made; later its superblocks tell.
    #[serde(default)]
    pub when: JournalWhen,
    /// The device of the one that takes its place: while they are exchanged either may be in use,
    /// which the superblocks tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub successor: Option<String>,
}

/// A core beside the first: an array of its own, served as `VOLUME/NAME`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FurtherCoreDescription {
    pub name: String,
    /// What a rule of the I/O classes calls it (`core_id`), from 2 on: it stays when others go.
    pub id: u16,
    /// Identity that the superblocks of its members carry.
    pub uuid: Uuid,
    #[serde(flatten)]
    pub core: CoreDescription,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportDescription {
    /// `unix:PATH` or `tcp:HOST:PORT` for NBD, `ublk...` for a block device.
    pub address: String,
    /// The user knows that all who reach a TCP address may use it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
}

impl JournalDescription {
    pub fn of(device: String, when: JournalWhen) -> Self {
        Self { device, when, successor: None }
    }
}

impl CacheDescription {
    pub(crate) fn slice_config(&self) -> SliceConfig {
        self.settings.of_slice(self.volatile_allowed)
    }

    /// All that it lies on, or is to.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        let spares = self.mirror.iter().flat_map(|mirror| &mirror.spares);
        self.copies().chain(spares.map(String::as_str))
    }

    /// The devices that are copies of each other, or the only one.
    pub fn copies(&self) -> impl Iterator<Item = &str> {
        let others = self.mirror.iter().flat_map(|mirror| &mirror.copies);
        std::iter::once(&self.device).chain(others).map(String::as_str)
    }
}

/// A description that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    #[error("the description cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    #[error(
        "{name:?} cannot be the name of a volume: use up to {NAME_BYTES_MAX} letters, digits, '-', '_' and '.', \
         not starting with '.' or '-'"
    )]
    Name { name: String },
    #[error("a volume has 1 to {SLICES_MAX} slices, not {slices}")]
    Slices { slices: u16 },
    #[error(
        "cleaning=ordered keeps the order within a slice, and {volume} has {slices}: its array would not be \
         a consistent past state. Choose another policy, or create the volume with one slice"
    )]
    Order { volume: String, slices: u16 },
    #[error(
        "heartbeat_ms = {heartbeat_ms}: it is 0 for never, or {} to {}", HEARTBEAT_MS.start(),
        HEARTBEAT_MS.end()
    )]
    Heartbeat { heartbeat_ms: u32 },
    #[error("cache lines of {line}: a line is a power of two from 4K to 1M")]
    Line { line: Size },
    #[error("{device} is named twice: a device can have one place in a volume")]
    Repeated { device: String },
    #[error(
        "{name:?} cannot be the name of a core of {volume}: up to {NAME_BYTES_MAX} letters, digits, \
         '-', '_' and '.' together with the volume's, and no core has it yet"
    )]
    CoreName { volume: String, name: String },
    #[error("a further core has a number of its own, from 2 to {CORES_MAX}, not {id}")]
    CoreId { id: u16 },
    #[error("{uuid} is the identity of two cores")]
    CoreUuid { uuid: Uuid },
}

/// Longest name: what a member superblock has room for.
pub const NAME_BYTES_MAX: usize = 64;
pub const SLICES_MAX: u16 = 16;
pub const CORES_MAX: u16 = 64;
const _: () = assert!(CORES_MAX <= u8::MAX as u16, "a request says which core it is for");
/// How often the devices may be told who has the volume open.
const HEARTBEAT_MS: std::ops::RangeInclusive<u32> = 100..=60_000;
/// And how often they are where nothing is said.
pub const HEARTBEAT_MS_DEFAULT: u32 = 1000;
/// The number of the first core.
pub const FIRST_CORE: u16 = 1;

impl Description {
    /// Reads and checks a description.
    ///
    /// # Errors
    /// Where it is no TOML, lacks or has unknown fields, or breaks a rule; the error says which.
    pub fn parse(text: &str) -> Result<Self, DescriptionError> {
        let description: Self = toml::from_str(text)?;
        description.check()?;
        Ok(description)
    }

    /// Checks what the types cannot: names, slices, line, numbers of cores, no device twice.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn check(&self) -> Result<(), DescriptionError> {
        check_name(&self.name)?;
        if !(1..=SLICES_MAX).contains(&self.slices) {
            return Err(DescriptionError::Slices { slices: self.slices });
        }
        let heartbeat_ms = self.heartbeat_ms;
        if heartbeat_ms > 0 && !HEARTBEAT_MS.contains(&heartbeat_ms) {
            return Err(DescriptionError::Heartbeat { heartbeat_ms });
        }
        let lines =
            [self.tier.as_ref().map(|tier| tier.line), self.cache.as_ref().map(|cache| cache.line)];
        let is_odd = |line: &Size| !headpond_cache::is_line_size(line.bytes());
        if let Some(line) = lines.into_iter().flatten().find(is_odd) {
            return Err(DescriptionError::Line { line });
        }
        self.check_cores()?;
        let mut devices: Vec<&str> = self.devices().collect();
        devices.sort_unstable();
        match devices.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(DescriptionError::Repeated { device: pair[0].to_owned() }),
            None => Ok(()),
        }
    }

    /// The same for a volume that is made, or whose cache is, and that its cache can do what it is
    /// to do. One that is there already is opened all the same, and says what it cannot.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn check_new(&self) -> Result<(), DescriptionError> {
        self.check()?;
        self.check_order()
    }

    /// Flushes of several slices are one after the other in no log.
    ///
    /// # Errors
    /// Where the array is to be a consistent past, and cannot be.
    pub fn check_order(&self) -> Result<(), DescriptionError> {
        let policy = self.cache.as_ref().map(|cache| cache.settings.cleaning.policy);
        let (volume, slices) = (self.name.clone(), self.slices);
        match policy == Some(CleaningPolicy::Ordered) && slices > 1 {
            true => Err(DescriptionError::Order { volume, slices }),
            false => Ok(()),
        }
    }

    fn check_cores(&self) -> Result<(), DescriptionError> {
        for (index, core) in self.further_cores.iter().enumerate() {
            let FurtherCoreDescription { name, id, uuid, .. } = core.clone();
            let before = &self.further_cores[..index];
            let is_long = self.array_name(&core.name).len() > NAME_BYTES_MAX;
            if !is_name(&name) || is_long || before.iter().any(|other| other.name == name) {
                return Err(DescriptionError::CoreName { volume: self.name.clone(), name });
            }
            let is_taken = before.iter().any(|other| other.id == id);
            if id <= FIRST_CORE || id > CORES_MAX || is_taken {
                return Err(DescriptionError::CoreId { id });
            }
            if uuid == self.uuid || before.iter().any(|other| other.uuid == uuid) {
                return Err(DescriptionError::CoreUuid { uuid });
            }
        }
        Ok(())
    }

    /// What a further core of this name is served as, and its array is called.
    pub fn array_name(&self, core: &str) -> String {
        format!("{}/{core}", self.name)
    }

    /// The smallest number that a further core may have.
    ///
    /// # Errors
    /// Where there are as many cores as there may be.
    pub fn free_core_id(&self) -> Result<u16, DescriptionError> {
        let is_taken = |id: &u16| self.further_cores.iter().any(|core| core.id == *id);
        let free = (FIRST_CORE + 1..=CORES_MAX).find(|id| !is_taken(id));
        free.ok_or(DescriptionError::CoreId { id: CORES_MAX + 1 })
    }

    /// A further core as a volume of its own, without a cache.
    pub fn of_core_alone(&self, core: &FurtherCoreDescription, name: String) -> Self {
        Self {
            name,
            uuid: core.uuid,
            slices: 1,
            heartbeat_ms: self.heartbeat_ms,
            tier: None,
            cache: None,
            core: core.core.clone(),
            array: self.array.clone(),
            further_cores: Vec::new(),
            exports: Vec::new(),
        }
    }

    /// Each core with its identity, in order of address.
    pub fn cores(&self) -> impl Iterator<Item = (Uuid, &CoreDescription)> {
        let further = self.further_cores.iter().map(|further| (further.uuid, &further.core));
        std::iter::once((self.uuid, &self.core)).chain(further)
    }

    /// A core by its number.
    pub fn core_mut(&mut self, id: u16) -> Option<&mut CoreDescription> {
        if id == FIRST_CORE {
            return Some(&mut self.core);
        }
        let mut further = self.further_cores.iter_mut();
        further.find(|further| further.id == id).map(|further| &mut further.core)
    }

    /// The members and spares of all cores.
    pub fn members(&self) -> impl Iterator<Item = &str> {
        self.cores()
            .flat_map(|(_, core)| core.members.iter().chain(&core.spares).map(String::as_str))
    }

    /// The stripe journals of all cores, or what is to be one.
    pub fn journals(&self) -> impl Iterator<Item = &str> {
        let described = self.cores().filter_map(|(_, core)| core.journal.as_ref());
        described.flat_map(|it| [&it.device].into_iter().chain(&it.successor)).map(String::as_str)
    }

    /// The text of the file.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).expect("a description is plain data")
    }

    /// All devices that the description names.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        let tier = self.tier.iter().map(|tier| tier.device.as_str());
        let cache = self.cache.iter().flat_map(CacheDescription::devices);
        tier.chain(cache).chain(self.members()).chain(self.journals())
    }
}

/// Whether a volume could have this name, before it becomes part of a path.
///
/// # Errors
/// Where it could not.
pub fn check_name(name: &str) -> Result<(), DescriptionError> {
    match is_name(name) {
        true => Ok(()),
        false => Err(DescriptionError::Name { name: name.to_owned() }),
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.chars().all(is_plain)
        && !name.starts_with(['.', '-'])
}

fn is_usual(pace: &BackgroundRate) -> bool {
    *pace == BackgroundRate::default()
}

fn is_plain(striping: &Striping) -> bool {
    *striping == Striping::Plain
}

fn each_second() -> u32 {
    HEARTBEAT_MS_DEFAULT
}

fn is_each_second(heartbeat_ms: &u32) -> bool {
    *heartbeat_ms == HEARTBEAT_MS_DEFAULT
}

fn yes() -> bool {
    true
}

fn is_true(intent: &bool) -> bool {
    *intent
}

fn one_block() -> Size {
    Size(BLOCK_BYTES)
}

fn is_one_block(line: &Size) -> bool {
    *line == one_block()
}

fn one() -> u16 {
    1
}

fn is_one(groups: &u16) -> bool {
    *groups == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        name = "hv0"
        uuid = "6b7c8f0e-9a31-4d7e-8f7b-0d2c1f4a5e66"
        slices = 2
        [cache]
        device = "/dev/nvme0n1"
        mode = "write-back"
        cleaning = "stripe"
        [core]
        raid = 60
        groups = 2
        strip = "64K"
        members = ["/dev/a", "/dev/b"]
        [[export]]
        address = "unix:/run/headpond/hv0.sock"
    "#;

    #[test]
    fn an_older_description_is_read() {
        let old = include_str!("../../tests/fixtures/description-2026-11.toml");
        let read = Description::parse(old).unwrap();
        let settings = &read.array;
        assert_eq!(String::from(settings.member_read_timeout_ms), "500");
        assert_eq!(String::from(settings.member_timeout_ms), "off");
        assert_eq!(String::from(settings.member_timeouts_max), "4");
        let rate = BackgroundRate { min: Size(50 << 20), max: Some(Size(200 << 20)) };
        assert_eq!(read.core.background, rate);
        let written = toml::to_string(&read).unwrap();
        assert!(!written.contains("upkeep") && !written.contains("patience"), "{written}");
        assert_eq!(Description::parse(&written).unwrap(), read);
    }

    #[test]
    fn a_description_survives_being_written_and_read() {
        let description = Description::parse(TEXT).unwrap();
        assert_eq!(description.core.strip, Size(65536));
        assert_eq!(Description::parse(&description.to_toml()).unwrap(), description);
    }

    #[test]
    fn lines_are_of_4_kib_unless_the_description_says_otherwise() {
        let description = Description::parse(TEXT).unwrap();
        assert_eq!(description.cache.as_ref().unwrap().line, Size(4096));
        assert!(!description.to_toml().contains("line ="));
        let text = TEXT.replace("cleaning =", "line = \"64K\"\n cleaning =");
        let long = Description::parse(&text).unwrap();
        assert_eq!(long.cache.as_ref().unwrap().line, Size(65536));
        assert_eq!(Description::parse(&long.to_toml()).unwrap(), long);
    }

    #[test]
    fn a_tier_writes_through_unless_the_description_says_otherwise() {
        let plain = TEXT.replace("[cache]", "[tier]\n device = \"ram:1G\"\n [cache]");
        let description = Description::parse(&plain).unwrap();
        let tier = description.tier.as_ref().unwrap();
        assert_eq!(tier.settings, TierSettings::default());
        assert_eq!(tier.settings.mode, headpond_cache::Mode::WriteThrough);
        assert_eq!(Description::parse(&description.to_toml()).unwrap(), description);
        let twice = plain.replace("ram:1G", "/dev/nvme0n1");
        assert!(Description::parse(&twice).unwrap_err().to_string().contains("named twice"));
    }

    #[test]
    fn a_cache_has_copies_where_the_description_names_them() {
        let copies = "[cache.mirror]\n uuid = \"3a6f6a52-2d0f-4f8c-9d7a-000000000001\"\n \
                      copies = [\"/dev/nvme1n1\"]\n [core]";
        let description = Description::parse(&TEXT.replace("[core]", copies)).unwrap();
        let cache = description.cache.as_ref().unwrap();
        assert_eq!(cache.devices().collect::<Vec<_>>(), ["/dev/nvme0n1", "/dev/nvme1n1"]);
        assert_eq!(Description::parse(&description.to_toml()).unwrap(), description);
        let twice = TEXT.replace("[core]", &copies.replace("nvme1n1", "nvme0n1"));
        assert!(Description::parse(&twice).unwrap_err().to_string().contains("named twice"));
    }

    #[test]
    fn members_of_a_stripe_have_weights_where_the_description_says_so() {
        for (line, striping) in [
            ("striping = \"capacity\"", Striping::Capacity),
            ("striping = [3, 1]", Striping::Weighted(vec![3, 1].try_into().unwrap())),
        ] {
            let text = TEXT.replace("groups = 2", line);
            let description = Description::parse(&text).unwrap();
            assert_eq!(description.core.striping, striping);
            assert_eq!(Description::parse(&description.to_toml()).unwrap(), description);
        }
        assert_eq!(Description::parse(TEXT).unwrap().core.striping, Striping::Plain);
        assert!(Description::parse(&TEXT.replace("groups = 2", "striping = [3, 0]")).is_err());
    }

    const FURTHER: &str = r#"
        [[further_core]]
        name = "logs"
        id = 3
        uuid = "0d2c1f4a-9a31-4d7e-8f7b-6b7c8f0e5e66"
        raid = 1
        strip = "64K"
        members = ["/dev/c", "/dev/d"]
    "#;

    #[test]
    fn further_cores_have_names_and_numbers_of_their_own() {
        let text = format!("{TEXT}{FURTHER}");
        let description = Description::parse(&text).unwrap();
        assert_eq!(Description::parse(&description.to_toml()).unwrap(), description);
        let further = &description.further_cores[0];
        assert_eq!(
            (further.core.raid, description.array_name("logs")),
            (Level::Raid1, "hv0/logs".into())
        );
        assert_eq!(description.free_core_id().unwrap(), 2);
        assert_eq!(
            description.members().collect::<Vec<_>>(),
            ["/dev/a", "/dev/b", "/dev/c", "/dev/d"]
        );
        let alone = description.of_core_alone(further, "hv0-logs".into());
        assert_eq!((alone.uuid, alone.check().is_ok()), (further.uuid, true));
        let refuse = |from: &str, to: &str| {
            Description::parse(&text.replace(from, to)).unwrap_err().to_string()
        };
        assert!(refuse("\"logs\"", "\"a/b\"").contains("name of a core of hv0"));
        assert!(refuse("\"logs\"", &format!("{:?}", "x".repeat(61))).contains("name of a core"));
        assert!(refuse("id = 3", "id = 1").contains("from 2 to 64, not 1"));
        assert!(refuse("/dev/c", "/dev/a").contains("named twice"));
        let own = "6b7c8f0e-9a31-4d7e-8f7b-0d2c1f4a5e66";
        assert!(refuse("0d2c1f4a-9a31-4d7e-8f7b-6b7c8f0e5e66", own).contains("of two cores"));
        assert!(refuse("raid = 1\n", "raid = 1\n colour = 2\n").contains("colour"));
        let twice = format!("{text}{}", FURTHER.replace("/dev/", "/dev/x"));
        assert!(Description::parse(&twice).unwrap_err().to_string().contains("name of a core"));
    }

    #[test]
    fn a_mistake_is_named() {
        let refuse = |from: &str, to: &str| {
            let error = Description::parse(&TEXT.replace(from, to)).unwrap_err();
            error.to_string()
        };
        assert!(refuse("hv0\"\n", "a b\"\n").contains("cannot be the name"));
        assert!(refuse("slices = 2", "slices = 0").contains("1 to 16 slices"));
        assert!(refuse("/dev/b", "/dev/a").contains("named twice"));
        assert!(refuse("raid = 60", "raid = 7").contains("not a supported RAID level"));
        assert!(refuse("strip =", "chunk =").contains("unknown field"));
        let of_line = |it: &str| refuse("cleaning =", &format!("line = {it:?}\n cleaning ="));
        let is_told = |it: &&str| of_line(it).contains("a power of two from 4K to 1M");
        assert!(["2K", "48K", "2M"].iter().all(is_told));
    }
}
