//! That the parts of an array agree with each other, and with what its members say.

use super::Array;
use crate::superblock::RoleRecord;

impl Array {
    /// Checks what is costly to check, and so only now and then; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        self.members.self_check();
        self.recorder.self_check();
        self.check_record();
        self.intents.iter().for_each(|intents| intents.self_check());
        self.absence.iter().for_each(|absence| absence.marks().self_check());
        self.integrity.iter().for_each(|it| it.self_check(self.layout.members()));
        self.guard.iter().for_each(|guard| guard.self_check(&self.layout, &self.recorder));
        self.suspect_parity.self_check();
        self.lost.self_check();
        self.merging.self_check();
        let present = self.members.present();
        self.watch.self_check(present.iter().map(|member| &member.health));
        assert!(self.initialised.get() <= self.layout.stripes(), "all parity is right at most");
        for stripe in self.torn.borrow().keys() {
            assert!(stripe.0 < self.layout.stripes(), "{stripe:?} is torn, and there is none");
            assert!(!self.is_signed(*stripe), "{stripe:?} is torn, and signed as whole");
        }
        self.reshape.iter().for_each(|reshape| reshape.self_check(self));
        self.former().into_iter().for_each(Array::self_check);
    }

    /// Once everything is settled, the newest superblock has the members in use.
    fn check_record(&self) {
        let Some(issued) = self.recorder.recorded().filter(|_| !self.members.is_broken()) else {
            return;
        };
        for (role, slot) in self.members.slots() {
            let Some(recorded) = self.recorded_role(role) else { continue };
            let (member_uuid, state) = (slot.uuid.get(), slot.state.get());
            let is_told = issued.roles[recorded.index()] == RoleRecord { member_uuid, state };
            assert!(is_told, "the superblocks say something else of {role:?}");
        }
        assert_eq!(issued.spares, self.members.spare_records(), "the spares are recorded");
        assert_eq!(issued.lent, self.members.lent_records(), "what is lent is recorded");
        let is_listed = issued.has_lost_blocks || !self.lost.is_listed();
        assert!(is_listed, "the superblocks tell of a list of lost blocks");
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::rc::Rc;

    use headpond_block::devices::RamDevice;
    use headpond_block::{BlockDevice, Buffer, Geometry, Runtime};
    use headpond_testkit::{Break, assert_trips};
    use uuid::Uuid;

    use super::*;
    use crate::layout::{Role, Stripe};
    use crate::superblock::{DATA_OFFSET_MIN, RoleState};
    use crate::{
        Addition, AssembleOptions, Contents, CreateOptions, Integrity, Intent, JournalOptions,
        JournalWhen, Level, Occupied, Spread, Striping, assemble, create, create_journal,
    };

    const BYTES: u64 = DATA_OFFSET_MIN + (2 << 20);

    fn disk(name: String) -> Rc<dyn BlockDevice> {
        Rc::new(RamDevice::with_geometry(name.as_str(), Geometry::of_size(BYTES)))
    }

    fn options() -> CreateOptions {
        CreateOptions {
            name: "test".into(),
            uuid: Uuid::from_u128(0x1234),
            level: Level::Raid5,
            groups: 1,
            declustered: None,
            striping: Striping::Plain,
            strip_bytes: 4096,
            contents: Contents::Zeros,
            intent: Intent::Bitmap,
            integrity: Integrity::Region,
            occupied: Occupied::Refuse,
            owner: None,
            journal: None,
        }
    }

    async fn open(runtime: &Runtime, members: &[Rc<dyn BlockDevice>]) -> Array {
        let options = AssembleOptions::default();
        assemble(runtime, members.to_vec(), options).await.expect("assembled").array
    }

    /// Three members, one of which is lost, a spare and a journal. Its executor has ended.
    pub fn lived() -> Array {
        let made = headpond_sim::run(1, async |runtime, _| {
            let journal = disk("journal".into());
            let members: Vec<_> = (0..3).map(|at| disk(format!("m{at}"))).collect();
            let of = JournalOptions { uuid: Uuid::from_u128(0x10), when: JournalWhen::Always };
            let options = CreateOptions { journal: Some(of), ..options() };
            let record = create::consider(&members, &options).await.expect("possible");
            create_journal(&*journal, &record, Occupied::Refuse).await.expect("a journal");
            create(&members, &options).await.expect("created");
            let options = AssembleOptions { journals: vec![journal], ..Default::default() };
            let assembled = assemble(&runtime, members, options).await;
            let array = assembled.expect("assembled").array;
            let spare = disk("spare".into());
            array.add_spare(spare, Uuid::from_u128(0x5)).await.expect("a spare");
            let device: &dyn BlockDevice = &array;
            device.write(0, Buffer::zeroed(64 << 10)).await.expect("a write");
            array.fail(Role(1)).await.expect("the others are left");
            array
        });
        made.expect("no deadlock")
    }

    /// Seven members in narrow stripes, one of which is lost and lent a slot of spare space.
    pub fn lent() -> Array {
        let made = headpond_sim::run(1, async |runtime, _| {
            let members: Vec<_> = (0..7).map(|at| disk(format!("m{at}"))).collect();
            let declustered = Some(Spread { width: 3, spares: 1 });
            let options = CreateOptions { declustered, ..options() };
            create(&members, &options).await.expect("created");
            let array = open(&runtime, &members).await;
            array.fail(Role(1)).await.expect("the others are left");
            assert_eq!(array.lend_slot().await, Ok(Some(Role(1))));
            array
        });
        made.expect("no deadlock")
    }

    /// Three members on their way to four.
    pub fn growing() -> Array {
        let made = headpond_sim::run(1, async |runtime, _| {
            let mut members: Vec<_> = (0..3).map(|at| disk(format!("m{at}"))).collect();
            create(&members, &options()).await.expect("created");
            let array = open(&runtime, &members).await;
            let (device, uuid) = (disk("m3".into()), Uuid::from_u128(0x3));
            members.push(Rc::clone(&device));
            array.begin_reshape(&[Addition { device, uuid }]).await.expect("it can grow");
            array.stop().await.expect("stopped");
            let array = open(&runtime, &members).await;
            array.grow(async || false).await.expect("a step");
            array
        });
        made.expect("no deadlock")
    }

    #[test]
    fn check_notices_superblocks_that_say_something_else() {
        let breaks: [Break<Array>; 5] = [
            ("the superblocks say something else of Role(1)", |it| {
                it.members.slot(Role(1)).state.set(RoleState::Missing);
            }),
            ("the spares are recorded", |it| {
                let spare = it.members.standing_by().remove(0);
                it.members.fail(&spare);
            }),
            ("all parity is right at most", |it| it.initialised.set(1 << 40)),
            ("is torn, and there is none", |it| {
                it.torn.borrow_mut().insert(Stripe(1 << 40), Vec::new());
            }),
            ("is torn, and signed as whole", |it| {
                let integrity = it.integrity.as_ref().expect("it has a region");
                let stripe = Stripe(0);
                integrity.marks().bitmap.borrow_mut().unmark(stripe..=stripe);
                it.torn.borrow_mut().insert(stripe, Vec::new());
            }),
        ];
        assert_trips(lived, Array::self_check, &breaks);
    }
}
