//! Errors of devices and scrubs, which the members keep over restarts until they are cleared.

use crate::support::{CREATE, careful, core, description};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, Geometry, Outcome, RequestKind, Runtime, Stability,
};
use headpond_cache::Mode;
use headpond_raid::array::newest_volume_record;
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::volume_record::COPY_OFFSETS;
use headpond_raid::{ArrayState, HealthState, LastScrub, Level, ScrubState};
use headpond_sim::run;
use headpond_volume::{
    Alert, AlertKind, BackgroundRate, Description, DeviceReport, Devices, Dirty, ErrorCause,
    ErrorKind, Keeping, SettingChange, Size, Volume, VolumeRecord,
};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// Memory that outlives the volume, with faults in front of it.
struct Bench {
    runtime: Runtime,
    description: Description,
    members: Vec<Rc<RamDevice>>,
    cache: Option<Rc<RamDevice>>,
    faults: Vec<FaultControl>,
    cache_faults: FaultControl,
}

impl Bench {
    async fn new(runtime: &Runtime, level: Level, has_cache: bool) -> Self {
        let names = ["m0", "m1", "m2"];
        let stability = Stability::Flushable;
        let lasting = Geometry { stability, ..Geometry::of_size(16 << 20) };
        let whole = description(Mode::WriteBack, 1);
        let bench = Self {
            runtime: runtime.clone(),
            description: Description {
                cache: whole.cache.clone().filter(|_| has_cache),
                core: core(level, Size(16 << 10), names.map(String::from).into()),
                ..whole
            },
            members: names.map(|name| Rc::new(RamDevice::new(name, 32 << 20))).into(),
            cache: has_cache.then(|| Rc::new(RamDevice::with_geometry("cache", lasting))),
            faults: names.map(|_| FaultControl::default()).into(),
            cache_faults: FaultControl::default(),
        };
        Volume::create(&bench.description, &bench.devices(), &CREATE).await.expect("created");
        bench
    }

    fn devices(&self) -> Devices {
        let put = |device: &Rc<RamDevice>, faults: &FaultControl| -> Rc<dyn BlockDevice> {
            let device = Rc::clone(device) as Rc<dyn BlockDevice>;
            Rc::new(FaultDevice::new(device, faults.clone(), self.runtime.clone()))
        };
        let members = self.members.iter().zip(&self.faults).map(|(it, faults)| put(it, faults));
        let cache = self.cache.as_ref().map(|it| put(it, &self.cache_faults));
        Devices { members: members.collect(), cache, ..Devices::default() }
    }

    async fn open(&self) -> Volume {
        let opened = Volume::open(&self.runtime, &self.description, self.devices(), careful());
        opened.await.expect("opens")
    }

    /// The same after a stop.
    async fn again(&self, volume: Volume) -> Volume {
        volume.stop().await.expect("stops");
        drop(volume);
        self.open().await
    }

    async fn seconds(&self, seconds: u64) {
        self.runtime.sleep(Duration::from_secs(seconds)).await;
    }

    /// Changes sectors of a member unnoticed, from a place in its data on.
    fn corrupt(&self, member: usize, offset: u64, sectors: u64) {
        let start = (DATA_OFFSET_MIN + offset) as usize;
        let part = self.members[member].memory().slice(start..start + (sectors * 512) as usize);
        let changed: Vec<u8> = part.to_vec().iter().map(|byte| !byte).collect();
        part.copy_from(&changed);
    }

    /// The next operation of a kind on a member fails.
    fn fail_once(&self, member: usize, kind: RequestKind) {
        let rule = FaultRule::on(kind, Fault::Media);
        self.faults[member].add(FaultRule { times: Some(1), ..rule });
    }
}

fn simulate<F: Future<Output = ()>>(test: impl FnOnce(Runtime) -> F) {
    run(1, |runtime, _| test(runtime)).expect("no deadlock");
}

async fn write_all(volume: &Volume) {
    for at in 0..64 {
        write(volume, at * 65536, 7).await.expect("takes the write");
    }
}

async fn write(volume: &Volume, at: u64, byte: u8) -> Outcome {
    (volume as &dyn BlockDevice).write(at, Buffer::from_slice(&[byte; 4096])).await
}

/// Reads from every member.
async fn read_all(volume: &Volume) {
    for at in 0..64 {
        let memory = Buffer::zeroed(65536);
        (volume as &dyn BlockDevice).read(at * 65536, &memory).await.expect("reads");
    }
}

fn errors(volume: &Volume) -> Vec<(String, String)> {
    let told = |it: DeviceReport| (it.device.unwrap_or_default(), it.errors.to_string());
    volume.status().errors.into_iter().map(told).collect()
}

