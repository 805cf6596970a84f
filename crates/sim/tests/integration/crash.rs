//! How to test a device against power cuts, shown on a trivial one: run a short workload, cut it at
//! every operation of the disk, lose what was not flushed, recover, and have the witness judge.

use headpond_block::sync::Semaphore;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceName, Geometry, Outcome, Request, RequestFlags,
    RequestKind, Submission,
};
use headpond_sim::{Ended, Medium, OperationTime, Power, Random, Sim, SimDisk, run, run_until_cut};
use headpond_witness::{Client, Verdict, Witness, Workload};
use std::cell::RefCell;
use std::rc::Rc;

const BLOCK: u64 = 4096;

/// Makes writes of a block atomic on a disk that tears them: each goes to a journal of one slot
/// first.
struct Journaled {
    disk: Rc<dyn BlockDevice>,
    geometry: Geometry,
    slot_is_free: Semaphore,
    defect: Defect,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// The journal is not waited for.
    JournalNotStable,
    /// The slot is used again before the block is stable in its place.
    SlotReusedTooSoon,
}

impl Journaled {
    /// The journal's slot: address and check sum of the block, and the block.
    const SLOT: u64 = 2 * BLOCK;

    /// Recovers what the journal holds.
    async fn open(disk: Rc<dyn BlockDevice>, defect: Defect) -> Self {
        let slot = Buffer::zeroed(Self::SLOT as usize);
        disk.read(0, &slot).await.unwrap();
        let bytes = slot.to_vec();
        let (header, block) = bytes.split_at(BLOCK as usize);
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().unwrap());
        if word(0) != 0 && word(8) == checksum(word(0), block) {
            let request = Request::write(word(0), Buffer::from_slice(block));
            disk.submit(request.with_flags(RequestFlags::FUA)).await.unwrap();
        }
        let size_bytes = disk.size_bytes() - Self::SLOT;
        let geometry =
            Geometry { size_bytes, logical_block_bytes: 4096, ..disk.geometry().clone() };
        Self { disk, geometry, slot_is_free: Semaphore::new(1), defect }
    }

    async fn write(&self, request: Request) -> Outcome {
        for piece in request.range.split_at_multiples(BLOCK) {
            let part = request.part(piece, 0);
            let block = match part.kind {
                RequestKind::Write => part.buffers.to_vec(),
                _ => vec![0; BLOCK as usize],
            };
            self.write_block(Self::SLOT + piece.start(), &block).await?;
        }
        Ok(())
    }

    async fn write_block(&self, place: u64, block: &[u8]) -> Outcome {
        let _slot = self.slot_is_free.acquire(1).await;
        let mut slot = vec![0; BLOCK as usize];
        slot[..8].copy_from_slice(&place.to_le_bytes());
        slot[8..16].copy_from_slice(&checksum(place, block).to_le_bytes());
        slot.extend_from_slice(block);
        let journal = Request::write(0, Buffer::from_slice(&slot));
        let fua = |wanted: bool| if wanted { RequestFlags::FUA } else { RequestFlags::empty() };
        self.disk.submit(journal.with_flags(fua(self.defect != Defect::JournalNotStable))).await?;
        let stable = fua(self.defect != Defect::SlotReusedTooSoon);
        let in_place = Request::write(place, Buffer::from_slice(block));
        self.disk.submit(in_place.with_flags(stable)).await
    }
}

impl BlockDevice for Journaled {
    fn name(&self) -> &DeviceName {
        self.disk.name()
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        match request.kind {
            RequestKind::Read => {
                self.disk.submit(request.part(request.range, Self::SLOT + request.range.start()))
            }
            RequestKind::Flush => self.disk.submit(request),
            _ => Submission::pending(self.write(request)),
        }
    }
}

