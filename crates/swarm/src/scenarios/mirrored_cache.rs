//! A cache on two devices that are copies of each other: rows 20, 22, 27.

use super::rig::{Scene, cached_raid5, places_on};
use crate::machine::{Absent, Controls, Machine, careful};
use crate::tally::Tally;
use crate::topology::{IdleCore, Topology};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::{BlockDevice, ByteRange, Geometry, RequestKind, Runtime, Stability};
use headpond_cache::{CleaningConfig, CleaningPolicy, Mode};
use headpond_raid::{ArrayState, Level};
use headpond_sim::{Ended, Medium, OperationTime, Random, Sim, SimDisk, run_until_cut};
use headpond_volume::{
    AlertKind, CacheSettings, Description, Devices, MirrorDescription, OpenError, Volume,
};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

const COPY_BYTES: u64 = 24 << 20;
const TIME: OperationTime =
    OperationTime { shortest: Duration::from_micros(10), longest: Duration::from_micros(300) };
const BOTH: [usize; 2] = [0, 1];

type Faults = [FaultControl; 2];

/// An array behind a cache on two copies, nothing cleaned unasked.
struct Copies {
    machine: Machine,
    description: Description,
    media: [Rc<Medium>; 2],
    lives: Cell<u64>,
}

impl Copies {
    fn new() -> Self {
        Self::before(cached_raid5())
    }

    fn before(topology: Topology) -> Self {
        let settings = CacheSettings {
            mode: Mode::WriteBack,
            cleaning: CleaningConfig { policy: CleaningPolicy::Nop, ..Default::default() },
            ..CacheSettings::default()
        };
        let machine = Machine::blank(topology, 1);
        machine.names_cache.set(false);
        let mut description = machine.topology.description(&settings);
        let cache = description.cache.as_mut().expect("a cache");
        let (uuid, copies) = (Uuid::from_u128(0xc0), vec!["copy1".into()]);
        cache.device = "copy0".into();
        cache.mirror = Some(MirrorDescription { uuid, copies, spares: Vec::new() });
        let medium = |name: &str| {
            let geometry = Geometry::of_size(COPY_BYTES);
            Rc::new(Medium::new(name, Geometry { stability: Stability::Flushable, ..geometry }))
        };
        let media = ["copy0", "copy1"].map(medium);
        let copies = Self { machine, description, media, lives: Cell::new(0) };
        copies.run(async |runtime, sim| {
            let controls = copies.machine.controls();
            let devices = copies.devices(&BOTH, &Faults::default(), &controls, &runtime, &sim);
            let options = copies.machine.topology.create_options();
            Volume::create(&copies.description, &devices, &options).await.expect("is made");
        });
        copies
    }

    fn devices(
        &self,
        present: &[usize],
        faults: &Faults,
        controls: &Controls,
        runtime: &Runtime,
        sim: &Sim,
    ) -> Devices {
        let (machine, none) = (&self.machine, Absent::default());
        let copy = |index: &usize| -> Rc<dyn BlockDevice> {
            let medium = Rc::clone(&self.media[*index]);
            let disk = SimDisk::attach(medium, &machine.power, runtime, sim, TIME);
            Rc::new(FaultDevice::new(Rc::new(disk), faults[*index].clone(), runtime.clone()))
        };
        let others = machine.devices(runtime, sim, &none, controls);
        Devices { copies: present.iter().map(copy).collect(), ..others }
    }

    fn run<F: Future>(&self, main: impl FnOnce(Runtime, Sim) -> F) -> F::Output {
        self.lives.set(self.lives.get() + 1);
        match run_until_cut(self.lives.get(), &self.machine.power, main).expect("no deadlock") {
            Ended::Finished(end) => end,
            Ended::Cut => panic!("nobody cut the power"),
        }
    }

    /// One life with these copies in place.
    fn try_live<T>(
        &self,
        present: &[usize],
        act: impl AsyncFnOnce(&Scene, &Faults) -> T,
    ) -> Result<T, OpenError> {
        self.run(async |runtime, sim| {
            let faults = Faults::default();
            let controls = self.machine.controls();
            let devices = self.devices(present, &faults, &controls, &runtime, &sim);
            let volume = Volume::open(&runtime, &self.description, devices, careful()).await?;
            let scene = Scene { volume: Rc::new(volume), runtime, controls };
            Ok(act(&scene, &faults).await)
        })
    }

    fn live<T>(&self, present: &[usize], act: impl AsyncFnOnce(&Scene, &Faults) -> T) -> T {
        let lived = self.try_live(present, act);
        lived.unwrap_or_else(|error| panic!("the volume refuses to open: {error}"))
    }

    fn cut(&self, seed: u64) {
        let mut random = Random::new(seed);
        self.machine.crash(true, &mut random, &mut Tally::default());
        for medium in &self.media {
            medium.lose_power(&mut random);
        }
    }
}

