//! Members that answer late or never, one story a test. Time is virtual.

use std::rc::Rc;
use std::time::Duration;

use crate::support::*;
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::{BlockDevice, Buffer, Request, RequestKind, Runtime};
use headpond_raid::layout::{Strip, Stripe};
use headpond_raid::superblock::RoleState;
use headpond_raid::{
    Answers, Array, ArrayState, AssembleOptions, CreateOptions, Deadlines, Intent, Level, Role,
    Tuning, assemble, create,
};

/// An array whose members can be made slow.
struct Setup {
    members: Vec<Rc<TestDevice>>,
    controls: Vec<FaultControl>,
    array: Rc<Array>,
    runtime: Runtime,
}

impl Setup {
    async fn new(level: Level, count: usize, runtime: Runtime) -> Setup {
        Self::with(level, count, runtime, Intent::None, Some(Deadlines::default())).await
    }

    async fn of_groups(level: Level, count: usize, groups: usize, runtime: Runtime) -> Setup {
        Self::made(count, options(level, groups), runtime, Some(Deadlines::default())).await
    }

    async fn with(
        level: Level,
        count: usize,
        runtime: Runtime,
        intent: Intent,
        deadlines: Option<Deadlines>,
    ) -> Setup {
        let how = CreateOptions { intent, ..options(level, 1) };
        Self::made(count, how, runtime, deadlines).await
    }

    async fn made(
        count: usize,
        how: CreateOptions,
        runtime: Runtime,
        deadlines: Option<Deadlines>,
    ) -> Setup {
        let members = devices(count, 64, &runtime);
        create(&as_devices(&members), &how).await.unwrap();
        let controls: Vec<FaultControl> = (0..count).map(|_| FaultControl::default()).collect();
        let faulty = as_devices(&members).into_iter().zip(&controls).map(|(device, control)| {
            Rc::new(FaultDevice::new(device, control.clone(), runtime.clone())) as Rc<_>
        });
        let tuning = Tuning { deadlines, ..Tuning::default() };
        let options = AssembleOptions { tuning, ..AssembleOptions::default() };
        let array = assemble(&runtime, faulty.collect(), options).await.unwrap().array;
        Setup { members, controls, array: Rc::new(array), runtime }
    }

    fn role(&self, stripe: u64, strip: Strip) -> Role {
        self.array.layout().cell(Stripe(stripe), strip).role
    }

    fn hang(&self, role: Role, kind: RequestKind) {
        self.controls[role.index()].add(FaultRule::on(kind, Fault::Hang));
    }

    fn delay(&self, role: Role, kind: RequestKind, time: Duration) {
        self.controls[role.index()].add(FaultRule::on(kind, Fault::Delay(time)));
    }

    async fn fill(&self, seed: u64) -> Vec<u8> {
        let bytes = Random::new(seed).bytes(self.array.layout().array_bytes() as usize);
        write(&self.array, 0, &bytes).await.unwrap();
        bytes
    }

    /// Whether `work` ends within `seconds`.
    async fn within<T: 'static>(
        &self,
        seconds: u64,
        work: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        let at = self.runtime.now() + Duration::from_secs(seconds);
        self.runtime.deadline(at, work).await.ok()
    }

    async fn read_within(&self, seconds: u64, offset: u64, len: usize) -> Option<Vec<u8>> {
        let array = Rc::clone(&self.array);
        self.within(seconds, async move { read(&array, offset, len).await.unwrap() }).await
    }

    async fn write_within(&self, seconds: u64, offset: u64, bytes: Vec<u8>) -> Option<()> {
        let array = Rc::clone(&self.array);
        self.within(seconds, async move { write(&array, offset, &bytes).await.unwrap() }).await
    }

    fn answers(&self, role: Role) -> Answers {
        self.array.status().members[role.index()].answers
    }

    fn state_of(&self, role: Role) -> RoleState {
        self.array.status().members[role.index()].state
    }
}

const KINDS: [(Level, usize); 4] =
    [(Level::Raid1, 2), (Level::Raid1, 3), (Level::Raid5, 4), (Level::Raid6, 5)];

