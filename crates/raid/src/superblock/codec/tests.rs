//! Superblocks of all shapes are encoded and decoded, and damaged ones are detected.

use super::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;

const STATES: [RoleState; 3] = [RoleState::Active, RoleState::Failed, RoleState::Missing];

fn superblocks() -> impl Strategy<Value = Superblock> {
    let shape = (prop::sample::select(Level::ALL.to_vec()), 1_u16..5, 0_usize..8, 12_u32..21);
    let counts = (0..=COUNT_MAX, 0..=COUNT_MAX, any::<u128>());
    (shape, "[a-z0-9 ä]{0,20}", counts, 1_u64..1 << 20, 0_u64..3).prop_map(
        |((level, groups, extra, shift), name, (event_count, sequence, uuid), rows, intent)| {
            let groups = if level.has_groups() { groups } else { 1 };
            let members = (level.group_members_min() + extra) * usize::from(groups);
            let role = |index: usize| RoleRecord {
                member_uuid: Uuid::from_u128(uuid ^ index as u128),
                state: STATES[index % 3],
            };
            let spare = |index: usize| SpareRecord {
                member_uuid: Uuid::from_u128(!uuid ^ index as u128),
                filling: index
                    .is_multiple_of(2)
                    .then_some(FillRecord { role: Role(0), rows: rows / 2 }),
            };
            let (width, spares) = (level.group_members_min() as u16, extra as u16 / 2);
            let can_decluster =
                matches!(level, Level::Raid5 | Level::Raid6) && !sequence.is_multiple_of(5);
            let declustering = can_decluster
                .then(|| declustering(Spread { width, spares }, extra as u32, sequence));
            let rows = rows * u64::from(width) * 6;
            let lent = |slot: u16| {
                let role = Role(usize::from(slot) as u16 * 3 + 1);
                (slot.is_multiple_of(2) && role.index() < members)
                    .then_some(FillRecord { role, rows: rows / 3 })
            };
            let slots = 0..declustering.as_ref().map_or(0, |it| it.spread.spares);
            let array = ArrayRecord {
                lent: slots.map(lent).collect(),
                declustering,
                weights: (level == Level::Raid0 && event_count % 2 == 0)
                    .then(|| weights(members, sequence)),
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
                intent_region_stripes: None,
                integrity_region_stripes: None,
                owner_generation: event_count ^ sequence,
                owner: (event_count % 2 == 0).then(|| Uuid::from_u128(uuid.max(1))),
                owner_life: sequence,
                owner_clean_since: (event_count > 1).then(|| event_count - 1),
                roles: (0..members).map(role).collect(),
                spares: (0..event_count as usize % (SPARES_MAX + 1)).map(spare).collect(),
                work: RecordedWork {
                    initialised_stripes: rows / 2,
                    scrubbed_stripes: (sequence % 2 == 0).then_some(rows),
                },
                absent_since: (event_count > 0).then(|| event_count.min(sequence + 1)),
                has_lost_blocks: event_count % 3 == 0,
                journal: (level.parity() > 0 && sequence % 5 > 1)
                    .then(|| journal(uuid, event_count, sequence)),
                reshape: None,
            };
            let array = with_intent(array, intent);
            let reshape = reshape(event_count, rows.min(STAGE_BYTES >> shift));
            let array = ArrayRecord { reshape: reshape.filter(|_| can_grow(&array)), ..array };
            of_last_member(with_integrity(array, sequence), sequence)
        },
    )
}

fn of_last_member(array: ArrayRecord, sequence: u64) -> Superblock {
    let role = Some(Role((array.roles.len() - 1) as u16)).filter(|_| !sequence.is_multiple_of(3));
    let member_uuid = Uuid::from_u128(!array.uuid.as_u128());
    Superblock { array, member_uuid, role, sequence }
}

fn with_intent(array: ArrayRecord, region: u64) -> ArrayRecord {
    let stripes = array.layout().expect("a possible shape").stripes();
    let is_covered = |region: &u64| intent::covers(stripes, *region);
    ArrayRecord { intent_region_stripes: Some(region).filter(is_covered), ..array }
}

fn with_integrity(array: ArrayRecord, sequence: u64) -> ArrayRecord {
    if array.level == Level::Raid0 || array.reshape.is_some() || sequence % 4 != 1 {
        return array;
    }
    let data_offset = integrity::data_offset_min(array.member_data_bytes);
    let layout = array.layout().expect("a possible shape");
    let integrity_region_stripes = Some(intent::region_stripes(&layout));
    ArrayRecord { data_offset, integrity_region_stripes, ..array }
}