fn checksum(place: u64, block: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ place;
    block.iter().fold(start, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A machine with one disk, and what its client remembers.
struct Machine {
    medium: Rc<Medium>,
    power: Power,
    witness: Rc<RefCell<Witness>>,
    defect: Defect,
}

impl Machine {
    fn new(defect: Defect, seed: u64) -> Self {
        let medium = Rc::new(Medium::flushable("disk", 1 << 20));
        let witness = Witness::new(medium.geometry().size_bytes - Journaled::SLOT, seed);
        Self { medium, power: Power::on(), witness: Rc::new(RefCell::new(witness)), defect }
    }

    /// Starts the machine, checks what is left, works on.
    fn work(&self, seed: u64, workload: &Workload) -> Ended<Result<(), Box<Verdict>>> {
        let main = async |runtime, sim: Sim| {
            let time = OperationTime::SOME;
            let disk = SimDisk::attach(self.medium.clone(), &self.power, &runtime, &sim, time);
            let device = Rc::new(Journaled::open(Rc::new(disk), self.defect).await);
            let client = Client::new(device, self.witness.clone(), &runtime);
            client.check_all().await?;
            client.run(workload, seed).await
        };
        run_until_cut(seed, &self.power, main).expect("no deadlock")
    }

    fn crash(&self, seed: u64) {
        self.medium.lose_power(&mut Random::new(seed));
        self.power.restore();
        self.witness.borrow_mut().crash();
    }
}

const SHORT: Workload = Workload { requests: 12, depth: 3, blocks: 4, ..Workload::BUSY };

/// Cuts a short workload at every operation of the disk, twice in a row.
fn sweep(defect: Defect, seed: u64) -> Result<u64, Box<Verdict>> {
    for cut_after in 0.. {
        let machine = Machine::new(defect, seed);
        machine.power.cut_after(cut_after);
        let end = machine.work(seed, &SHORT);
        machine.crash(seed ^ cut_after);
        machine.power.cut_after(cut_after / 2);
        if let Ended::Finished(judged) = machine.work(seed + 1, &SHORT) {
            judged?;
        }
        machine.crash(seed ^ cut_after ^ 1);
        if let Ended::Finished(judged) = machine.work(seed + 2, &SHORT) {
            judged?;
        }
        match end {
            Ended::Finished(judged) => return judged.map(|()| cut_after),
            Ended::Cut => continue,
        }
    }
    unreachable!("the workload ends")
}

#[test]
fn the_journal_survives_a_cut_at_every_operation() {
    let cuts: u64 = (0..20).map(|seed| sweep(Defect::None, seed).expect("sound")).sum();
    assert!(cuts > 400, "{cuts} cuts");
}

#[test]
fn each_defect_is_found() {
    for defect in [Defect::JournalNotStable, Defect::SlotReusedTooSoon] {
        let found = (0..20).filter_map(|seed| sweep(defect, seed).err()).next();
        let verdict = found.expect("the judge bites");
        assert!(verdict.story.contains("power cut"), "{verdict}");
    }
}

#[test]
fn a_crash_test_repeats_itself() {
    let images = |seed| {
        let machine = Machine::new(Defect::None, seed);
        machine.power.cut_after(40);
        let _ = machine.work(seed, &Workload::BUSY);
        machine.crash(seed);
        machine.medium.peek(0, 1 << 20)
    };
    assert!(images(1) == images(1));
    assert!(images(1) != images(2));
}

#[test]
fn a_disk_without_power_answers_no_more() {
    let power = Power::on();
    let medium = Rc::new(Medium::flushable("disk", 1 << 20));
    power.cut_after(3);
    let end = run_until_cut(1, &power, async |runtime, sim: Sim| {
        let disk = SimDisk::attach(medium.clone(), &power, &runtime, &sim, OperationTime::SOME);
        let device: &dyn BlockDevice = &disk;
        for block in 0..10 {
            device.write(block * BLOCK, Buffer::from_slice(&[1; 4096])).await.unwrap();
        }
    });
    assert!(end.unwrap().was_cut());
    assert_eq!((power.operations(), medium.undurable_writes()), (3, 3));
    power.restore();
    let range = ByteRange::at(0, BLOCK);
    let read = run(2, async |runtime, sim: Sim| {
        let disk = SimDisk::attach(medium.clone(), &power, &runtime, &sim, OperationTime::SOME);
        let into = Buffer::zeroed(range.len() as usize);
        disk.submit(Request::read(range.start(), &into)).await.unwrap();
        into.to_vec()
    });
    assert_eq!(read.unwrap(), [1; 4096]);
}