fn repaired(scene: &Scene) -> u64 {
    scene.volume.stats().slices[0].counters.errors.cache_repaired
}

fn state(scene: &Scene) -> ArrayState {
    scene.cache().mirror.expect("copies").array.state
}

/// Whichever copy it is; reads take turns between them.
pub(super) fn dirty_block_that_one_copy_cannot_give_comes_from_the_other_and_is_written_anew() {
    for copy in BOTH {
        let rig = Copies::new();
        rig.live(&BOTH, async |scene, faults| {
            scene.promise(3, 1).await;
            let [place] = places_on(&rig.media[copy], 1)[..] else { unreachable!("one place") };
            let rule = FaultRule::on(RequestKind::Read, Fault::Latent);
            faults[copy].add(FaultRule { range: Some(ByteRange::at(place, 4096)), ..rule });
            for _ in 0..8 {
                scene.expect(3, 1).await;
            }
            assert_eq!(faults[copy].struck(), 1, "it was written again");
            assert_eq!(state(scene), ArrayState::Optimal);
            let alerts = scene.volume.status().alerts;
            let kinds: Vec<AlertKind> = alerts.iter().map(|alert| alert.kind).collect();
            assert_eq!(kinds, [AlertKind::MemberErrors], "and that is all there is to say");
            scene.volume.clean_all().await.expect("cleans");
        });
        rig.live(&BOTH, async |scene, _| scene.expect(3, 1).await);
    }
}

/// One bit of a dirty block changes on one of the copies while nobody looks, then on both.
pub(super) fn silent_corruption_of_a_dirty_block_is_mended_from_the_copy_that_is_right() {
    for copy in BOTH {
        let rig = Copies::new();
        let poke = |copy: usize| {
            let [place] = places_on(&rig.media[copy], 1)[..] else { unreachable!("one place") };
            rig.media[copy].poke(place + 1000, &[9]);
        };
        rig.live(&BOTH, async |scene, _| {
            scene.promise(3, 1).await;
            poke(copy);
            for _ in 0..8 {
                scene.expect(3, 1).await;
            }
            assert_eq!(repaired(scene), 1);
            assert_eq!(places_on(&rig.media[copy], 1).len(), 1, "it is right again");
            BOTH.into_iter().for_each(poke);
            assert!(scene.read(3).await.is_err());
            assert_eq!(scene.alert(AlertKind::DirtyUnreadable).at_risk.blocks, 1);
        });
    }
}

/// Power cuts while a copy is away change nothing about which one is behind.
pub(super) fn copy_of_a_cache_that_missed_writes_is_refused_alone_and_left_out_beside_the_other() {
    for seed in 0..8 {
        let rig = Copies::new();
        let behind = (seed % 2) as usize;
        rig.live(&BOTH, async |scene, faults| {
            scene.promise(3, 1).await;
            let gone = FaultRule::on(RequestKind::Read, Fault::Gone);
            faults[behind].add(FaultRule { kind: None, ..gone });
            scene.promise(3, 2).await;
            assert_eq!(scene.cache().mirror.expect("copies").at_risk_bytes, 4096);
        });
        rig.cut(seed);
        let refused = rig.try_live(&[behind], async |_, _| ()).expect_err("it is behind");
        let is_stale =
            matches!(refused, OpenError::Cache(headpond_cache::OpenError::Generation { .. }));
        assert!(is_stale, "{refused}");
        rig.cut(seed + 100);
        rig.live(&BOTH, async |scene, _| {
            scene.expect(3, 2).await;
            assert_eq!(state(scene), ArrayState::Degraded);
            assert!(scene.warns(&format!("array re-add swarm copy{behind} --cache")));
        });
    }
}

/// The array fails before a copy leaves, or with the very write that is to record it, alone or
/// beside another core: what came back with the power belongs together.
pub(super) fn copy_that_leaves_while_an_array_fails_leaves_a_cache_that_fits() {
    let beside = [None, Some(IdleCore::Behind), Some(IdleCore::First)];
    for (idle_core, knows) in beside.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        let (level, members) = (Level::Raid0, 2);
        let rig = Copies::before(Topology { level, members, idle_core, ..cached_raid5() });
        rig.live(&BOTH, async |scene, faults| {
            scene.promise(3, 1).await;
            scene.lose_member(1);
            if knows {
                // One of the blocks is on that member.
                for block in 8..40 {
                    let _ = scene.read(block).await;
                }
            }
            faults[1].add(FaultRule::on(RequestKind::Write, Fault::Gone));
            for block in 40..50 {
                let _ = scene.write(block, 2).await;
            }
        });
        rig.cut(1);
        rig.live(&BOTH, async |scene, _| scene.expect(3, 1).await);
    }
}
