//! A member's superblock: any bytes, and a sound one in which some bytes were changed and the
//! checksum made right again.

#![no_main]

use headpond_fuzz::{patch, seal, sized};
use headpond_raid::integrity;
use headpond_raid::layout::{Declustering, Layout, Role, Spread, Weights};
use headpond_raid::level::Level;
use headpond_raid::superblock::{
    ArrayRecord, DATA_OFFSET_MIN, FillRecord, RecordedParity, RecordedReshape, RecordedState,
    RecordedWork, RoleRecord, RoleState, SUPERBLOCK_BYTES, SpareRecord, Superblock, decode, encode,
};
use libfuzzer_sys::fuzz_target;
use uuid::Uuid;

const CHECKSUM_AT: usize = 12;

fuzz_target!(|data: &[u8]| {
    let _ = decode(&sized(data, SUPERBLOCK_BYTES));
    let Some((&shape, changes)) = data.split_first() else { return };
    let mut bytes = encode(&sound(shape));
    patch(&mut bytes, changes);
    bytes[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
    seal(&mut bytes, CHECKSUM_AT, 0..SUPERBLOCK_BYTES);
    if let Ok(superblock) = decode(&bytes) {
        let again = decode(&encode(&superblock)).expect("what was decoded can be written");
        assert_eq!(again, superblock);
    }
});

fn sound(shape: u8) -> Superblock {
    let (level, members, groups) = [
        (Level::Raid0, 3, 1),
        (Level::Raid1, 2, 1),
        (Level::Raid10, 4, 2),
        (Level::Raid5, 3, 1),
        (Level::Raid6, 5, 1),
        (Level::Raid50, 6, 2),
        (Level::Raid60, 40, 4),
        (Level::Raid6, 11, 1),
    ][usize::from(shape % 8)];
    let layout = Layout::new(level, members, groups, 64 << 10, 1 << 30).expect("a sound shape");
    let spread = Spread { width: 4, spares: 3 };
    let declustering =
        (members == 11).then(|| Declustering { spread, height: 2, seeds: vec![5, 9] });
    let lent = declustering.as_ref().map_or(Vec::new(), |_| vec![None; 3]);
    let has_sums = shape & 24 == 16 && level != Level::Raid0;
    let role = |index| RoleRecord { member_uuid: Uuid::from_u128(index), state: RoleState::Active };
    let array = ArrayRecord {
        uuid: Uuid::from_u128(1000),
        name: "fuzzed".to_owned(),
        event_count: 7,
        state: RecordedState::Clean,
        parity: RecordedParity::Valid,
        level,
        groups: groups as u16,
        declustering,
        lent,
        strip_bytes: 64 << 10,
        logical_block_bytes: 512,
        data_offset: match has_sums {
            true => integrity::data_offset_min(layout.member_data_bytes()),
            false => DATA_OFFSET_MIN,
        },
        member_data_bytes: layout.member_data_bytes(),
        intent_region_stripes: (shape & 8 != 0).then_some(64),
        integrity_region_stripes: has_sums.then_some(64),
        owner_generation: 2,
        owner: Some(Uuid::from_u128(3)),
        owner_clean_since: Some(4),
        owner_life: 5,
        roles: (0..members as u128).map(role).collect(),
        spares: spares(shape),
        work: RecordedWork { initialised_stripes: 5, scrubbed_stripes: Some(0) },
        absent_since: Some(6),
        has_lost_blocks: shape & 64 != 0,
        journal: None,
        weights: (shape & 71 == 64).then(|| Weights::try_from(vec![3, 1, 2]).expect("possible")),
        reshape: (shape & 8 != 0 && members != 11 && level != Level::Raid0)
            .then_some(RecordedReshape::Next { moved_rows: 9, staged_rows: 4 }),
    };
    let role = (shape & 32 == 0).then_some(Role(0));
    Superblock { array, member_uuid: Uuid::from_u128(0), role, sequence: 3 }
}

/// None, or one that stands by and one that is being given a role.
fn spares(shape: u8) -> Vec<SpareRecord> {
    if shape & 16 == 0 {
        return Vec::new();
    }
    let filling = Some(FillRecord { role: Role(1), rows: 9 });
    let spare = |uuid, filling| SpareRecord { member_uuid: Uuid::from_u128(uuid), filling };
    vec![spare(100, None), spare(101, filling)]
}
