//! The power is cut while an array loses sectors and gets them again.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use crate::support::lost::*;
use crate::support::machine::*;
use crate::support::*;
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::{BlockDevice, ByteRange, Request, RequestKind};
use headpond_raid::layout::Role;
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{Array, AssembleError, Filled, Level};
use headpond_sim::Ended;
use uuid::Uuid;

const SPARE: Uuid = Uuid::from_u128(77);

/// A machine whose power is cut while an array loses sectors, and gets some of them again.
struct Cut {
    machine: Machine,
    level: Level,
    gone: Vec<Role>,
    bytes: Vec<u8>,
    /// Of the members that cannot read a row, the first ones.
    controls: Vec<FaultControl>,
    /// Lost sectors, and acknowledged writes to them since.
    lost: Vec<u64>,
    acknowledged: RefCell<BTreeSet<u64>>,
    issued: RefCell<BTreeSet<u64>>,
}

/// All of the first members hold data there.
const BAD_ROW: u64 = 3;
const NEW: [u8; 512] = [0x5e; 512];

/// As many as make one unknown strip too many.
fn bad_members(level: Level, gone: &[u16]) -> u16 {
    let redundancy = if level == Level::Raid6 { 2 } else { 1 };
    redundancy + 1 - gone.len() as u16
}

/// A row that cannot be read, each of its sectors until it is written.
fn unreadable_row() -> FaultControl {
    let control = FaultControl::default();
    let bad = DATA_OFFSET_MIN + BAD_ROW * u64::from(STRIP);
    for sector in 0..u64::from(STRIP) / SECTOR {
        let range = Some(ByteRange::at(bad + sector * SECTOR, SECTOR));
        control.add(FaultRule { range, ..FaultRule::on(RequestKind::Read, Fault::Latent) });
    }
    control
}

impl Cut {
    /// An array with one member too many that cannot be read in one place.
    fn prepare(level: Level, count: usize, gone: &[u16]) -> Cut {
        let machine = Machine::with_array_and_spare(count, level);
        let members: Vec<usize> = (0..count).collect();
        let (bytes, lost) = machine.live_to_the_end(&members, async |devices| {
            let array = attempt(devices).await.unwrap().array;
            let bytes = Random::new(3).bytes(array.layout().array_bytes() as usize);
            write(&array, 0, &bytes).await.unwrap();
            let roles: Vec<Role> = gone.iter().map(|role| Role(*role)).collect();
            let bad_members = bad_members(level, gone);
            let bad = |role: Role, place: u64| role.0 < bad_members && place / 8 == BAD_ROW;
            let lost = expected_lost(array.layout(), &roles, bad);
            array.stop().await.unwrap();
            (bytes, lost.into_iter().collect())
        });
        let controls = (0..bad_members(level, gone)).map(|_| unreadable_row()).collect();
        let gone = gone.iter().map(|role| Role(*role)).collect();
        let (acknowledged, issued) = Default::default();
        Cut { machine, level, gone, bytes, controls, lost, acknowledged, issued }
    }

    /// `None` where a write was cut while a member was lost, so that the array refuses to start.
    async fn start(&self, mut devices: Devices) -> Option<Array> {
        let runtime = devices.runtime.clone();
        for (device, control) in devices.iter_mut().zip(&self.controls) {
            let faulty = FaultDevice::new(device.clone(), control.clone(), runtime.clone());
            *device = Rc::new(faulty);
        }
        match attempt(belonging(devices).await).await {
            Ok(assembled) => Some(assembled.array),
            Err(AssembleError::DegradedAndUnclean { .. }) => {
                let is_made_up = !self.gone.is_empty() && self.controls.len() > 1;
                assert!(is_made_up || self.gone.len() > 1 && !self.issued.borrow().is_empty());
                None
            }
            Err(error) => panic!("{}: {error}", self.level),
        }
    }

