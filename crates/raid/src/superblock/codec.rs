//! The superblock as bytes.

use uuid::Uuid;

use super::{
    ArrayRecord, DATA_OFFSET_MIN, DecodeError, Filled, INTENT_BYTES, INTENT_OFFSET, NAME_BYTES_MAX,
    RecordedParity, RecordedState, RecordedWork, RoleRecord, RoleState, SPARES_MAX,
    SUPERBLOCK_BYTES, SpareRecord, Superblock, VERSION,
};
use crate::checksum;
use crate::layout::{BASES_MAX, Declustering, MEMBERS_MAX, Role, SLOTS_MAX, Spread};
use crate::level::Level;

const MAGIC: &[u8; 8] = b"HPRAIDSB";

/// No array lives so long; a higher count could not be counted up for ever.
const COUNT_MAX: u64 = u64::MAX / 2;

/// Where each field lies; see `docs/format.md`.
mod at {
    pub const VERSION: usize = 8;
    pub const CHECKSUM: usize = 12;
    pub const RO_COMPAT: usize = 24;
    pub const INCOMPAT: usize = 32;
    pub const SEQUENCE: usize = 40;
    pub const ARRAY_UUID: usize = 48;
    pub const MEMBER_UUID: usize = 64;
    pub const EVENT_COUNT: usize = 80;
    pub const DATA_OFFSET: usize = 88;
    pub const DATA_BYTES: usize = 96;
    pub const ARRAY_BYTES: usize = 104;
    pub const INTENT_OFFSET: usize = 112;
    pub const INTENT_BYTES: usize = 120;
    pub const INTENT_REGION: usize = 128;
    pub const STRIP_BYTES: usize = 152;
    pub const BLOCK_BYTES: usize = 156;
    pub const ROLE: usize = 160;
    pub const MEMBERS: usize = 162;
    pub const GROUPS: usize = 164;
    pub const LEVEL: usize = 166;
    pub const PARITY_STRIPS: usize = 167;
    pub const COPIES: usize = 168;
    pub const ROTATION: usize = 169;
    pub const STATE: usize = 170;
    pub const PARITY: usize = 171;
    pub const SPARE_COUNT: usize = 172;
    pub const OWNER_GENERATION: usize = 176;
    pub const NAME: usize = 192;
    pub const OWNER: usize = 256;
    pub const INITIALISED: usize = 272;
    pub const SCRUBBED: usize = 280;
    pub const ABSENT_SINCE: usize = 504;
    pub const ROLES: usize = 512;
    pub const ROLE_BYTES: usize = 24;
    pub const ROLE_STATE: usize = 16;
    pub const SPARES: usize = 6656;
    pub const SPARE_BYTES: usize = 32;
    pub const SPARE_ROLE: usize = 16;
    pub const SPARE_ROWS: usize = 24;
    pub const WIDTH: usize = 7168;
    pub const SLOTS: usize = 7170;
    pub const BASES: usize = 7172;
    pub const SEEDS: usize = 7176;
    pub const LENT: usize = 7296;
    pub const LENT_BYTES: usize = 16;
    pub const LENT_ROWS: usize = 8;
}

const _: () = assert!(at::ROLES + MEMBERS_MAX * at::ROLE_BYTES <= at::SPARES);
const _: () = assert!(at::SPARES + SPARES_MAX * at::SPARE_BYTES <= at::WIDTH);
const _: () = assert!(at::SEEDS + BASES_MAX * 4 <= at::LENT);
const _: () = assert!(at::LENT + SLOTS_MAX as usize * at::LENT_BYTES <= SUPERBLOCK_BYTES);

/// The role of a spare that stands by.
const NO_ROLE: u16 = u16::MAX;
/// Incompat: a device of the array may be a spare, and hold its role in part.
const FEATURE_SPARES: u64 = 1;
/// Incompat: stripes are spread over more members than they have strips.
const FEATURE_DECLUSTERED: u64 = 1 << 2;
/// Incompat: what lies in the place of lost blocks is not their data.
const FEATURE_LOST_BLOCKS: u64 = 1 << 3;
const FEATURES: u64 = FEATURE_SPARES | FEATURE_DECLUSTERED | FEATURE_LOST_BLOCKS;

