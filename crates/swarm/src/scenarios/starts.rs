//! What must not be put together, and what is cut while it is made: rows 13, 24 to 28, 43.

use super::rig::{Rig, cached_raid5, claimant, places_on};
use crate::machine::{Machine, careful};
use crate::topology::Topology;
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{Geometry, RequestKind, Runtime};
use headpond_cache::Mode;
use headpond_raid::{AssembleError, Occupied};
use headpond_sim::{Ended, Medium, Sim, run_until_cut};
use headpond_volume::{
    AlertKind, ClaimError, CreateOptions, Description, OpenError, OpenOptions, Tolerance, Volume,
};
use std::rc::Rc;
use uuid::Uuid;

const OTHER: Uuid = Uuid::from_u128(0x0123);

/// Creates a volume over whatever the devices hold; whether that was done before the power went.
fn create(rig: &Rig, description: &Description, cache: Uuid) -> bool {
    let machine = &rig.machine;
    let main = async |runtime: Runtime, sim: Sim| {
        let devices = machine.devices(&runtime, &sim, &rig.absent, &machine.controls());
        let options = machine.topology.create_options();
        let options = CreateOptions { occupied: Occupied::Overwrite, cache, ..options };
        Volume::create(description, &devices, &options).await.expect("made");
    };
    matches!(run_until_cut(1, &machine.power, main), Ok(Ended::Finished(())))
}

pub(super) fn creation_cut_anywhere_leaves_no_volume_or_a_whole_one() {
    let (mut born, mut unborn) = (0, 0);
    for at in 0.. {
        let rig = Rig::of(Machine::blank(cached_raid5(), 1));
        rig.machine.power.cut_after(at);
        let is_done = create(&rig, &rig.description, Uuid::from_u128(7));
        rig.cut(at);
        match rig.try_live(async |scene| {
            scene.expect(3, 0).await;
            scene.promise(3, 1).await;
            scene.expect(3, 1).await;
            assert!(scene.volume.status().array.members.iter().all(|it| it.device.is_some()));
        }) {
            Ended::Finished(Ok(())) => born += 1,
            Ended::Finished(Err(error)) => {
                assert!(!is_done && error.is_refusal(), "cut at {at}: {error}");
                unborn += 1;
            }
            Ended::Cut => unreachable!("the power is on"),
        }
        rig.halt();
        assert!(create(&rig, &rig.description, Uuid::from_u128(8)), "it can be made again");
        rig.halt();
        rig.live(async |scene| scene.expect(3, 0).await);
        if is_done {
            break;
        }
    }
    assert!(born > 0 && unborn > 10, "{born} born, {unborn} not");
}

/// The old volume has dirty data in its cache: it is whole, or gone, and nothing of it is in the
/// new one.
pub(super) fn recreation_cut_anywhere_leaves_the_old_volume_or_the_new_one_or_none() {
    let old = Rig::in_mode(Mode::WriteBack);
    old.live(async |scene| {
        scene.promise(3, 1).await;
        scene.volume.stop().await.expect("stops");
    });
    old.halt();
    let (mut olds, mut news) = (0, 0);
    for at in 0.. {
        let rig = Rig::of(old.machine.duplicate());
        let new = Description { uuid: OTHER, ..rig.description.clone() };
        rig.machine.power.cut_after(at);
        let is_done = create(&rig, &new, Uuid::from_u128(7));
        rig.cut(at);
        for (description, byte) in [(rig.description.clone(), 1), (new, 0)] {
            let mut copy = Rig::of(rig.machine.duplicate());
            copy.description = description;
            match copy.try_live(async |scene| scene.expect(3, byte).await) {
                Ended::Finished(Ok(())) if byte == 1 => olds += 1,
                Ended::Finished(Ok(())) => news += 1,
                Ended::Finished(Err(error)) => {
                    assert!(!is_done || byte == 1, "cut at {at}: {error}");
                    assert!(error.is_refusal(), "cut at {at}: {error}");
                }
                Ended::Cut => unreachable!("the power is on"),
            }
        }
        if is_done {
            break;
        }
    }
    assert!(olds > 0 && news > 0, "{olds} old, {news} new");
}

pub(super) fn cache_of_another_volume_is_refused_and_both_are_named() {
    let mut rig = Rig::in_mode(Mode::WriteBack);
    let other = Rig::of(Machine::blank(cached_raid5(), 1));
    let description = Description { uuid: OTHER, ..other.description.clone() };
    assert!(create(&other, &description, Uuid::from_u128(7)));
    other.halt();
    rig.machine.cache = other.machine.cache.clone();
    let refused = rig.refusal();
    let text = refused.to_string();
    assert!(text.contains(&OTHER.to_string()), "{text}");
    assert!(text.contains(&rig.description.uuid.to_string()), "{text}");
    let alert = refused.alert("v");
    assert_eq!((alert.kind, &alert.cause), (AlertKind::StartRefused, &text));
    assert!(alert.action.contains("the volume's own cache"), "{alert}");
}