    /// The members are lost, one is rebuilt, and every other lost sector is written again.
    async fn live(&self, devices: Devices) {
        let spare = devices[devices.len() - 1].clone();
        let array = self.start(devices).await.expect("it was stopped in order");
        for role in &self.gone {
            array.fail(*role).await.unwrap();
        }
        match self.gone.first() {
            None => drop(array.scrub(async || true).await.unwrap()),
            Some(role) => {
                array.add_spare(spare, SPARE).await.unwrap();
                array.assign_spare(*role, None).await.unwrap();
                let filled = array.fill(*role, async || true).await;
                assert!(matches!(filled, Ok(Filled::Whole { .. })));
            }
        }
        assert_eq!(array.status().lost.bytes, self.lost.len() as u64 * SECTOR);
        for sector in self.lost.iter().step_by(2) {
            self.issued.borrow_mut().insert(*sector);
            write(&array, *sector * SECTOR, &NEW).await.unwrap();
            array.submit(Request::flush()).await.unwrap();
            self.acknowledged.borrow_mut().insert(*sector);
        }
        array.stop().await.unwrap();
    }

    /// What is lost is an error, or what it was; what was written again is there.
    async fn judge(&self, array: &Array, context: &str) {
        for sector in 0..self.bytes.len() as u64 / SECTOR {
            let before = &self.bytes[(sector * SECTOR) as usize..][..SECTOR as usize];
            let is_new = self.issued.borrow().contains(&sector);
            let is_promised = self.acknowledged.borrow().contains(&sector);
            let is_lost = self.lost.contains(&sector);
            match read(array, sector * SECTOR, SECTOR as usize).await {
                Ok(found) if found == NEW => assert!(is_new, "{context}: {sector} is new"),
                Ok(found) if found == before => assert!(!is_promised, "{context}: {sector} is old"),
                Ok(found) => panic!("{context}: sector {sector} reads {:?}", &found[..4]),
                Err(error) => {
                    assert!(is_lost && !is_promised, "{context}: sector {sector}: {error}");
                }
            }
        }
    }

    async fn judge_life(&self, devices: Devices, context: &str) {
        let Some(array) = self.start(devices).await else { return };
        self.judge(&array, context).await;
        for role in array.filling_roles() {
            let filled = array.fill(role, async || true).await;
            assert!(matches!(filled, Ok(Filled::Whole { .. })), "{context}");
        }
        self.judge(&array, context).await;
        array.scrub(async || true).await.unwrap();
        let report = array.status().scrub_report();
        assert_eq!((report.unexplained_sectors, report.corrected_sectors), (0, 0), "{context}");
        self.judge(&array, context).await;
        array.stop().await.unwrap();
    }
}

#[test]
fn wherever_the_power_is_cut_lost_sectors_never_read_as_data_nor_rewritten_ones_as_errors() {
    let shapes: [(Level, usize, &[u16]); 6] = [
        (Level::Raid1, 2, &[1]),
        (Level::Raid5, 3, &[1]),
        (Level::Raid6, 4, &[2, 3]),
        (Level::Raid1, 2, &[]),
        (Level::Raid5, 3, &[]),
        (Level::Raid6, 5, &[3]),
    ];
    for (level, count, gone) in shapes {
        let mut cut_at = 0;
        loop {
            let cut = Cut::prepare(level, count, gone);
            assert!(!cut.lost.is_empty());
            cut.machine.power.cut_after(cut_at);
            let life = async |devices, _| cut.live(devices).await;
            let ended = cut.machine.live(cut_at + 1, &cut.machine.all(), life);
            let context = format!("{level}, cut at {cut_at}");
            cut.machine.live_to_the_end(&cut.machine.all(), async |devices| {
                cut.judge_life(devices, &context).await;
            });
            if matches!(ended, Ended::Finished(())) {
                break;
            }
            cut_at += 1;
        }
        assert!(cut_at > 100, "{level}: the sweep reaches the lost sectors: {cut_at}");
    }
}