/// The superblock as it is written.
///
/// # Panics
/// Where the name is too long or the shape impossible: both are checked when an array is made.
pub fn encode(superblock: &Superblock) -> Vec<u8> {
    let array = &superblock.array;
    let layout = array.layout().expect("the shape of an array was checked");
    assert!(array.name.len() <= NAME_BYTES_MAX, "array name of {} bytes", array.name.len());
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    let mut put = |offset: usize, value: &[u8]| {
        bytes[offset..offset + value.len()].copy_from_slice(value);
    };
    put(0, MAGIC);
    put(at::VERSION, &VERSION.to_le_bytes());
    put(at::SEQUENCE, &superblock.sequence.to_le_bytes());
    put(at::ARRAY_UUID, array.uuid.as_bytes());
    put(at::MEMBER_UUID, superblock.member_uuid.as_bytes());
    put(at::EVENT_COUNT, &array.event_count.to_le_bytes());
    put(at::DATA_OFFSET, &array.data_offset.to_le_bytes());
    put(at::DATA_BYTES, &array.member_data_bytes.to_le_bytes());
    put(at::ARRAY_BYTES, &layout.array_bytes().to_le_bytes());
    put(at::INTENT_OFFSET, &INTENT_OFFSET.to_le_bytes());
    put(at::INTENT_BYTES, &INTENT_BYTES.to_le_bytes());
    put(at::INTENT_REGION, &array.intent_region_stripes.unwrap_or(0).to_le_bytes());
    put(at::STRIP_BYTES, &array.strip_bytes.to_le_bytes());
    put(at::BLOCK_BYTES, &array.logical_block_bytes.to_le_bytes());
    put(at::INCOMPAT, &features(array).to_le_bytes());
    put(at::ROLE, &role_number(superblock.role).to_le_bytes());
    put(at::MEMBERS, &(array.roles.len() as u16).to_le_bytes());
    put(at::GROUPS, &array.groups.to_le_bytes());
    put(at::LEVEL, &[array.level.number()]);
    put(at::PARITY_STRIPS, &[array.level.parity()]);
    put(at::COPIES, &[layout.copies() as u8]);
    put(at::ROTATION, &[rotation(array)]);
    put(at::STATE, &[state_code(array.state)]);
    put(at::PARITY, &[parity_code(array.parity)]);
    put(at::OWNER_GENERATION, &array.owner_generation.to_le_bytes());
    put(at::NAME, array.name.as_bytes());
    put(at::OWNER, array.owner.unwrap_or_default().as_bytes());
    for (index, role) in array.roles.iter().enumerate() {
        let offset = at::ROLES + index * at::ROLE_BYTES;
        put(offset, role.member_uuid.as_bytes());
        put(offset + at::ROLE_STATE, &[role_code(role.state)]);
    }
    put(at::SPARE_COUNT, &[array.spares.len() as u8]);
    for (index, spare) in array.spares.iter().enumerate() {
        let offset = at::SPARES + index * at::SPARE_BYTES;
        let rows = spare.filling.map_or(0, |filled| filled.rows);
        put(offset, spare.member_uuid.as_bytes());
        let role = role_number(spare.filling.map(|filled| filled.role));
        put(offset + at::SPARE_ROLE, &role.to_le_bytes());
        put(offset + at::SPARE_ROWS, &rows.to_le_bytes());
    }
    if let Some(declustering) = &array.declustering {
        put(at::WIDTH, &declustering.spread.width.to_le_bytes());
        put(at::SLOTS, &declustering.spread.spares.to_le_bytes());
        put(at::BASES, &(declustering.seeds.len() as u16).to_le_bytes());
        for (index, seed) in declustering.seeds.iter().enumerate() {
            put(at::SEEDS + index * 4, &seed.to_le_bytes());
        }
    }
    for (slot, lent) in array.lent.iter().enumerate() {
        let offset = at::LENT + slot * at::LENT_BYTES;
        put(offset, &role_number(lent.map(|lent| lent.role)).to_le_bytes());
        put(offset + at::LENT_ROWS, &lent.map_or(0, |lent| lent.rows).to_le_bytes());
    }
    put(at::INITIALISED, &array.work.initialised_stripes.to_le_bytes());
    let scrubbed = array.work.scrubbed_stripes.map_or(0, |stripes| stripes + 1);
    put(at::SCRUBBED, &scrubbed.to_le_bytes());
    put(at::ABSENT_SINCE, &array.absent_since.unwrap_or(0).to_le_bytes());
    let sum = checksum::with_hole(&bytes, at::CHECKSUM);
    bytes[at::CHECKSUM..at::CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// The superblock in `bytes`.
///
/// # Errors
/// Where it is none, or damaged, or of a kind not known here.
///
/// # Panics
/// Where `bytes` has not the size of a superblock.
pub fn decode(bytes: &[u8]) -> Result<Superblock, DecodeError> {
    assert_eq!(bytes.len(), SUPERBLOCK_BYTES);
    let fields = Fields(bytes);
    fields.check_envelope()?;
    let array = fields.array()?;
    let role = fields.role(at::ROLE, array.roles.len())?;
    let sequence = fields.u64(at::SEQUENCE);
    Ok(Superblock { array, member_uuid: fields.uuid(at::MEMBER_UUID), role, sequence })
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn check_envelope(&self) -> Result<(), DecodeError> {
        if self.0.iter().all(|byte| *byte == 0) {
            return Err(DecodeError::Zeroed);
        }
        if !self.0.starts_with(MAGIC) {
            return Err(DecodeError::Foreign);
        }
        let version = self.u32(at::VERSION);
        let (found, expected) = (self.u32(at::CHECKSUM), checksum::with_hole(self.0, at::CHECKSUM));
        if found != expected {
            return Err(DecodeError::Checksum { expected, found });
        }
        if version != VERSION {
            return Err(DecodeError::Version { found: version });
        }
        // Nothing here opens an array for reading only, so its unknown features refuse as well.
        match (self.u64(at::INCOMPAT) & !FEATURES) | self.u64(at::RO_COMPAT) {
            0 => Ok(()),
            unknown => Err(DecodeError::Incompatible { unknown }),
        }
    }

    fn array(&self) -> Result<ArrayRecord, DecodeError> {
        let level = self.u8(at::LEVEL);
        let level = Level::try_from(level).map_err(|_| impossible("level", level.into()))?;
        let array = ArrayRecord {
            uuid: self.uuid(at::ARRAY_UUID),
            name: self.name()?,
            event_count: self.u64(at::EVENT_COUNT),
            state: self.state()?,
            parity: self.parity()?,
            level,
            groups: self.u16(at::GROUPS),
            declustering: self.declustering()?,
            strip_bytes: self.u32(at::STRIP_BYTES),
            logical_block_bytes: self.u32(at::BLOCK_BYTES),
            data_offset: self.u64(at::DATA_OFFSET),
            member_data_bytes: self.u64(at::DATA_BYTES),
            intent_region_stripes: Some(self.u64(at::INTENT_REGION)).filter(|count| *count > 0),
            owner_generation: self.u64(at::OWNER_GENERATION),
            owner: Some(self.uuid(at::OWNER)).filter(|owner| !owner.is_nil()),
            roles: self.roles()?,
            spares: self.spares()?,
            lent: self.lent()?,
            work: self.work(),
            absent_since: Some(self.u64(at::ABSENT_SINCE)).filter(|event| *event > 0),
            has_lost_blocks: self.u64(at::INCOMPAT) & FEATURE_LOST_BLOCKS != 0,
        };
        self.check_shape(&array)?;
        Ok(array)
    }

    fn check_shape(&self, array: &ArrayRecord) -> Result<(), DecodeError> {
        let layout = array.layout()?;
        let expect = |field, value: u64, expected: u64| {
            if value == expected { Ok(()) } else { Err(impossible(field, value)) }
        };
        let size = self.u64(at::DATA_BYTES);
        expect("data size", size, layout.member_data_bytes())?;
        expect("array size", self.u64(at::ARRAY_BYTES), layout.array_bytes())?;
        expect("intent offset", self.u64(at::INTENT_OFFSET), INTENT_OFFSET)?;
        expect("intent size", self.u64(at::INTENT_BYTES), INTENT_BYTES)?;
        let parity = layout.parity_strips() as u64;
        expect("parity strips", self.u8(at::PARITY_STRIPS).into(), parity)?;
        expect("copies", self.u8(at::COPIES).into(), layout.copies() as u64)?;
        expect("rotation", self.u8(at::ROTATION).into(), rotation(array).into())?;
        self.check_lent(array)?;
        if !matches!(array.logical_block_bytes, 512 | 4096) {
            return Err(impossible("logical block", array.logical_block_bytes.into()));
        }
        for (field, at) in [("event count", at::EVENT_COUNT), ("sequence", at::SEQUENCE)] {
            let count = self.u64(at);
            expect(field, count, count.min(COUNT_MAX))?;
        }
        let since = array.absent_since.unwrap_or(0);
        expect("absent since", since, since.min(array.event_count))?;
        expect("features", self.u64(at::INCOMPAT), features(array))?;
        let rows = size / u64::from(array.strip_bytes);
        for filled in array.spares.iter().filter_map(|spare| spare.filling) {
            expect("filled rows", filled.rows, filled.rows.min(rows))?;
        }
        let work = array.work;
        let scrubbed = work.scrubbed_stripes.unwrap_or(0);
        for (field, stripes) in [("initialised", work.initialised_stripes), ("scrubbed", scrubbed)]
        {
            expect(field, stripes, stripes.min(layout.stripes()))?;
        }
        let offset = array.data_offset;
        let fits = offset.checked_add(size).is_some();
        if offset < DATA_OFFSET_MIN || !offset.is_multiple_of(4096) || !fits {
            return Err(impossible("data offset", offset));
        }
        Ok(())
    }

    /// Spare space stands in for roles that are lost, and once for each.
    fn check_lent(&self, array: &ArrayRecord) -> Result<(), DecodeError> {
        let rows = array.member_data_bytes / u64::from(array.strip_bytes);
        let lent: Vec<Filled> = array.lent.iter().copied().flatten().collect();
        for (index, Filled { role, rows: filled }) in lent.iter().copied().enumerate() {
            let is_twice = lent[..index].iter().any(|other| other.role == role);
            if is_twice || array.roles[role.index()].state == RoleState::Active {
                return Err(impossible("lent role", role.0.into()));
            }
            if filled > rows {
                return Err(impossible("lent rows", filled));
            }
        }
        if array.declustering.is_some() && array.groups != 1 {
            return Err(impossible("groups", array.groups.into()));
        }
        Ok(())
    }

    fn declustering(&self) -> Result<Option<Declustering>, DecodeError> {
        if self.u64(at::INCOMPAT) & FEATURE_DECLUSTERED == 0 {
            return Ok(None);
        }
        let bases = usize::from(self.u16(at::BASES));
        if bases == 0 || bases > BASES_MAX {
            return Err(impossible("base permutations", bases as u64));
        }
        let spread = Spread { width: self.u16(at::WIDTH), spares: self.u16(at::SLOTS) };
        let seeds = (0..bases).map(|index| self.u32(at::SEEDS + index * 4)).collect();
        Ok(Some(Declustering { spread, seeds }))
    }

    fn lent(&self) -> Result<Vec<Option<Filled>>, DecodeError> {
        if self.u64(at::INCOMPAT) & FEATURE_DECLUSTERED == 0 {
            return Ok(Vec::new());
        }
        let slots = self.u16(at::SLOTS);
        if slots > SLOTS_MAX {
            return Err(impossible("distributed spares", slots.into()));
        }
        let members = usize::from(self.u16(at::MEMBERS));
        let entry = |slot| {
            let offset = at::LENT + usize::from(slot) * at::LENT_BYTES;
            let rows = self.u64(offset + at::LENT_ROWS);
            Ok(self.role(offset, members)?.map(|role| Filled { role, rows }))
        };
        (0..slots).map(entry).collect()
    }

    fn roles(&self) -> Result<Vec<RoleRecord>, DecodeError> {
        let members = usize::from(self.u16(at::MEMBERS));
        if members == 0 || members > MEMBERS_MAX {
            return Err(impossible("members", members as u64));
        }
        let entry = |index| {
            let offset = at::ROLES + index * at::ROLE_BYTES;
            let state = match self.u8(offset + at::ROLE_STATE) {
                1 => RoleState::Active,
                2 => RoleState::Failed,
                3 => RoleState::Missing,
                other => return Err(impossible("state of a member", other.into())),
            };
            Ok(RoleRecord { member_uuid: self.uuid(offset), state })
        };
        (0..members).map(entry).collect()
    }

    fn spares(&self) -> Result<Vec<SpareRecord>, DecodeError> {
        let count = usize::from(self.u8(at::SPARE_COUNT));
        if count > SPARES_MAX {
            return Err(impossible("spares", count as u64));
        }
        let members = usize::from(self.u16(at::MEMBERS));
        let entry = |index| {
            let offset = at::SPARES + index * at::SPARE_BYTES;
            let rows = self.u64(offset + at::SPARE_ROWS);
            let role = self.role(offset + at::SPARE_ROLE, members)?;
            let filling = role.map(|role| Filled { role, rows });
            Ok(SpareRecord { member_uuid: self.uuid(offset), filling })
        };
        (0..count).map(entry).collect()
    }

    fn role(&self, offset: usize, members: usize) -> Result<Option<Role>, DecodeError> {
        match self.u16(offset) {
            NO_ROLE => Ok(None),
            role if usize::from(role) < members => Ok(Some(Role(role))),
            role => Err(impossible("role", role.into())),
        }
    }

    fn work(&self) -> RecordedWork {
        RecordedWork {
            initialised_stripes: self.u64(at::INITIALISED),
            scrubbed_stripes: self.u64(at::SCRUBBED).checked_sub(1),
        }
    }

    fn name(&self) -> Result<String, DecodeError> {
        let padded = &self.0[at::NAME..at::NAME + NAME_BYTES_MAX];
        let len = padded.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES_MAX);
        String::from_utf8(padded[..len].to_vec()).map_err(|_| DecodeError::Name)
    }

    fn state(&self) -> Result<RecordedState, DecodeError> {
        match self.u8(at::STATE) {
            1 => Ok(RecordedState::Creating),
            2 => Ok(RecordedState::Clean),
            3 => Ok(RecordedState::Dirty),
            4 => Ok(RecordedState::DirtyLogged),
            other => Err(impossible("state", other.into())),
        }
    }

    fn parity(&self) -> Result<RecordedParity, DecodeError> {
        match self.u8(at::PARITY) {
            1 => Ok(RecordedParity::Valid),
            2 => Ok(RecordedParity::NotInitialised),
            other => Err(impossible("parity", other.into())),
        }
    }

    fn array_of<const N: usize>(&self, offset: usize) -> [u8; N] {
        self.0[offset..offset + N].try_into().expect("the slice has N bytes")
    }

    fn u8(&self, offset: usize) -> u8 {
        self.0[offset]
    }

    fn u16(&self, offset: usize) -> u16 {
        u16::from_le_bytes(self.array_of(offset))
    }

    fn u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.array_of(offset))
    }

    fn u64(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.array_of(offset))
    }

    fn uuid(&self, offset: usize) -> Uuid {
        Uuid::from_bytes(self.array_of(offset))
    }
}