#[test]
fn reads_of_a_hung_member_are_reconstructed() {
    for (level, count) in KINDS {
        run(1, |runtime| async move {
            let setup = Setup::new(level, count, runtime).await;
            let bytes = setup.fill(1).await;
            let slow = setup.role(0, Strip::Data(0));
            setup.hang(slow, RequestKind::Read);
            let seen = setup.read_within(3, 0, bytes.len()).await.expect("answered");
            assert!(seen == bytes, "{level}");
            assert_eq!(setup.array.state(), ArrayState::Optimal, "it may only be busy");
            let told = setup.answers(slow);
            assert!(
                told.slow_reads > 0 && told.is_slow && told.reconstructed_reads > 0,
                "{told:?}"
            );
            let before = setup.controls[slow.index()].struck();
            let seen = setup.read_within(1, 0, bytes.len()).await.expect("answered at once");
            assert!(seen == bytes);
            assert_eq!(setup.controls[slow.index()].struck(), before, "it is not asked meanwhile");
        });
    }
}

#[test]
fn an_answer_that_comes_too_late_does_not_touch_the_memory_of_the_client() {
    for (level, count) in KINDS {
        run(2, |runtime| async move {
            let setup = Setup::new(level, count, runtime).await;
            let bytes = setup.fill(2).await;
            let slow = setup.role(0, Strip::Data(0));
            setup.delay(slow, RequestKind::Read, Duration::from_secs(5));
            let memory = Buffer::zeroed(bytes.len());
            setup.array.submit(Request::read(0, &memory)).await.unwrap();
            assert!(memory.to_vec() == bytes);
            memory.fill(0x77);
            setup.runtime.sleep(Duration::from_secs(10)).await;
            assert!(memory.to_vec().iter().all(|byte| *byte == 0x77), "{level}");
            let told = setup.answers(slow);
            assert!(!told.is_slow && told.timed_out_reads > 0, "it has answered by now");
        });
    }
}

/// Groups have their redundancy each: what one of them waits for goes on after a member of another
/// one was given up, and so after the client's memory was exchanged.
#[test]
fn reads_under_way_while_another_one_is_given_up_reach_the_client() {
    run(15, |runtime| async move {
        let setup = Setup::of_groups(Level::Raid50, 6, 2, runtime).await;
        let bytes = setup.fill(15).await;
        let groups = setup.array.layout().group_roles(1).collect::<Vec<_>>();
        // Nothing helps against both of them.
        groups[..2].iter().for_each(|role| setup.delay(*role, RequestKind::Read, millis(9000)));
        let slow = setup.role(0, Strip::Data(0));
        assert!(!groups.contains(&slow));
        setup.delay(slow, RequestKind::Read, Duration::from_secs(60));
        let memory = Buffer::zeroed(bytes.len());
        let array = Rc::clone(&setup.array);
        let request = Request::read(0, &memory);
        let all = setup.within(30, async move { array.submit(request).await }).await;
        assert_eq!(all, Some(Ok(())));
        assert!(memory.to_vec() == bytes);
        assert!(setup.answers(slow).reconstructed_reads > 0);
        memory.fill(0x77);
        setup.runtime.sleep(Duration::from_secs(100)).await;
        assert!(memory.to_vec().iter().all(|byte| *byte == 0x77));
    });
}

#[test]
fn members_read_into_the_memory_of_a_client_that_asks_for_all_of_it() {
    for (level, count) in KINDS {
        run(16, |runtime| async move {
            let setup = Setup::new(level, count, runtime).await;
            let bytes = setup.fill(16).await;
            let part = Buffer::zeroed(bytes.len() + 512).slice(512..bytes.len() + 512);
            for (target, is_all) in [(Buffer::zeroed(bytes.len()), true), (part, false)] {
                let memory = target.as_ptr()..target.as_ptr().wrapping_add(target.len());
                setup.members.iter().for_each(|member| member.targets.borrow_mut().clear());
                setup.array.submit(Request::read(0, &target)).await.unwrap();
                assert!(target.to_vec() == bytes, "{level}");
                let targets = setup.members.iter().flat_map(|member| member.targets.take());
                let targets: Vec<_> = targets.map(|at| memory.contains(&at)).collect();
                assert!(!targets.is_empty());
                assert!(targets.iter().all(|is_in_place| *is_in_place == is_all), "{level}");
            }
        });
    }
}

