//! Cores that come and go.

use crate::cores::machine::{
    BUSY, Clients, MIB, Machine, check_dirty_data, devices_of, dirty, further, read, write,
};
use crate::support::{CREATE, careful};
use headpond_block::{BlockDevice, Buffer, BufferPool, DeviceError, PoolConfig};
use headpond_raid::{JournalError, Occupied, journal_of};
use headpond_sim::Medium;
use headpond_volume::{
    ChangeMembersError, CoreChangeError, Description, Devices, Dirty, FurtherCoreDescription,
    Keeping, NewJournal, Volume,
};
use headpond_witness::Workload;
use std::cell::RefCell;
use std::future::ready;
use std::rc::Rc;
use uuid::Uuid;

#[test]
fn cores_come_and_go_while_the_others_are_served() {
    let machine = Machine::new(3, 2);
    machine.live(async |runtime, sim| {
        let volume = machine.open(&runtime, &sim, 1).await;
        dirty(&volume).await;
        let device = volume.core_device("c1").unwrap();
        let kept = RefCell::new(Vec::new());
        let keep = |description: &Description| -> Keeping<'_> {
            kept.borrow_mut().push(description.further_cores.len());
            Box::pin(ready(Ok(())))
        };
        let [first, second] = [21, 22].map(Uuid::from_u128);
        let error = volume.remove_core("c9", first, &keep).await.unwrap_err().to_string();
        assert!(error.contains("there are: c1, c2") && kept.borrow().is_empty(), "{error}");
        check_dirty_data(&volume, "refused").await;
        let clients = Clients::new(3, 1);
        let load: Vec<_> = clients.on(&volume, &runtime).into_iter().enumerate().collect();
        let tasks: Vec<_> = load
            .into_iter()
            .filter(|(core, _)| *core != 1)
            .map(|(_, client)| {
                let busy = Workload { requests: 400, ..BUSY };
                runtime.spawn(async move { client.run(&busy, 3).await })
            })
            .collect();
        let gone = volume.remove_core("c1", first, &keep).await.unwrap();
        assert_eq!(gone, further(1));
        assert_eq!(kept.take(), [1, 1], "before the core goes, and before the cache is back");
        let refused = (&*device as &dyn BlockDevice).write(0, Buffer::zeroed(4096)).await;
        assert!(refused.as_ref().is_err_and(DeviceError::is_gone));
        // It has what was written to it, as a volume of its own.
        let alone = volume.description().of_core_alone(&gone, "alone".into());
        let members = machine.devices(&runtime, &sim, 0).members.drain(3..5).collect();
        let devices = Devices { members, ..Devices::default() };
        let own = Rc::new(Volume::open(&runtime, &alone, devices, careful()).await.unwrap());
        let own_device: Rc<dyn BlockDevice> = own.clone();
        assert_eq!(read(&own_device, 0).await, 2);
        own.stop().await.unwrap();
        // Its devices become another core, behind the one that was behind it.
        let new = FurtherCoreDescription { uuid: Uuid::from_u128(77), ..further(1) };
        let members = || machine.devices(&runtime, &sim, 0).members.drain(3..5).collect::<Vec<_>>();
        let pool = BufferPool::new(&PoolConfig::small());
        let made = volume.make_core(new.clone(), members(), &CREATE, pool.clone()).await;
        let error = made.err().expect("they hold a core");
        assert!(error.is_refusal() && error.to_string().contains("is member"), "{error}");
        let anew = headpond_volume::CreateOptions { occupied: Occupied::Overwrite, ..CREATE };
        let made = volume.make_core(new.clone(), members(), &anew, pool.clone()).await.unwrap();
        volume.add_core(made, second, &keep).await.unwrap();
        assert_eq!(volume.description().cache, machine.described().cache, "as it was set");
        let again = volume.make_core(new, members(), &anew, pool).await.err().expect("it is there");
        assert!(matches!(again, CoreChangeError::Description(_)), "{again}");
        for task in tasks {
            task.await.unwrap();
        }
        let cores = devices_of(&volume);
        assert_eq!(read(&cores[1], 0).await, 3);
        write(&cores[2], 0, 9).await;
        let status = volume.status();
        let ids: Vec<u16> = status.cores.iter().map(|core| core.id).collect();
        assert_eq!(ids, [1, 3, 2], "a number stays with its core");
        let kept = volume.description();
        volume.stop().await.unwrap();
        let stopped = volume.set(&["mode=write-through".parse().unwrap()]).await.unwrap_err();
        assert!(stopped.to_string().contains("is being stopped"), "{stopped}");
        let devices = machine.devices(&runtime, &sim, 4);
        let volume = Rc::new(Volume::open(&runtime, &kept, devices, careful()).await.unwrap());
        let cores = devices_of(&volume);
        assert_eq!([read(&cores[1], 0).await, read(&cores[2], 0).await], [3, 9]);
    });
}

/// A cache knows where each of several cores lies, so that none is put together again below it.
#[test]
fn a_stripe_journal_comes_and_goes_in_front_of_several_cores_only_without_their_cache() {
    let machine = Machine::new(2, 1);
    machine.live(async |runtime, sim| {
        let volume = machine.open(&runtime, &sim, 1).await;
        dirty(&volume).await;
        let medium = Rc::new(Medium::flushable("j0", 8 * MIB).with_atoms(4096));
        let device = || machine.disk(&medium, &runtime, &sim);
        let new = |word: &str| NewJournal {
            word: word.into(),
            device: device(),
            uuid: Uuid::from_u128(0x10a1),
            when: None,
            occupied: Occupied::Refuse,
        };
        let pool = || careful().pool;
        let kept = volume.description();
        let refused = volume.set_journal(None, new("j0"), pool()).await.unwrap_err();
        assert!(matches!(refused, ChangeMembersError::CachedCores { .. }), "{refused}");
        assert_eq!((volume.description(), journal_of(&*device()).await), (kept, Ok(None)));
        assert_eq!(volume.status().array.journal, None);
        check_dirty_data(&volume, "refused").await;
        volume.detach(Dirty::Clean).await.unwrap();
        volume.set_journal(None, new("j0"), pool()).await.unwrap();
        let journal = volume.status().array.journal.and_then(|journal| journal.device);
        assert_eq!(journal.as_deref(), Some("j0"));
        let refused = volume.set_journal(Some("c1"), new("j1"), pool()).await.unwrap_err();
        let is_no_parity = |error: &ChangeMembersError| {
            matches!(error, ChangeMembersError::Journal(JournalError::NoParity { .. }))
        };
        assert!(is_no_parity(&refused), "{refused}");
        check_dirty_data(&volume, "with a journal").await;
        let cache = machine.described().cache.unwrap();
        let (disk, identity) = (machine.disk(&machine.cache, &runtime, &sim), Uuid::from_u128(12));
        let made = volume.make_cache(disk, cache, identity, Occupied::Overwrite).await.unwrap();
        volume.attach(made, &|_| Box::pin(ready(Ok(())))).await.unwrap();
        let refused = volume.drop_journal(None, pool()).await.unwrap_err();
        assert!(matches!(refused, ChangeMembersError::CachedCores { .. }), "{refused}");
        assert!(volume.status().array.journal.is_some());
        volume.detach(Dirty::Clean).await.unwrap();
        volume.drop_journal(None, pool()).await.unwrap();
        assert_eq!(volume.status().array.journal, None);
        assert_eq!(journal_of(&*device()).await, Ok(None), "it is free");
        check_dirty_data(&volume, "without one again").await;
        volume.stop().await.unwrap();
    });
}
