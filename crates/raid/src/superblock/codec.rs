//! The superblock as bytes.

mod codes;
mod features;

use uuid::Uuid;

use super::{
    ArrayRecord, DATA_OFFSET_MIN, DecodeError, FillRecord, INTENT_BYTES, INTENT_OFFSET,
    JournalRecord, NAME_BYTES_MAX, RecordedParity, RecordedReshape, RecordedState, RecordedWork,
    RoleRecord, RoleState, SPARES_MAX, STAGE_BYTES, SUPERBLOCK_BYTES, SpareRecord, Superblock,
    VERSION,
};
use crate::checksum;
use crate::integrity;
use crate::intent;
use crate::journal::JournalWhen;
use crate::layout::{
    BASES_MAX, Declustering, Layout, MEMBERS_MAX, Role, SLOTS_MAX, Spread, WEIGHTED_MAX, Weights,
};
use crate::level::Level;
use codes::{parity_code, role_code, rotation, state_code};
use features::{
    FEATURE_DECLUSTERED, FEATURE_INTEGRITY, FEATURE_JOURNAL, FEATURE_LOST_BLOCKS, FEATURE_RESHAPE,
    FEATURE_WEIGHTS, FEATURES, features,
};

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
    pub const OWNER_CLEAN_SINCE: usize = 136;
    pub const OWNER_LIFE: usize = 144;
    pub const OWNER_GENERATION: usize = 176;
    pub const NAME: usize = 192;
    pub const OWNER: usize = 256;
    pub const INITIALISED: usize = 272;
    pub const SCRUBBED: usize = 280;
    pub const RESHAPE: usize = 288;
    pub const STAGED_ROWS: usize = 292;
    pub const MOVED_ROWS: usize = 296;
    pub const WEIGHTS: usize = 304;
    pub const INTEGRITY_REGION: usize = 344;
    pub const JOURNAL: usize = 456;
    pub const JOURNAL_EPOCH: usize = 472;
    pub const JOURNAL_GUARDED: usize = 480;
    pub const JOURNAL_WHEN: usize = 496;
    pub const JOURNAL_LOST: usize = 497;
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
    pub const HEIGHT: usize = 7240;
    pub const LENT: usize = 7296;
    pub const LENT_BYTES: usize = 16;
    pub const LENT_ROWS: usize = 8;
}

const _: () = assert!(at::MOVED_ROWS + 8 <= at::WEIGHTS);
const _: () = assert!(at::WEIGHTS + WEIGHTED_MAX <= at::INTEGRITY_REGION);
const _: () = assert!(at::INTEGRITY_REGION + 8 <= at::JOURNAL);
const _: () = assert!(at::ROLES + MEMBERS_MAX * at::ROLE_BYTES <= at::SPARES);
const _: () = assert!(at::SPARES + SPARES_MAX * at::SPARE_BYTES <= at::WIDTH);
const _: () = assert!(at::SEEDS + BASES_MAX * 4 <= at::HEIGHT && at::HEIGHT + 4 <= at::LENT);
const _: () = assert!(at::LENT + SLOTS_MAX as usize * at::LENT_BYTES <= SUPERBLOCK_BYTES);

/// The role of a hot spare.
const NO_ROLE: u16 = u16::MAX;
/// Strips of the highest pile: 4 GiB of the smallest ones.
const HEIGHT_MAX: u32 = 1 << 20;