fn of(device: &str, errors: &str) -> Vec<(String, String)> {
    vec![(device.to_owned(), errors.to_owned())]
}

fn alert(volume: &Volume, kind: AlertKind) -> Option<Alert> {
    volume.status().alerts.into_iter().find(|alert| alert.kind == kind)
}

fn last_scrub(volume: &Volume) -> LastScrub {
    volume.status().array.last_scrub.expect("there was one")
}

async fn scrub(bench: &Bench, volume: &Volume) {
    volume.scrub_array(None).expect("it has redundancy");
    while volume.status().cores[0].background.scrub_wanted {
        bench.runtime.sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn errors_of_members_are_kept_over_restarts_until_they_are_cleared() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime, Level::Raid5, false).await;
        let volume = bench.open().await;
        write_all(&volume).await;
        assert_eq!(volume.status().health, HealthState::Healthy);
        for member in [0, 2] {
            bench.fail_once(member, RequestKind::Read);
            read_all(&volume).await;
        }
        let both = [of("m0", "1 read error"), of("m2", "1 read error")].concat();
        let volume = bench.again(volume).await;
        assert_eq!(errors(&volume), both);
        let status = volume.status();
        assert_eq!(status.health, HealthState::Errors);
        assert_eq!((status.array.state, status.array.health), (ArrayState::Optimal, status.health));
        let last = status.errors[0].last_error.clone().expect("the newest");
        assert_eq!((last.kind, last.cause), (ErrorKind::Read, ErrorCause::Other));
        let told = alert(&volume, AlertKind::MemberErrors).expect("until it is cleared");
        assert!(told.action.contains("`headpond clear stack m0`"), "{told}");
        volume.reset_stats();
        assert_eq!(errors(&volume), both, "they are no statistics");
        let refused = volume.clear_errors(Some("m7")).await.unwrap_err().to_string();
        assert!(refused.contains("m7; it has: m0, m1, m2"), "{refused}");
        volume.clear_errors(Some("m0")).await.expect("it has one");
        let volume = bench.again(volume).await;
        assert_eq!(errors(&volume), of("m2", "1 read error"));
        let uuid = volume.status().errors[0].uuid.to_string();
        volume.clear_errors(Some(&uuid)).await.expect("by its UUID");
        let volume = bench.again(volume).await;
        assert_eq!((errors(&volume), volume.status().health), (vec![], HealthState::Healthy));
        assert_eq!(volume.status().alerts, []);
    });
}

#[test]
fn errors_outlive_a_cut_a_second_later_and_count_on() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime, Level::Raid5, false).await;
        let volume = bench.open().await;
        write_all(&volume).await;
        bench.fail_once(1, RequestKind::Read);
        read_all(&volume).await;
        bench.seconds(2).await;
        drop(volume);
        let volume = bench.open().await;
        assert_eq!(errors(&volume), of("m1", "1 read error"));
        bench.fail_once(1, RequestKind::Read);
        read_all(&volume).await;
        // The write that was due soon after the open has been, or comes after ten seconds.
        bench.seconds(15).await;
        drop(volume);
        assert_eq!(errors(&bench.open().await), of("m1", "2 read errors"));
    });
}

#[test]
fn a_member_that_is_full_is_named_with_the_way_out() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime, Level::Raid0, false).await;
        let volume = bench.open().await;
        let data = ByteRange::at(1 << 20, 31 << 20);
        let rule = FaultRule::on(RequestKind::Write, Fault::NoSpace);
        bench.faults[1].add(FaultRule { range: Some(data), ..rule });
        let mut failed = 0;
        for at in 0..9 {
            failed += u64::from(write(&volume, at * 16384, 7).await.is_err());
        }
        let errors = volume.status().errors;
        assert_eq!((errors.len(), errors[0].errors.write), (1, failed));
        let told = alert(&volume, AlertKind::MemberErrors).expect("it has errors");
        assert!(told.cause.contains("the file system that holds m1 is full"), "{told}");
        assert!(told.action.contains("df m1"), "{told}");
        bench.faults[1].clear();
        let volume = bench.again(volume).await;
        assert_eq!(alert(&volume, AlertKind::MemberErrors), Some(told));
    });
}