#[test]
fn a_member_that_does_not_write_is_evicted_before_the_write_is_acknowledged() {
    for (level, count) in KINDS {
        for intent in [Intent::None, Intent::Bitmap] {
            run(3, |runtime| async move {
                let deadlines = Some(Deadlines::default());
                let setup = Setup::with(level, count, runtime, intent, deadlines).await;
                let mut bytes = setup.fill(3).await;
                let hung = setup.role(0, Strip::Data(0));
                setup.hang(hung, RequestKind::Write);
                bytes[..512].fill(9);
                assert_eq!(setup.write_within(20, 0, vec![9; 512]).await, None, "not yet");
                setup.write_within(90, 0, vec![9; 512]).await.expect("by the redundancy");
                assert_eq!(setup.state_of(hung), RoleState::Failed);
                assert_eq!(setup.array.status().counts.evictions, 1);
                assert!(read(&setup.array, 0, bytes.len()).await.unwrap() == bytes);
                for (role, survivor) in setup.members.iter().enumerate() {
                    let found = headpond_raid::inspect(&**survivor).await.unwrap();
                    let headpond_raid::Inspection::Member(superblock) = found else { panic!() };
                    let says = superblock.array.roles[hung.index()].state;
                    assert_eq!(says == RoleState::Failed, role != hung.index(), "{level}");
                }
            });
        }
    }
}

#[test]
fn a_member_that_only_hangs_reads_is_told_at_its_deadline_and_can_be_evicted_then() {
    for (level, count) in KINDS {
        run(9, |runtime| async move {
            let setup = Setup::new(level, count, runtime).await;
            let bytes = setup.fill(9).await;
            let told = Rc::new(std::cell::Cell::new(0));
            let tell = Rc::clone(&told);
            setup.array.watch(Box::new(move || tell.set(tell.get() + 1)));
            let hung = setup.role(0, Strip::Data(0));
            setup.hang(hung, RequestKind::Read);
            setup.read_within(3, 0, bytes.len()).await.expect("answered by the peers");
            setup.array.evict_hung().await;
            assert_eq!((told.get(), setup.array.state()), (0, ArrayState::Optimal), "{level}");
            setup.runtime.sleep(Duration::from_secs(30)).await;
            assert_eq!(told.get(), 1, "{level}: once, though many reads hang");
            setup.array.evict_hung().await;
            assert_eq!(setup.state_of(hung), RoleState::Failed);
            assert_eq!(setup.array.status().counts.evictions, 1);
            assert!(read(&setup.array, 0, bytes.len()).await.unwrap() == bytes);
        });
    }
}

#[test]
fn a_member_that_does_not_flush_is_evicted() {
    run(4, |runtime| async move {
        let setup = Setup::new(Level::Raid6, 5, runtime).await;
        setup.fill(4).await;
        setup.hang(Role(2), RequestKind::Flush);
        let array = Rc::clone(&setup.array);
        let flushed = setup.within(90, async move { array.submit(Request::flush()).await }).await;
        assert_eq!(flushed, Some(Ok(())));
        assert_eq!(setup.state_of(Role(2)), RoleState::Failed);
    });
}

#[test]
fn a_member_that_is_late_again_and_again_is_evicted_and_one_that_is_rarely_stays() {
    for (rounds, state) in [(6, RoleState::Active), (40, RoleState::Failed)] {
        run(5, |runtime| async move {
            let setup = Setup::new(Level::Raid5, 4, runtime).await;
            let bytes = setup.fill(5).await;
            let slow = setup.role(0, Strip::Data(0));
            setup.delay(slow, RequestKind::Read, Duration::from_secs(4));
            for _ in 0..rounds {
                assert!(read(&setup.array, 0, 512).await.unwrap() == bytes[..512]);
                setup.runtime.sleep(Duration::from_secs(5)).await;
            }
            // The eviction is left to the next request.
            assert!(read(&setup.array, 0, 512).await.unwrap() == bytes[..512]);
            assert_eq!(setup.state_of(slow), state, "{:?}", setup.array.status().members);
        });
    }
}