pub(super) fn volume_that_another_host_has_open_is_refused_until_that_one_has_stopped() {
    let rig = Rig::in_mode(Mode::WriteBack);
    let description = Description { heartbeat_ms: 1000, ..rig.description.clone() };
    let main = async |runtime: Runtime, sim: Sim| {
        let open = async |host: u128| {
            let controls = rig.machine.controls();
            let devices = rig.machine.devices(&runtime, &sim, &rig.absent, &controls);
            let options = OpenOptions { claimant: Some(claimant(host)), ..careful() };
            Volume::open(&runtime, &description, devices, options).await
        };
        let volume = open(1).await.expect("nobody has it");
        let refused = open(2).await.map(drop).expect_err("host 1 has it");
        let is_in_use = matches!(&refused, OpenError::Owned(ClaimError::InUse { host, .. }) if host == "host 1");
        assert!(is_in_use && refused.is_refusal(), "{refused}");
        volume.stop().await.expect("stops");
        open(2).await.expect("host 1 has stopped").stop().await.expect("stops");
    };
    let ended = run_until_cut(1, &rig.machine.power, main).expect("no deadlock");
    assert!(!ended.was_cut());
}

pub(super) fn cache_whose_core_went_on_without_it_is_refused() {
    let rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        scene.controls.cache.add(FaultRule::on(RequestKind::Write, Fault::Media));
        scene.write(3, 2).await.expect("goes to the core");
        scene.flush().await.expect("flushes");
    });
    rig.cut(1);
    let refused = rig.refusal();
    let is_stale = matches!(
        refused,
        OpenError::Cache(headpond_cache::OpenError::Generation { expected: 1, found: 0, .. })
    );
    assert!(is_stale, "{refused}");
    let alert = refused.alert("v");
    assert!(alert.at_risk.what.contains("dirty data of that cache"), "{alert}");
    assert!(alert.action.contains("headpond serve v --force"), "{alert}");
}

/// Somebody takes the cache out of the description, works on the array, and puts it back.
pub(super) fn cache_that_the_description_forgets_is_asked_for_and_never_comes_back_stale() {
    let mut rig = Rig::in_mode(Mode::WriteBack);
    rig.live(async |scene| {
        scene.promise(3, 1).await;
        scene.volume.stop().await.expect("stops");
    });
    rig.halt();
    let cache = rig.description.cache.take();
    let refused = rig.refusal();
    assert!(matches!(refused, OpenError::UnnamedCache { .. }), "{refused}");
    assert!(refused.alert("v").action.contains("reconnect the cache"), "{refused}");
    rig.tolerance = Tolerance::Forced;
    rig.live(async |scene| {
        scene.promise(3, 2).await;
        scene.volume.stop().await.expect("stops");
    });
    rig.halt();
    rig.description.cache = cache;
    rig.tolerance = Tolerance::Careful;
    rig.live(async |scene| {
        assert!(scene.volume.status().cache.is_none());
        assert!(scene.warns("not attached"));
        scene.expect(3, 2).await;
    });
}

/// Another program writes to blocks that the cache has as well, while the volume is stopped.
pub(super) fn core_that_was_written_outside_is_refused_while_the_cache_is_dirty() {
    [1, 2].into_iter().for_each(refused_once_written_outside);
}

fn refused_once_written_outside(slices: u16) {
    let mut rig = Rig::new(Topology { slices, ..cached_raid5() });
    const DIRTY: (u64, u8) = (40, 99);
    rig.live(async |scene| {
        for block in 0..32 {
            scene.write(block, 100 + block as u8).await.expect("takes the write");
        }
        scene.volume.clean_all().await.expect("cleans");
        scene.promise(DIRTY.0, DIRTY.1).await;
        scene.volume.stop().await.expect("stops");
    });
    rig.halt();
    rig.live(async |scene| {
        assert!(!scene.warns("compared with the array"), "the array is as it was left");
        scene.volume.stop().await.expect("stops");
    });
    rig.halt();
    overwrite(&rig, 103);
    rig.live(async |scene| {
        assert!(
            scene.warns("compared with the array 1 differ") && scene.warns("array scrub"),
            "one may be rot"
        );
        scene.expect(3, 103).await;
        scene.volume.stop().await.expect("stops");
    });
    rig.halt();
    overwrite(&rig, 117);
    let refused = rig.late_refusal();
    rig.halt();
    let is_changed = matches!(&refused,
        OpenError::Cache(headpond_cache::OpenError::CoreChanged { sampled, dirty_blocks: 1, .. })
            if (sampled.compared, sampled.differing.len()) == (32, 2));
    assert!(is_changed, "{refused}");
    assert!(refused.to_string().contains("the first at byte 12288"), "{refused}");
    let again = rig.late_refusal();
    rig.halt();
    assert_eq!(again.to_string(), refused.to_string());
    let alert = refused.alert("v");
    assert_eq!(alert.kind, AlertKind::StartRefused);
    assert!(alert.action.contains("headpond serve v --force"), "{alert}");
    rig.tolerance = Tolerance::Forced;
    rig.live(async |scene| {
        assert!(scene.warns("was invalidated"), "{:?}", scene.volume.status().warnings);
        for (block, byte) in [(3, OUTSIDE), (17, OUTSIDE), (5, 105), DIRTY] {
            scene.expect(block, byte).await;
        }
        scene.volume.stop().await.expect("stops");
    });
}