/// The area of the volume record fails or hangs on one member, and the others have it.
#[test]
fn a_member_that_does_not_take_the_errors_holds_up_nothing_and_stays() {
    for fault in [Fault::Media, Fault::NoSpace, Fault::Delay(Duration::from_secs(20))] {
        simulate(async move |runtime| {
            let bench = Bench::new(&runtime, Level::Raid5, false).await;
            let volume = bench.open().await;
            write_all(&volume).await;
            let area = ByteRange::at(COPY_OFFSETS[0], 56 << 10);
            let rule = FaultRule { range: Some(area), ..FaultRule::on(RequestKind::Write, fault) };
            bench.faults[1].add(rule);
            bench.fail_once(2, RequestKind::Read);
            read_all(&volume).await;
            bench.seconds(2).await;
            write_all(&volume).await;
            read_all(&volume).await;
            assert_eq!(volume.status().array.state, ArrayState::Optimal);
            let struck = bench.faults[1].struck();
            bench.seconds(60).await;
            assert_eq!(bench.faults[1].struck(), struck, "the error of that write asks for none");
            drop(volume);
            bench.faults[1].clear();
            let volume = bench.open().await;
            assert!(
                errors(&volume).contains(&of("m2", "1 read error")[0]),
                "{:?}",
                errors(&volume)
            );
            assert_eq!(volume.status().array.state, ArrayState::Optimal);
        });
    }
}

#[test]
fn a_setting_that_changes_while_errors_are_kept_is_not_lost() {
    for millis in 995..1010 {
        simulate(async move |runtime| {
            let bench = Bench::new(&runtime, Level::Raid5, false).await;
            let volume = bench.open().await;
            write_all(&volume).await;
            for faults in &bench.faults {
                let delay = Fault::Delay(Duration::from_millis(3));
                faults.add(FaultRule::on(RequestKind::Write, delay));
            }
            bench.fail_once(1, RequestKind::Read);
            read_all(&volume).await;
            runtime.sleep(Duration::from_millis(millis)).await;
            let change: SettingChange = "merge-wait-us=5".parse().expect("a change");
            volume.set(&[change]).await.expect("set");
            bench.seconds(30).await;
            let described = volume.description();
            drop(volume);
            let members = bench.devices().members;
            let found =
                newest_volume_record(members.iter().map(|it| &**it), bench.description.uuid);
            let record = VolumeRecord::parse(&found.await.expect("a record").text).expect("ours");
            assert!(record.agrees(&described), "{millis} ms");
            assert_eq!(errors(&bench.open().await), of("m1", "1 read error"), "{millis} ms");
        });
    }
}

#[test]
fn errors_of_a_cache_are_kept_and_cleared_like_those_of_members() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime, Level::Raid5, true).await;
        let volume = bench.open().await;
        write(&volume, 0, 1).await.expect("takes the write");
        let rule = FaultRule::on(RequestKind::Write, Fault::NoSpace);
        bench.cache_faults.add(FaultRule { times: Some(1), ..rule });
        write(&volume, 4096, 2).await.expect("goes to the array");
        let volume = bench.again(volume).await;
        assert_eq!(errors(&volume), of("cache", "1 write error"));
        let told = alert(&volume, AlertKind::CacheWriteErrors).expect("until it is cleared");
        assert!(told.cause.contains("no space left"), "{told}");
        assert!(told.action.contains("headpond clear stack"), "{told}");
        let keep = |_: &Description| -> Keeping<'_> { Box::pin(async { Ok(()) }) };
        let identities = [1, 2].map(Uuid::from_u128);
        volume.purge_cache(Dirty::Clean, identities, &keep).await.expect("it is the same device");
        let volume = bench.again(volume).await;
        assert_eq!(errors(&volume), of("cache", "1 write error"));
        volume.clear_errors(Some("cache")).await.expect("it has one");
        let volume = bench.again(volume).await;
        assert_eq!((errors(&volume), volume.status().alerts), (vec![], vec![]));
        volume.scrub_cache().await.expect("reads all");
        let before = volume.status().cache.and_then(|cache| cache.last_scrub).expect("it was one");
        let after = bench.again(volume).await.status().cache.and_then(|cache| cache.last_scrub);
        assert_eq!(after, Some(before));
    });
}

#[test]
fn what_a_scrub_repaired_is_told_by_member_after_a_restart() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime, Level::Raid1, false).await;
        let volume = bench.open().await;
        assert_eq!(volume.status().array.last_scrub, None);
        write_all(&volume).await;
        bench.corrupt(1, 65536, 3);
        bench.corrupt(2, 1 << 20, 2);
        bench.seconds(100).await;
        let began = runtime.utc();
        scrub(&bench, &volume).await;
        let before = last_scrub(&volume);
        assert_eq!((before.state, before.began_at), (ScrubState::Complete, began));
        assert!(before.ended_at.is_some_and(|ended| ended >= began));
        let volume = bench.again(volume).await;
        assert_eq!(last_scrub(&volume), before);
        let by_member = before.members.iter().map(|it| (&*it.device, it.repaired_sectors));
        assert_eq!(by_member.collect::<Vec<_>>(), [("m1", 3), ("m2", 2)]);
        assert_eq!((before.report.corrected_sectors, before.report.unexplained_sectors), (5, 0));
        let both = [of("m1", "1 checksum error"), of("m2", "1 checksum error")].concat();
        assert_eq!((errors(&volume), volume.status().health), (both, HealthState::Errors));
        volume.clear_errors(None).await.expect("all");
        let volume = bench.again(volume).await;
        assert_eq!(volume.status().health, HealthState::Healthy);
        let kept = last_scrub(&volume);
        assert_eq!(kept.report, before.report, "it is no error that could be cleared");
    });
}