fn declustering(spread: Spread, extra: u32, sequence: u64) -> Declustering {
    let seeds = (0..1 + extra).map(|index| index ^ sequence as u32).collect();
    Declustering { spread, height: 1 + extra % 3, seeds }
}

fn can_grow(array: &ArrayRecord) -> bool {
    let has_fixed_shape = array.declustering.is_some() || array.weights.is_some();
    !has_fixed_shape && array.journal.is_none() && array.intent_region_stripes.is_some()
}

fn reshape(event_count: u64, rows: u64) -> Option<RecordedReshape> {
    let next = RecordedReshape::Next { moved_rows: rows, staged_rows: rows / 2 };
    [None, Some(RecordedReshape::Former), Some(next)][event_count as usize % 3]
}

fn weights(members: usize, sequence: u64) -> Weights {
    let weight = |index: usize| (sequence >> (index % 8)) as u8 | 1;
    Weights::new((0..members).map(weight).collect()).expect("few, and none is zero")
}

fn journal(uuid: u128, event_count: u64, sequence: u64) -> JournalRecord {
    JournalRecord {
        uuid: Uuid::from_u128(uuid / 2),
        when: [JournalWhen::Degraded, JournalWhen::Always][sequence as usize % 2],
        epoch: event_count / 3,
        guarded: uuid,
        is_lost: event_count.is_multiple_of(2),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn encoding_and_decoding_round_trip(superblock in superblocks()) {
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

/// The format: an array with weights of 3, 1 and 2 and nothing else of note.
#[test]
fn weights_lie_where_the_format_says_and_older_programs_refuse_them() {
    let role =
        |index: u128| RoleRecord { member_uuid: Uuid::from_u128(index), state: RoleState::Active };
    let array = ArrayRecord {
        uuid: Uuid::from_u128(7),
        name: "golden".into(),
        event_count: 2,
        state: RecordedState::Clean,
        parity: RecordedParity::Valid,
        level: Level::Raid0,
        groups: 1,
        declustering: None,
        weights: Some(Weights::new(vec![3, 1, 2]).unwrap()),
        strip_bytes: 64 << 10,
        logical_block_bytes: 512,
        data_offset: DATA_OFFSET_MIN,
        member_data_bytes: 1 << 20,
        intent_region_stripes: None,
        integrity_region_stripes: None,
        owner_generation: 0,
        owner: None,
        owner_clean_since: None,
        owner_life: 0,
        roles: (1..=3).map(role).collect(),
        spares: Vec::new(),
        lent: Vec::new(),
        work: RecordedWork::default(),
        absent_since: None,
        has_lost_blocks: false,
        journal: None,
        reshape: None,
    };
    assert_eq!(array.data_bytes_of(Role(0)), 3 << 20);
    let superblock =
        Superblock { array, member_uuid: Uuid::from_u128(2), role: Some(Role(1)), sequence: 2 };
    let bytes = encode(&superblock);
    assert_eq!(bytes[32..40], [0x20, 0, 0, 0, 0, 0, 0, 0], "bit 5 of the incompat flags");
    assert_eq!(bytes[96..104], (1_u64 << 20).to_le_bytes(), "the size of a weight of one");
    assert_eq!(bytes[104..112], (6_u64 << 20).to_le_bytes(), "of the array");
    assert_eq!(bytes[304..340], [&[3, 1, 2][..], &[0; 33]].concat());
    assert_eq!(bytes[12..16], GOLDEN_CHECKSUM.to_le_bytes(), "{:02x?}", &bytes[12..16]);
    assert_eq!(decode(&bytes), Ok(superblock));
}

/// Of all bytes of that superblock.
const GOLDEN_CHECKSUM: u32 = 0x7d2d_2d43;

#[test]
fn weights_of_zero_and_of_other_levels_are_impossible() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..200 {
        let superblock = superblocks().new_tree(&mut runner).unwrap().current();
        let (is_weighted, level) = (superblock.array.weights.is_some(), superblock.array.level);
        let mut bytes = encode(&superblock);
        bytes[at::WEIGHTS..at::WEIGHTS + 4].fill(u8::from(level != Level::Raid0));
        bytes[at::INCOMPAT] |= FEATURE_WEIGHTS as u8;
        let sum = checksum::with_hole(&bytes, at::CHECKSUM);
        bytes[at::CHECKSUM..at::CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
        assert!(decode(&bytes).is_err(), "{level}, {is_weighted}");
    }
}