fn impossible(field: &'static str, value: u64) -> DecodeError {
    DecodeError::Field { field, value }
}

fn features(array: &ArrayRecord) -> u64 {
    let spares = if array.spares.is_empty() { 0 } else { FEATURE_SPARES };
    let declustered = if array.declustering.is_some() { FEATURE_DECLUSTERED } else { 0 };
    let lost = if array.has_lost_blocks { FEATURE_LOST_BLOCKS } else { 0 };
    spares | declustered | lost
}

fn role_number(role: Option<Role>) -> u16 {
    role.map_or(NO_ROLE, |role| role.0)
}

fn rotation(array: &ArrayRecord) -> u8 {
    match array.declustering {
        Some(_) => 2,
        None => u8::from(array.level.parity() > 0),
    }
}

fn state_code(state: RecordedState) -> u8 {
    match state {
        RecordedState::Creating => 1,
        RecordedState::Clean => 2,
        RecordedState::Dirty => 3,
        RecordedState::DirtyLogged => 4,
    }
}

fn parity_code(parity: RecordedParity) -> u8 {
    match parity {
        RecordedParity::Valid => 1,
        RecordedParity::NotInitialised => 2,
    }
}

fn role_code(state: RoleState) -> u8 {
    match state {
        RoleState::Active => 1,
        RoleState::Failed => 2,
        RoleState::Missing => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn superblocks() -> impl Strategy<Value = Superblock> {
        let shape = (prop::sample::select(Level::ALL.to_vec()), 1_u16..5, 0_usize..8, 12_u32..21);
        let counts = (0..=COUNT_MAX, 0..=COUNT_MAX, any::<u128>());
        (shape, "[a-z0-9 ä]{0,20}", counts, 1_u64..1 << 20, 0_u64..3).prop_map(
            |((level, groups, extra, shift), name, (event_count, sequence, uuid), rows, intent)| {
                let groups = if level.has_groups() { groups } else { 1 };
                let members = (level.group_members_min() + extra) * usize::from(groups);
                let states = [RoleState::Active, RoleState::Failed, RoleState::Missing];
                let role = |index: usize| RoleRecord {
                    member_uuid: Uuid::from_u128(uuid ^ index as u128),
                    state: states[index % 3],
                };
                let spare = |index: usize| SpareRecord {
                    member_uuid: Uuid::from_u128(!uuid ^ index as u128),
                    filling: index
                        .is_multiple_of(2)
                        .then_some(Filled { role: Role(0), rows: rows / 2 }),
                };
                let width = level.group_members_min() as u16;
                let spares = extra as u16 / 2;
                let can_decluster = matches!(level, Level::Raid5 | Level::Raid6);
                let declustering = can_decluster.then_some(Declustering {
                    spread: Spread { width, spares },
                    seeds: (0..1 + extra as u32).map(|index| index ^ sequence as u32).collect(),
                });
                let declustering = declustering.filter(|_| sequence % 5 > 0);
                let rows = rows * u64::from(width);
                let lent = |slot: u16| {
                    let role = Role(usize::from(slot) as u16 * 3 + 1);
                    (slot.is_multiple_of(2) && role.index() < members)
                        .then_some(Filled { role, rows: rows / 3 })
                };
                let slots = declustering.as_ref().map_or(0, |it| it.spread.spares);
                let array = ArrayRecord {
                    lent: (0..slots).map(lent).collect(),
                    declustering,
                    uuid: Uuid::from_u128(uuid),
                    name,
                    event_count,
                    state: RecordedState::Dirty,
                    parity: RecordedParity::NotInitialised,
                    level,
                    groups,
                    strip_bytes: 1 << shift,
                    logical_block_bytes: 4096,
                    data_offset: DATA_OFFSET_MIN,
                    member_data_bytes: rows << shift,
                    intent_region_stripes: Some(intent).filter(|intent| *intent > 0),
                    owner_generation: event_count ^ sequence,
                    owner: (event_count % 2 == 0).then(|| Uuid::from_u128(uuid.max(1))),
                    roles: (0..members).map(role).collect(),
                    spares: (0..event_count as usize % (SPARES_MAX + 1)).map(spare).collect(),
                    work: RecordedWork {
                        initialised_stripes: rows / 2,
                        scrubbed_stripes: (sequence % 2 == 0).then_some(rows),
                    },
                    absent_since: (event_count > 0).then(|| event_count.min(sequence + 1)),
                    has_lost_blocks: event_count % 3 == 0,
                };
                let role = Some(Role((members - 1) as u16)).filter(|_| sequence % 3 > 0);
                Superblock { array, member_uuid: Uuid::from_u128(!uuid), role, sequence }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn what_is_encoded_is_decoded(superblock in superblocks()) {
            prop_assert_eq!(decode(&encode(&superblock)), Ok(superblock));
        }

        #[test]
        fn every_changed_byte_is_noticed(
            superblock in superblocks(), at in 0..SUPERBLOCK_BYTES, change in 1..=255_u8,
        ) {
            let mut bytes = encode(&superblock);
            bytes[at] ^= change;
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn a_wrong_field_under_a_right_checksum_never_panics(
            superblock in superblocks(), at in 0_usize..1024, value in any::<u8>(),
        ) {
            let mut bytes = encode(&superblock);
            bytes[at] = value;
            let sum = checksum::with_hole(&bytes, at::CHECKSUM);
            bytes[at::CHECKSUM..at::CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
            let _ = decode(&bytes);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn a_count_near_its_end_is_impossible(superblock in superblocks(), past in 1..=COUNT_MAX) {
            for at in [at::EVENT_COUNT, at::SEQUENCE] {
                let mut bytes = encode(&superblock);
                bytes[at..at + 8].copy_from_slice(&(COUNT_MAX + past).to_le_bytes());
                let sum = checksum::with_hole(&bytes, at::CHECKSUM);
                bytes[at::CHECKSUM..at::CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
                let refused = matches!(decode(&bytes), Err(DecodeError::Field { .. }));
                prop_assert!(refused, "a count of {}", COUNT_MAX + past);
            }
        }
    }

    #[test]
    fn empty_and_foreign_blocks_are_told_apart() {
        assert_eq!(decode(&[0; SUPERBLOCK_BYTES]), Err(DecodeError::Zeroed));
        assert_eq!(decode(&[7; SUPERBLOCK_BYTES]), Err(DecodeError::Foreign));
    }
}