/// The superblock as it is written.
///
/// # Panics
/// Where the name is too long or the shape impossible: both are checked when an array is made.
pub fn encode(superblock: &Superblock) -> Vec<u8> {
    let array = &superblock.array;
    let layout = array.layout().expect("the shape of an array was checked");
    assert!(array.name.len() <= NAME_BYTES_MAX, "array name of {} bytes", array.name.len());
    assert!(array.spares.len() <= SPARES_MAX, "{} spares", array.spares.len());
    let mut page = Page(vec![0; SUPERBLOCK_BYTES]);
    page.put(0, MAGIC);
    page.put(at::VERSION, &VERSION.to_le_bytes());
    page.put(at::SEQUENCE, &superblock.sequence.to_le_bytes());
    page.put(at::ARRAY_UUID, array.uuid.as_bytes());
    page.put(at::MEMBER_UUID, superblock.member_uuid.as_bytes());
    page.put(at::EVENT_COUNT, &array.event_count.to_le_bytes());
    page.put(at::DATA_OFFSET, &array.data_offset.to_le_bytes());
    page.put(at::DATA_BYTES, &array.member_data_bytes.to_le_bytes());
    page.put(at::ARRAY_BYTES, &layout.array_bytes().to_le_bytes());
    page.put(at::INTENT_OFFSET, &INTENT_OFFSET.to_le_bytes());
    page.put(at::INTENT_BYTES, &INTENT_BYTES.to_le_bytes());
    page.put(at::INTENT_REGION, &array.intent_region_stripes.unwrap_or(0).to_le_bytes());
    let region = array.integrity_region_stripes.unwrap_or(0);
    page.put(at::INTEGRITY_REGION, &region.to_le_bytes());
    page.put(at::STRIP_BYTES, &array.strip_bytes.to_le_bytes());
    page.put(at::BLOCK_BYTES, &array.logical_block_bytes.to_le_bytes());
    page.put(at::INCOMPAT, &features(array).to_le_bytes());
    page.put(at::ROLE, &role_number(superblock.role).to_le_bytes());
    page.put(at::MEMBERS, &(array.roles.len() as u16).to_le_bytes());
    page.put(at::GROUPS, &array.groups.to_le_bytes());
    page.put(at::LEVEL, &[array.level.number()]);
    page.put(at::PARITY_STRIPS, &[array.level.parity()]);
    page.put(at::COPIES, &[layout.copies() as u8]);
    page.put(at::ROTATION, &[rotation(array)]);
    page.put(at::STATE, &[state_code(array.state)]);
    page.put(at::PARITY, &[parity_code(array.parity)]);
    page.put(at::OWNER_GENERATION, &array.owner_generation.to_le_bytes());
    page.put(at::NAME, array.name.as_bytes());
    page.put(at::OWNER, array.owner.unwrap_or_default().as_bytes());
    page.put(at::INITIALISED, &array.work.initialised_stripes.to_le_bytes());
    let scrubbed = array.work.scrubbed_stripes.map_or(0, |stripes| stripes + 1);
    page.put(at::SCRUBBED, &scrubbed.to_le_bytes());
    page.put(at::OWNER_CLEAN_SINCE, &array.owner_clean_since.unwrap_or(0).to_le_bytes());
    page.put(at::OWNER_LIFE, &array.owner_life.to_le_bytes());
    page.put(at::ABSENT_SINCE, &array.absent_since.unwrap_or(0).to_le_bytes());
    page.put_members(array);
    page.put_declustering(array);
    page.put(at::WEIGHTS, array.weights.as_ref().map_or(&[], Weights::as_slice));
    page.put_journal(array);
    page.put_reshape(array);
    let Page(mut bytes) = page;
    let sum = checksum::with_hole(&bytes, at::CHECKSUM);
    bytes[at::CHECKSUM..at::CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// A superblock that is being written.
struct Page(Vec<u8>);

impl Page {
    fn put(&mut self, offset: usize, value: &[u8]) {
        self.0[offset..offset + value.len()].copy_from_slice(value);
    }

    fn put_members(&mut self, array: &ArrayRecord) {
        for (index, role) in array.roles.iter().enumerate() {
            let offset = at::ROLES + index * at::ROLE_BYTES;
            self.put(offset, role.member_uuid.as_bytes());
            self.put(offset + at::ROLE_STATE, &[role_code(role.state)]);
        }
        self.put(at::SPARE_COUNT, &[array.spares.len() as u8]);
        for (index, spare) in array.spares.iter().enumerate() {
            let offset = at::SPARES + index * at::SPARE_BYTES;
            let rows = spare.filling.map_or(0, |filled| filled.rows);
            self.put(offset, spare.member_uuid.as_bytes());
            let role = role_number(spare.filling.map(|filled| filled.role));
            self.put(offset + at::SPARE_ROLE, &role.to_le_bytes());
            self.put(offset + at::SPARE_ROWS, &rows.to_le_bytes());
        }
    }

    fn put_declustering(&mut self, array: &ArrayRecord) {
        let Some(declustering) = &array.declustering else { return };
        self.put(at::WIDTH, &declustering.spread.width.to_le_bytes());
        self.put(at::SLOTS, &declustering.spread.spares.to_le_bytes());
        self.put(at::BASES, &(declustering.seeds.len() as u16).to_le_bytes());
        self.put(at::HEIGHT, &declustering.height.to_le_bytes());
        for (index, seed) in declustering.seeds.iter().enumerate() {
            self.put(at::SEEDS + index * 4, &seed.to_le_bytes());
        }
        for (slot, lent) in array.lent.iter().enumerate() {
            let offset = at::LENT + slot * at::LENT_BYTES;
            self.put(offset, &role_number(lent.map(|lent| lent.role)).to_le_bytes());
            self.put(offset + at::LENT_ROWS, &lent.map_or(0, |lent| lent.rows).to_le_bytes());
        }
    }

    fn put_journal(&mut self, array: &ArrayRecord) {
        let Some(journal) = &array.journal else { return };
        self.put(at::JOURNAL, journal.uuid.as_bytes());
        self.put(at::JOURNAL_EPOCH, &journal.epoch.to_le_bytes());
        self.put(at::JOURNAL_GUARDED, &journal.guarded.to_le_bytes());
        self.put(at::JOURNAL_WHEN, &[u8::from(journal.when == JournalWhen::Always)]);
        self.put(at::JOURNAL_LOST, &[u8::from(journal.is_lost)]);
    }

    fn put_reshape(&mut self, array: &ArrayRecord) {
        match array.reshape {
            None => {}
            Some(RecordedReshape::Former) => self.put(at::RESHAPE, &[1]),
            Some(RecordedReshape::Next { moved_rows, staged_rows }) => {
                self.put(at::RESHAPE, &[2]);
                self.put(at::STAGED_ROWS, &(staged_rows as u32).to_le_bytes());
                self.put(at::MOVED_ROWS, &moved_rows.to_le_bytes());
            }
        }
    }
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
            weights: self.weights()?,
            strip_bytes: self.u32(at::STRIP_BYTES),
            logical_block_bytes: self.u32(at::BLOCK_BYTES),
            data_offset: self.u64(at::DATA_OFFSET),
            member_data_bytes: self.u64(at::DATA_BYTES),
            intent_region_stripes: Some(self.u64(at::INTENT_REGION)).filter(|count| *count > 0),
            integrity_region_stripes: self.integrity(),
            owner_generation: self.u64(at::OWNER_GENERATION),
            owner: Some(self.uuid(at::OWNER)).filter(|owner| !owner.is_nil()),
            roles: self.roles()?,
            spares: self.spares()?,
            lent: self.lent()?,
            work: self.work(),
            owner_clean_since: Some(self.u64(at::OWNER_CLEAN_SINCE)).filter(|event| *event > 0),
            owner_life: self.u64(at::OWNER_LIFE),
            absent_since: Some(self.u64(at::ABSENT_SINCE)).filter(|event| *event > 0),
            has_lost_blocks: self.u64(at::INCOMPAT) & FEATURE_LOST_BLOCKS != 0,
            journal: self.journal()?,
            reshape: self.reshape()?,
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
        self.check_reshape(array, &layout)?;
        let stripes = layout.stripes();
        if let Some(region) = array.intent_region_stripes.filter(|it| !intent::covers(stripes, *it))
        {
            return Err(impossible("intent region", region));
        }
        self.check_integrity(array, &layout)?;
        if !matches!(array.logical_block_bytes, 512 | 4096) {
            return Err(impossible("logical block", array.logical_block_bytes.into()));
        }
        for (field, at) in [("event count", at::EVENT_COUNT), ("sequence", at::SEQUENCE)] {
            let count = self.u64(at);
            expect(field, count, count.min(COUNT_MAX))?;
        }
        let since = array.absent_since.unwrap_or(0);
        expect("absent since", since, since.min(array.event_count))?;
        let since = array.owner_clean_since.unwrap_or(0);
        expect("owner clean since", since, since.min(array.event_count))?;
        expect("features", self.u64(at::INCOMPAT), features(array))?;
        if let Some(JournalRecord { epoch, .. }) = array.journal {
            expect("journal of a level without parity", parity, parity.max(1))?;
            expect("journal epoch", epoch, epoch.min(COUNT_MAX))?;
        }
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
        let area = size.checked_mul(layout.weight_max());
        let fits = area.and_then(|area| offset.checked_add(area)).is_some();
        if offset < DATA_OFFSET_MIN || !offset.is_multiple_of(4096) || !fits {
            return Err(impossible("data offset", offset));
        }
        Ok(())
    }

    /// Spare space stands in for roles that are lost, and once for each.
    fn check_lent(&self, array: &ArrayRecord) -> Result<(), DecodeError> {
        let rows = array.member_data_bytes / u64::from(array.strip_bytes);
        let lent: Vec<FillRecord> = array.lent.iter().copied().flatten().collect();
        for (index, FillRecord { role, rows: filled }) in lent.iter().copied().enumerate() {
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

    /// Only arrays without declustering, weights and journal are grown, and with redundancy those
    /// that have an intent bitmap.
    fn check_reshape(&self, array: &ArrayRecord, layout: &Layout) -> Result<(), DecodeError> {
        let Some(reshape) = array.reshape else { return Ok(()) };
        let is_marked = layout.redundancy() == 0 || array.intent_region_stripes.is_some();
        let has_fixed_shape = array.declustering.is_some() || array.weights.is_some();
        if has_fixed_shape || array.journal.is_some() || !is_marked {
            return Err(impossible("growth", self.u8(at::RESHAPE).into()));
        }
        let RecordedReshape::Next { moved_rows, staged_rows } = reshape else { return Ok(()) };
        if moved_rows > layout.rows() {
            return Err(impossible("moved rows", moved_rows));
        }
        let stage_rows = STAGE_BYTES / u64::from(array.strip_bytes);
        if staged_rows > moved_rows.min(stage_rows) {
            return Err(impossible("staged rows", staged_rows));
        }
        Ok(())
    }

    fn integrity(&self) -> Option<u64> {
        let is_there = self.u64(at::INCOMPAT) & FEATURE_INTEGRITY != 0;
        is_there.then(|| self.u64(at::INTEGRITY_REGION))
    }

    /// Only with redundancy, and with room for the checksums.
    fn check_integrity(&self, array: &ArrayRecord, layout: &Layout) -> Result<(), DecodeError> {
        let Some(region) = array.integrity_region_stripes else { return Ok(()) };
        let needed = integrity::data_offset_min(layout.member_data_bytes());
        let is_covered = intent::covers(layout.stripes(), region);
        match layout.redundancy() > 0 && is_covered && array.data_offset >= needed {
            true => Ok(()),
            false => Err(impossible("integrity region", region)),
        }
    }

    fn reshape(&self) -> Result<Option<RecordedReshape>, DecodeError> {
        if self.u64(at::INCOMPAT) & FEATURE_RESHAPE == 0 {
            return Ok(None);
        }
        match self.u8(at::RESHAPE) {
            1 => Ok(Some(RecordedReshape::Former)),
            2 => Ok(Some(RecordedReshape::Next {
                moved_rows: self.u64(at::MOVED_ROWS),
                staged_rows: self.u32(at::STAGED_ROWS).into(),
            })),
            other => Err(impossible("growth", other.into())),
        }
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
        let height = self.u32(at::HEIGHT);
        if height == 0 || height > HEIGHT_MAX {
            return Err(impossible("pile", height.into()));
        }
        Ok(Some(Declustering { spread, height, seeds }))
    }

    fn weights(&self) -> Result<Option<Weights>, DecodeError> {
        if self.u64(at::INCOMPAT) & FEATURE_WEIGHTS == 0 {
            return Ok(None);
        }
        let members = usize::from(self.u16(at::MEMBERS)).min(WEIGHTED_MAX);
        Ok(Some(Weights::new(self.0[at::WEIGHTS..at::WEIGHTS + members].to_vec())?))
    }

    fn lent(&self) -> Result<Vec<Option<FillRecord>>, DecodeError> {
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
            Ok(self.role(offset, members)?.map(|role| FillRecord { role, rows }))
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
            let filling = role.map(|role| FillRecord { role, rows });
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

    fn journal(&self) -> Result<Option<JournalRecord>, DecodeError> {
        if self.u64(at::INCOMPAT) & FEATURE_JOURNAL == 0 {
            return Ok(None);
        }
        let when = match self.u8(at::JOURNAL_WHEN) {
            0 => JournalWhen::Degraded,
            1 => JournalWhen::Always,
            other => return Err(impossible("use of the journal", other.into())),
        };
        Ok(Some(JournalRecord {
            uuid: self.uuid(at::JOURNAL),
            when,
            epoch: self.u64(at::JOURNAL_EPOCH),
            guarded: u128::from_le_bytes(self.array_of(at::JOURNAL_GUARDED)),
            is_lost: self.u8(at::JOURNAL_LOST) != 0,
        }))
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

fn role_number(role: Option<Role>) -> u16 {
    role.map_or(NO_ROLE, |role| role.0)
}

#[cfg(test)]
mod tests;
