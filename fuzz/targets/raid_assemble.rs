//! Members whose superblocks and intent pages were changed by hand: the array is refused, or it
//! serves.

#![no_main]

use std::rc::Rc;

use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, BufferPool, PoolConfig, Runtime};
use headpond_fuzz::{patch, seal};
use headpond_raid::superblock::{COPY_OFFSETS, DATA_OFFSET_MIN, SUPERBLOCK_BYTES};
use headpond_raid::{
    AfterUncleanStop, AssembleOptions, Contents, CreateOptions, Force, Integrity, Intent, Level,
    Occupied, Striping, Tuning, assemble, create,
};
use headpond_sim::run;
use libfuzzer_sys::fuzz_target;
use uuid::Uuid;

const MEMBERS: usize = 4;
const STRIP_BYTES: u32 = 4096;
const MEMBER_BYTES: u64 = DATA_OFFSET_MIN + 16 * STRIP_BYTES as u64;
const CHECKSUM_AT: usize = 12;
/// One change: which member and where, then what `patch` takes.
const CHANGE_BYTES: usize = 4;

fuzz_target!(|data: &[u8]| {
    let Some((&mode, changes)) = data.split_first() else { return };
    run(1, |runtime, _| damage_and_assemble(runtime, mode, changes)).expect("no deadlock");
});

async fn damage_and_assemble(runtime: Runtime, mode: u8, changes: &[u8]) {
    let rams: Vec<Rc<RamDevice>> = (0..MEMBERS).map(member).collect();
    let devices: Vec<Rc<dyn BlockDevice>> = rams.iter().map(|ram| ram.clone() as _).collect();
    create(&devices, &options(mode)).await.expect("empty members of one size");
    for change in changes.chunks_exact(CHANGE_BYTES) {
        damage(&rams[usize::from(change[0]) % MEMBERS], change[0] >> 6, &change[1..]);
    }
    let options = AssembleOptions {
        uuid: None,
        after_unclean_stop: AfterUncleanStop::DistrustParity,
        force: [Force::No, Force::GiveUp, Force::AcceptParity][usize::from(mode >> 3) % 3],
        tuning: Tuning {
            scratch_bytes_max: 1 << 20,
            deadlines: None,
            ..Tuning::with_pool(BufferPool::new(&PoolConfig { classes: Vec::new() }))
        },
        journals: Vec::new(),
    };
    let Ok(assembled) = assemble(&runtime, devices, options).await else { return };
    let array: &dyn BlockDevice = &assembled.array;
    let len = array.size_bytes().min(64 << 10) as usize & !4095;
    let _ = array.read(0, Buffer::zeroed(len)).await;
    let _ = array.write(4096, Buffer::zeroed(8192)).await;
    let _ = array.flush().await;
}

fn member(index: usize) -> Rc<RamDevice> {
    Rc::new(RamDevice::new(&*format!("member {index}"), MEMBER_BYTES))
}

fn options(mode: u8) -> CreateOptions {
    let (level, groups) =
        [(Level::Raid5, 1), (Level::Raid6, 1), (Level::Raid10, 2), (Level::Raid0, 1)]
            [usize::from(mode % 4)];
    CreateOptions {
        name: "fuzzed".to_owned(),
        uuid: Uuid::from_u128(1000),
        level,
        groups,
        declustered: None,
        striping: Striping::Plain,
        strip_bytes: STRIP_BYTES,
        contents: Contents::Zeros,
        intent: if mode & 4 == 0 { Intent::None } else { Intent::Bitmap },
        integrity: Integrity::None,
        occupied: Occupied::Refuse,
        owner: None,
        journal: None,
    }
}

/// Changes a byte of a superblock copy, and makes its checksum right; or of the intent pages.
fn damage(member: &RamDevice, area: u8, change: &[u8]) {
    let copy = COPY_OFFSETS.get(usize::from(area)).map(|offset| *offset as usize);
    let start = copy.unwrap_or(128 << 10);
    let place = member.memory().slice(start..start + SUPERBLOCK_BYTES);
    let mut bytes = place.to_vec();
    patch(&mut bytes, change);
    if copy.is_some() {
        bytes[CHECKSUM_AT..CHECKSUM_AT + 4].fill(0);
        seal(&mut bytes, CHECKSUM_AT, 0..SUPERBLOCK_BYTES);
    }
    place.copy_from(&bytes);
}