#[test]
fn without_redundancy_left_a_request_waits_and_the_others_go_on() {
    run(6, |runtime| async move {
        let setup = Setup::new(Level::Raid5, 4, runtime).await;
        let bytes = setup.fill(6).await;
        let lost = setup.role(0, Strip::Data(1));
        setup.members[lost.index()].gone.set(true);
        assert!(read(&setup.array, 0, bytes.len()).await.unwrap() == bytes);
        assert_eq!(setup.array.state(), ArrayState::Degraded);
        let slow = setup.role(0, Strip::Data(0));
        let base = 1 << 20;
        setup.controls[slow.index()].add(FaultRule {
            range: Some(headpond_block::ByteRange::at(base, u64::from(STRIP))),
            ..FaultRule::on(RequestKind::Read, Fault::Delay(Duration::from_secs(120)))
        });
        let array = Rc::clone(&setup.array);
        let waiting = setup.runtime.spawn(async move { read(&array, 0, 512).await.unwrap() });
        let width = setup.array.layout().stripe_bytes();
        for stripe in 1..8 {
            let at = (stripe * width) as usize;
            let seen = setup.read_within(5, at as u64, 512).await.expect("others go on");
            assert!(seen == bytes[at..at + 512]);
            setup.write_within(5, at as u64, bytes[at..at + 512].to_vec()).await.expect("likewise");
        }
        assert!(waiting.await == bytes[..512], "answered when the member did");
        assert_eq!(setup.array.state(), ArrayState::Degraded, "nobody was evicted");
    });
}

#[test]
fn a_read_that_the_peers_cannot_answer_waits_for_the_slow_member() {
    run(7, |runtime| async move {
        let setup = Setup::new(Level::Raid1, 2, runtime).await;
        let bytes = setup.fill(7).await;
        setup.delay(Role(0), RequestKind::Read, Duration::from_secs(10));
        setup.members[1].make_bad(0, 512);
        let seen = setup.read_within(60, 0, 512).await.expect("in the end");
        assert!(seen == bytes[..512]);
    });
}