/// What the other program writes.
const OUTSIDE: u8 = 0xee;

fn overwrite(rig: &Rig, byte: u8) {
    for member in &rig.machine.members {
        for place in places_on(member, byte) {
            member.poke(place, &[OUTSIDE; 4096]);
        }
    }
}

/// CRC-32C, bit by bit.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// The version and the features that a later program might write.
const LATER: [(usize, u8, &str); 3] =
    [(0, 9, "version"), (1, 0x80, "feature"), (2, 0x80, "feature")];

pub(super) fn cache_of_a_later_version_or_with_unknown_features_is_refused_and_says_so() {
    for (field, value, word) in LATER {
        let rig = Rig::in_mode(Mode::WriteBack);
        for offset in headpond_cache::format::superblock::COPY_OFFSETS {
            let mut bytes = rig.cache().peek(offset, 4096);
            // Version, ro-compat, incompat.
            bytes[[12, 24, 32][field]] = value;
            let sum = crc(&bytes[12..]);
            bytes[8..12].copy_from_slice(&sum.to_le_bytes());
            rig.cache().poke(offset, &bytes);
        }
        let refused = rig.refusal();
        assert!(matches!(refused, OpenError::Cache(headpond_cache::OpenError::NoCache { .. })));
        assert!(refused.to_string().contains(word), "{refused}");
        let action = refused.alert("v").action;
        assert!(action.contains("newer Headpond") && action.contains("--force"), "{action}");
    }
}

pub(super) fn member_of_a_later_version_or_with_unknown_features_is_refused_and_says_so() {
    for (field, value, word) in LATER {
        let rig = Rig::in_mode(Mode::WriteBack);
        let member = &rig.machine.members[1];
        for offset in headpond_raid::superblock::COPY_OFFSETS {
            let mut bytes = member.peek(offset, headpond_raid::superblock::SUPERBLOCK_BYTES);
            bytes[[8, 24, 32][field]] = value;
            bytes[12..16].fill(0);
            let sum = crc(&bytes);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
            member.poke(offset, &bytes);
        }
        let refused = rig.refusal();
        let is_named = matches!(&refused, OpenError::Array(AssembleError::Unusable { device, .. })
            if device.as_str() == "m1");
        assert!(is_named && refused.to_string().contains(word), "{refused}");
        let action = refused.alert("v").action;
        assert!(action.contains("newer Headpond"), "{action}");
    }
}

/// The same bytes on a device of another shape.
fn reshaped(medium: &Medium, geometry: Geometry) -> Rc<Medium> {
    let len = geometry.size_bytes.min(medium.geometry().size_bytes) as usize;
    let copy = Medium::new(medium.name().clone(), geometry);
    copy.poke(0, &medium.peek(0, len));
    Rc::new(copy)
}

pub(super) fn device_that_shrank_or_shows_larger_sectors_is_refused() {
    // The records of a cache are of 4 KiB: its sectors may grow to that.
    let changes = [(0, true), (1, true), (2, true), (3, true), (0, false), (1, false), (2, false)];
    for (index, is_smaller) in changes {
        let mut rig = Rig::new(cached_raid5());
        let medium = match index {
            3 => rig.machine.cache.clone().expect("a cache"),
            _ => rig.machine.members[index].clone(),
        };
        let (size, whole) = (medium.geometry().size_bytes, medium.geometry().clone());
        let geometry = match is_smaller {
            true => Geometry { size_bytes: size - 65536, ..whole },
            false => Geometry { logical_block_bytes: 4096, ..whole },
        };
        let copy = reshaped(&medium, geometry);
        match index {
            3 => rig.machine.cache = Some(copy),
            _ => rig.machine.members[index] = copy,
        }
        let text = rig.refusal().to_string();
        assert!(text.contains(medium.name().as_str()), "{text}");
    }
}