#[test]
fn a_scrub_that_goes_on_after_a_restart_adds_up() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime, Level::Raid1, false).await;
        let volume = bench.open().await;
        write_all(&volume).await;
        bench.corrupt(1, 0, 1);
        bench.corrupt(1, 24 << 20, 4);
        let slow = BackgroundRate { min: Size(1 << 20), max: Some(Size(1 << 20)) };
        volume.set_background_rate(None, |_| slow).expect("a rate");
        volume.scrub_array(None).expect("it has redundancy");
        bench.seconds(5).await;
        assert_eq!(last_scrub(&volume).state, ScrubState::Running);
        let described = volume.description();
        volume.stop().await.expect("stops");
        drop(volume);
        let volume = Bench { description: described, ..bench };
        let (bench, volume) = (&volume, volume.open().await);
        let half = last_scrub(&volume);
        assert_eq!((half.report.corrected_sectors, half.ended_at), (1, None));
        assert!(half.took_s >= 4, "{half:?}");
        volume.set_background_rate(None, |_| BackgroundRate::default()).expect("a rate");
        scrub(bench, &volume).await;
        let whole = last_scrub(&volume);
        assert_eq!((whole.state, whole.began_at), (ScrubState::Complete, half.began_at));
        assert_eq!(whole.report.corrected_sectors, 5);
        assert_eq!(whole.members[0].repaired_sectors, 5);
        let layout_stripes = whole.report.stripes;
        scrub(bench, &volume).await;
        let again = last_scrub(&volume);
        assert_eq!((again.report.corrected_sectors, again.members), (0, vec![]), "a new one");
        assert_eq!(again.report.stripes, layout_stripes, "each stripe counts once");
    });
}

#[test]
fn what_a_scrub_cannot_explain_is_an_alert_until_it_is_cleared() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime, Level::Raid5, false).await;
        let volume = bench.open().await;
        write_all(&volume).await;
        bench.corrupt(1, 65536, 2);
        scrub(&bench, &volume).await;
        let volume = bench.again(volume).await;
        let told = alert(&volume, AlertKind::ScrubFindings).expect("until it is cleared");
        assert!(told.cause.contains("2 inconsistent sectors"), "{told}");
        assert!(told.cause.contains("m0, m1, m2 do not agree"), "{told}");
        assert!(told.cause.contains("the first at byte"), "{told}");
        assert_eq!(volume.status().health, HealthState::Errors);
        volume.clear_errors(None).await.expect("all");
        let volume = bench.again(volume).await;
        assert_eq!(
            (volume.status().alerts, volume.status().health),
            (vec![], HealthState::Healthy)
        );
        let scrub = last_scrub(&volume);
        assert!(scrub.is_cleared && scrub.report.unexplained_sectors == 2, "{scrub:?}");
    });
}

#[test]
fn errors_are_cleared_on_a_volume_that_is_not_open() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime, Level::Raid5, false).await;
        let volume = bench.open().await;
        write_all(&volume).await;
        for member in [0, 1, 2] {
            bench.fail_once(member, RequestKind::Read);
            read_all(&volume).await;
        }
        let uuid: Uuid = volume.status().errors[2].uuid;
        volume.stop().await.expect("stops");
        drop(volume);
        let clear = async |device: Option<&str>| {
            let devices = bench.devices();
            Volume::clear_errors_stopped(&runtime, &bench.description, devices, None, device).await
        };
        let refused = clear(Some("m7")).await.unwrap_err().to_string();
        assert!(refused.contains("m7"), "{refused}");
        clear(Some("m0")).await.expect("by its name");
        clear(Some(&uuid.to_string())).await.expect("by its UUID");
        let volume = bench.open().await;
        assert_eq!(errors(&volume), of("m1", "1 read error"));
        volume.stop().await.expect("stops");
        drop(volume);
        clear(None).await.expect("all");
        assert_eq!(errors(&bench.open().await), []);
    });
}