#[test]
fn without_patience_set_everything_is_waited_for() {
    run(8, |runtime| async move {
        let setup = Setup::with(Level::Raid5, 4, runtime, Intent::None, None).await;
        let bytes = setup.fill(8).await;
        let slow = setup.role(0, Strip::Data(0));
        setup.delay(slow, RequestKind::Read, Duration::from_secs(100));
        assert_eq!(setup.read_within(99, 0, 512).await, None);
        setup.controls[slow.index()].clear();
        setup.array.set_deadlines(Some(Deadlines::default()));
        setup.delay(slow, RequestKind::Read, Duration::from_secs(100));
        assert!(setup.read_within(3, 0, 512).await.expect("set while in use") == bytes[..512]);
    });
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn settings_decide_how_long_a_read_waits_and_when_its_member_is_failed() {
    run(10, |runtime| async move {
        let setup = Setup::new(Level::Raid5, 4, runtime).await;
        let bytes = setup.fill(10).await;
        let slow = setup.role(0, Strip::Data(0));
        let deadlines =
            Deadlines { read: Some(millis(200)), deadline: Some(millis(5000)), timeouts_max: None };
        setup.array.set_deadlines(Some(deadlines));
        setup.delay(slow, RequestKind::Read, millis(1000));
        for _ in 0..20 {
            let began = setup.runtime.now();
            assert!(read(&setup.array, 0, 512).await.unwrap() == bytes[..512]);
            let took = setup.runtime.now().since(began);
            assert!(took <= millis(240), "a tick of before may be under way: {took:?}");
            setup.runtime.sleep(millis(1000)).await;
        }
        let told = setup.answers(slow);
        assert_eq!((told.timeouts, told.is_timed_out), (20, false), "late as often as it likes");
        setup.array.set_deadlines(Some(Deadlines { timeouts_max: Some(21), ..deadlines }));
        for _ in 0..2 {
            assert!(read(&setup.array, 0, 512).await.unwrap() == bytes[..512]);
            setup.runtime.sleep(millis(1000)).await;
        }
        assert_eq!(setup.state_of(slow), RoleState::Failed, "once more was too often");
    });
}

#[test]
fn without_patience_for_reads_a_hung_member_is_given_up_after_its_deadline_all_the_same() {
    run(11, |runtime| async move {
        let setup = Setup::new(Level::Raid5, 4, runtime).await;
        let bytes = setup.fill(11).await;
        let hung = setup.role(0, Strip::Data(0));
        setup.array.set_deadlines(Some(Deadlines {
            read: None,
            deadline: Some(millis(3000)),
            timeouts_max: Some(8),
        }));
        setup.hang(hung, RequestKind::Read);
        assert_eq!(setup.read_within(2, 0, 512).await, None, "not before");
        let seen = setup.read_within(4, 0, 512).await.expect("by its peers");
        assert!(seen == bytes[..512]);
        assert_eq!(setup.state_of(hung), RoleState::Failed);
    });
}

#[test]
fn without_a_deadline_a_hung_member_is_read_around_and_stays() {
    run(12, |runtime| async move {
        let setup = Setup::new(Level::Raid5, 4, runtime).await;
        let bytes = setup.fill(12).await;
        let hung = setup.role(0, Strip::Data(0));
        setup.array.set_deadlines(Some(Deadlines { deadline: None, ..Deadlines::default() }));
        setup.hang(hung, RequestKind::Read);
        for _ in 0..100 {
            let seen = setup.read_within(3, 0, 512).await.expect("by its peers");
            assert!(seen == bytes[..512]);
            setup.runtime.sleep(millis(10_000)).await;
        }
        assert_eq!(setup.state_of(hung), RoleState::Active);
    });
}

/// Ticks have another length once the patience is changed: what has waited for many short ones has
/// not waited long.
#[test]
fn a_change_of_patience_blames_nobody_for_what_is_under_way() {
    run(13, |runtime| async move {
        let setup = Setup::new(Level::Raid5, 4, runtime).await;
        let bytes = setup.fill(13).await;
        let busy = setup.role(0, Strip::Data(0));
        let quick = Deadlines {
            read: Some(millis(100)),
            deadline: Some(millis(60_000)),
            timeouts_max: None,
        };
        setup.array.set_deadlines(Some(quick));
        setup.delay(busy, RequestKind::Read, millis(10_000));
        assert!(read(&setup.array, 0, 512).await.unwrap() == bytes[..512]);
        setup.runtime.sleep(millis(1000)).await;
        let minute = Duration::from_secs(60);
        let slow = Deadlines { read: Some(minute), deadline: Some(minute), timeouts_max: None };
        setup.array.set_deadlines(Some(slow));
        setup.runtime.sleep(millis(20_000)).await;
        assert!(read(&setup.array, 0, bytes.len()).await.unwrap() == bytes);
        let told = setup.answers(busy);
        assert!(!told.is_timed_out && !told.is_slow, "{told:?}");
        assert_eq!(setup.state_of(busy), RoleState::Active);
    });
}

#[test]
fn the_status_of_a_slow_member_has_its_peers_times_and_clears_after_ten_minutes() {
    run(14, |runtime| async move {
        let setup = Setup::new(Level::Raid5, 4, runtime).await;
        let bytes = setup.fill(14).await;
        let slow = setup.role(0, Strip::Data(0));
        (0..4).for_each(|role| setup.delay(Role(role), RequestKind::Read, millis(5)));
        setup.controls[slow.index()].clear();
        setup.delay(slow, RequestKind::Read, millis(50));
        for _ in 0..64 {
            assert!(read(&setup.array, 0, bytes.len()).await.unwrap() == bytes);
        }
        let told = setup.answers(slow);
        assert_eq!(told, Answers { typical_read_us: told.typical_read_us, ..Answers::default() });
        assert!((45_000..55_000).contains(&told.typical_read_us.unwrap()), "{told:?}");
        for role in (0..4).map(Role).filter(|role| *role != slow) {
            let typical = setup.answers(role).typical_read_us.unwrap();
            assert!((4500..5500).contains(&typical), "{typical}");
        }
        setup.controls[slow.index()].clear();
        setup.delay(slow, RequestKind::Read, Duration::from_secs(3));
        for _ in 0..3 {
            assert!(read(&setup.array, 0, 512).await.unwrap() == bytes[..512]);
            setup.runtime.sleep(Duration::from_secs(5)).await;
        }
        setup.controls[slow.index()].clear();
        let told = setup.answers(slow);
        assert_eq!((told.timeouts, told.slow_events, told.reconstructed_reads), (3, 3, 3));
        setup.runtime.sleep(headpond_raid::deadlines::WINDOW).await;
        let told = setup.answers(slow);
        assert_eq!((told.timeouts, told.slow_events, told.timed_out_reads), (0, 0, 3));
    });
}

/// What is slow is compared with what is usual: where all complete after seconds no member is
/// failed.
#[test]
fn an_array_that_is_slow_all_over_evicts_nobody() {
    run(9, |runtime| async move {
        let setup = Setup::new(Level::Raid6, 5, runtime).await;
        let bytes = setup.fill(9).await;
        for role in 0..5 {
            setup.delay(Role(role), RequestKind::Read, Duration::from_secs(3));
        }
        for _ in 0..100 {
            assert!(read(&setup.array, 0, bytes.len()).await.unwrap() == bytes);
        }
        assert_eq!(setup.array.state(), ArrayState::Optimal);
    });
}

/// Reads and writes side by side, on members of which one is slow for a while, then another one: an
/// array is its bytes, and clients' memory is their own once they were answered.
#[test]
fn an_array_is_its_bytes_whoever_is_slow() {
    for seed in 0..40 {
        let (level, count) = KINDS[seed as usize % KINDS.len()];
        run(seed, |runtime| async move {
            let intent = if seed % 3 == 0 { Intent::Bitmap } else { Intent::None };
            let deadlines = Some(Deadlines::default());
            let setup = Setup::with(level, count, runtime, intent, deadlines).await;
            let mut expected = setup.fill(seed).await;
            let random = Random::new(seed);
            let share = expected.len() / 4;
            for _ in 0..40 {
                setup.controls.iter().for_each(FaultControl::clear);
                let slow = Role(random.below(count as u64) as u16);
                let kind = [RequestKind::Read, RequestKind::Write][random.below(2) as usize];
                setup.delay(slow, kind, Duration::from_millis(random.below(50_000)));
                let clients: Vec<_> = (0..4)
                    .map(|client| {
                        let at = client * share + random.below(share as u64 / 1024) as usize * 512;
                        let len = 512 + random.below(share as u64 / 1024) as usize * 512;
                        let (array, runtime) = (Rc::clone(&setup.array), setup.runtime.clone());
                        let bytes = expected[at..at + len].to_vec();
                        let new = (random.below(3) == 0).then(|| random.bytes(len));
                        if let Some(new) = &new {
                            expected[at..at + len].copy_from_slice(new);
                        }
                        runtime.spawn(async move {
                            match new {
                                Some(new) => {
                                    let memory = Buffer::from_slice(&new);
                                    array.submit(Request::write(at as u64, &memory)).await.unwrap();
                                    memory.fill(0x66);
                                }
                                None => {
                                    assert!(read(&array, at as u64, len).await.unwrap() == bytes)
                                }
                            }
                        })
                    })
                    .collect();
                for client in clients {
                    client.await;
                }
            }
            setup.controls.iter().for_each(FaultControl::clear);
            let all = read(&setup.array, 0, expected.len()).await.unwrap();
            assert!(all == expected, "{level}, seed {seed}");
            setup.runtime.sleep(Duration::from_secs(100)).await;
            let all = read(&setup.array, 0, expected.len()).await.unwrap();
            assert!(all == expected, "{level}, seed {seed}, after all late answers");
        });
    }
}
