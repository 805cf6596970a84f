//! Sequential small writes that share plans: what they hold, and whom they keep waiting.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use crate::support::machine::{Machine, attempt};
use crate::support::*;
use headpond_block::executor::JoinHandle;
use headpond_block::{BlockDevice, Buffer, Outcome, Request, RequestFlags, Runtime};
use headpond_raid::{Array, ArrayState, Level, MergeConfig, MergeWait, PlanCounts};
use headpond_sim::Ended;
use proptest::prelude::*;

const SHAPES: [(Level, usize, usize); 4] =
    [(Level::Raid5, 4, 1), (Level::Raid6, 7, 1), (Level::Raid50, 6, 2), (Level::Raid60, 8, 2)];

const SECOND: MergeWait = MergeWait::AtMost(Duration::from_secs(1));
/// Longer than any write of the tests' members takes, and far shorter than a second.
const SOON: Duration = Duration::from_micros(100);

/// An array of seven members, five strips of data a stripe.
struct Scene {
    runtime: Runtime,
    array: Rc<Array>,
    members: Vec<Rc<TestDevice>>,
}

impl Scene {
    async fn new(runtime: Runtime, wait: MergeWait) -> Self {
        let members = devices(7, 32, &runtime);
        let array = Rc::new(new_array(&members, &options(Level::Raid6, 1)).await);
        array.set_merge(MergeConfig { wait, ..MergeConfig::default() });
        Self { runtime, array, members }
    }

    fn submit(&self, request: Request) -> JoinHandle<Outcome> {
        let array = Rc::clone(&self.array);
        self.runtime.spawn(async move { array.submit(request).await })
    }

    /// Writes so many blocks from the start of the array on, of a client with `depth` in flight.
    async fn stream(&self, blocks: u64, depth: u64) {
        stream(&self.runtime, &self.array, 0..blocks, depth, 1).await;
    }

    /// Three blocks of a stream whose client could send five more.
    async fn three_of_eight(&self) -> Vec<JoinHandle<Outcome>> {
        self.stream(64, 8).await;
        let three = (64..67).map(|at| self.submit(block(at, 2)));
        let three: Vec<_> = three.collect();
        self.runtime.sleep(SOON).await;
        three
    }

    async fn elapsed(&self, work: impl Future<Output = ()>) -> Duration {
        let before = self.runtime.now();
        work.await;
        self.runtime.now() - before
    }

    fn counts(&self) -> PlanCounts {
        self.array.status().counts
    }
}

fn block(at: u64, value: u8) -> Request {
    Request::write(at * 512, Buffer::from_slice(&[value; 512]))
}

/// A closed loop that writes blocks sequentially.
async fn stream(
    runtime: &Runtime,
    array: &Rc<Array>,
    blocks: std::ops::Range<u64>,
    depth: u64,
    value: u8,
) {
    let next = Rc::new(Cell::new(blocks.start));
    let worker = |_| {
        let (array, next) = (Rc::clone(array), Rc::clone(&next));
        runtime.spawn(async move {
            while next.get() < blocks.end {
                let at = next.replace(next.get() + 1);
                array.submit(block(at, value)).await.unwrap();
            }
        })
    };
    for worker in (0..depth).map(worker).collect::<Vec<_>>() {
        worker.await;
    }
}

async fn all_ok(writes: Vec<JoinHandle<Outcome>>) {
    for write in writes {
        write.await.unwrap();
    }
}

#[test]
fn a_stream_that_keeps_a_stripe_in_flight_is_written_in_full_stripes() {
    for (seed, depth) in [(1, 40), (2, 55), (3, 80)] {
        run(seed, |runtime| async move {
            let scene = Scene::new(runtime, MergeWait::Adaptive).await;
            scene.stream(40 * 32, depth).await;
            let counts = scene.counts();
            assert!(counts.full_stripe_writes >= 26, "of 32, at depth {depth}: {counts:?}");
            assert!(counts.merged_writes > 1000, "of 1280, at depth {depth}: {counts:?}");
            check_redundancy(&scene.array, &scene.members);
        });
    }
}

#[test]
fn a_stream_that_keeps_less_in_flight_is_written_by_as_much() {
    run(1, |runtime| async move {
        let scene = Scene::new(runtime, MergeWait::Adaptive).await;
        scene.stream(640, 8).await;
        let PlanCounts { reconstruct_writes, read_modify_writes, full_stripe_writes, .. } =
            scene.counts();
        let plans = reconstruct_writes + read_modify_writes + full_stripe_writes;
        assert!(plans < 640 / 4, "{:?}", scene.counts());
    });
}

#[test]
fn a_write_without_a_possible_successor_does_not_wait() {
    let took = |wait, depth| {
        run(5, |runtime| async move {
            let scene = Scene::new(runtime, wait).await;
            scene.elapsed(scene.stream(200, depth)).await
        })
    };
    assert_eq!(took(SECOND, 1), took(MergeWait::Off, 1), "a stream at depth 1");
    let random = |wait| {
        run(6, |runtime| async move {
            let scene = Scene::new(runtime, wait).await;
            let random = Random::new(6);
            let mut stripes: Vec<u64> = (0..32).collect();
            for index in 1..stripes.len() {
                stripes.swap(index, random.below(index as u64 + 1) as usize);
            }
            let writes = stripes.into_iter().map(|stripe| scene.submit(block(stripe * 40 + 7, 1)));
            let writes = writes.collect();
            let took = scene.elapsed(all_ok(writes)).await;
            assert_eq!(scene.counts().merged_writes, 0);
            took
        })
    };
    assert_eq!(random(SECOND), random(MergeWait::Off), "random writes");
}

#[test]
fn a_write_waits_no_longer_than_is_set_and_then_not_again() {
    run(1, |runtime| async move {
        let limit = Duration::from_millis(300);
        let scene = Scene::new(runtime, MergeWait::AtMost(limit)).await;
        let took = scene.elapsed(async { all_ok(scene.three_of_eight().await).await }).await;
        assert!(took > limit && took < limit + 10 * SOON, "{took:?}");
        let more = (67..70).map(|at| scene.submit(block(at, 3))).collect();
        let took = scene.elapsed(all_ok(more)).await;
        assert!(took < SOON, "its client has no more than three in flight: {took:?}");
    });
}

#[test]
fn the_array_finds_out_how_long_waiting_pays() {
    run(1, |runtime| async move {
        let scene = Scene::new(runtime, MergeWait::Adaptive).await;
        let took = scene.elapsed(async { all_ok(scene.three_of_eight().await).await }).await;
        assert!(took < 10 * SOON, "{took:?}");
    });
}

#[test]
fn a_flush_is_not_delayed_nor_what_waits_when_it_comes() {
    run(1, |runtime| async move {
        let scene = Scene::new(runtime, SECOND).await;
        let writes = scene.three_of_eight().await;
        let untouched = scene.counts();
        let took = scene
            .elapsed(async {
                scene.array.submit(Request::flush()).await.unwrap();
                all_ok(writes).await;
            })
            .await;
        assert!(took < SOON, "{took:?}");
        let plans = |counts: PlanCounts| counts.reconstruct_writes + counts.read_modify_writes;
        assert_eq!(plans(scene.counts()), plans(untouched) + 1, "they had waited");
        assert_eq!(read(&scene.array, 64 * 512, 3 * 512).await.unwrap(), [2; 3 * 512]);
    });
}

#[test]
fn a_write_that_is_to_be_stable_waits_for_nobody() {
    for flag in [RequestFlags::FUA, RequestFlags::RECOMPUTE_PARITY] {
        run(1, |runtime| async move {
            let scene = Scene::new(runtime, SECOND).await;
            scene.stream(64, 8).await;
            let write = scene.submit(block(64, 2).with_flags(flag));
            let took = scene.elapsed(async { write.await.unwrap() }).await;
            assert!(took < SOON, "{flag:?}: {took:?}");
        });
    }
}

#[test]
fn writes_of_other_flags_are_not_merged() {
    run(1, |runtime| async move {
        let scene = Scene::new(runtime, SECOND).await;
        let flags = [RequestFlags::empty(), RequestFlags::FUA, RequestFlags::LOGGED];
        let writes =
            (0..3_u64).map(|at| scene.submit(block(at * 8, 1).with_flags(flags[at as usize])));
        all_ok(writes.collect()).await;
        assert_eq!(scene.counts().merged_writes, 0);
        let writes = (0..3_u64).map(|at| scene.submit(block(at * 8, 1)));
        all_ok(writes.collect()).await;
        assert_eq!(scene.counts().merged_writes, 1, "the third joins the second");
    });
}

#[test]
fn no_more_bytes_wait_than_is_set() {
    run(1, |runtime| async move {
        let scene = Scene::new(runtime, SECOND).await;
        scene.array.set_merge(MergeConfig { wait: SECOND, bytes_max: 511 });
        let took = scene.elapsed(async { all_ok(scene.three_of_eight().await).await }).await;
        assert!(took < Duration::from_millis(500), "{took:?}");
    });
}

#[test]
fn held_writes_are_written_before_the_array_stops() {
    run(1, |runtime| async move {
        let scene = Scene::new(runtime, SECOND).await;
        let writes = scene.three_of_eight().await;
        let took = scene
            .elapsed(async {
                scene.array.stop().await.unwrap();
                all_ok(writes).await;
            })
            .await;
        assert!(took < SOON, "{took:?}");
        assert!(scene.array.submit(block(67, 9)).await.is_err(), "stopped");
        let again = start(&scene.members).await.array;
        assert_eq!(read(&again, 64 * 512, 3 * 512).await.unwrap(), [2; 3 * 512]);
        check_redundancy(&again, &scene.members);
    });
}

#[test]
fn a_member_that_fails_while_others_are_awaited_is_done_without() {
    for member in 0..7 {
        run(1, |runtime| async move {
            let scene = Scene::new(runtime, SECOND).await;
            let writes = scene.three_of_eight().await;
            scene.members[member].gone.set(true);
            scene.array.submit(Request::flush()).await.unwrap();
            all_ok(writes).await;
            assert_eq!(read(&scene.array, 64 * 512, 3 * 512).await.unwrap(), [2; 3 * 512]);
            assert_eq!(read(&scene.array, 0, 64 * 512).await.unwrap(), [1; 64 * 512]);
        });
    }
}

#[test]
fn all_that_took_part_are_told_of_an_error() {
    run(1, |runtime| async move {
        let scene = Scene::new(runtime, SECOND).await;
        let writes = scene.three_of_eight().await;
        scene.members.iter().for_each(|member| member.gone.set(true));
        let _ = scene.array.submit(Request::flush()).await;
        for write in writes {
            write.await.unwrap_err();
        }
        assert_eq!(scene.array.state(), ArrayState::Failed);
    });
}

#[test]
fn the_others_are_written_when_the_first_is_dropped() {
    run(1, |runtime| async move {
        let scene = Scene::new(runtime, SECOND).await;
        scene.stream(64, 8).await;
        let mut first = Some(scene.array.submit(block(64, 2)));
        std::future::poll_fn(|context| {
            let first = std::pin::Pin::new(first.as_mut().unwrap());
            assert!(first.poll(context).is_pending());
            std::task::Poll::Ready(())
        })
        .await;
        let others = vec![scene.submit(block(65, 2)), scene.submit(block(66, 2))];
        scene.runtime.sleep(SOON).await;
        first = None;
        assert!(first.is_none());
        let took = scene.elapsed(all_ok(others)).await;
        assert!(took < SOON, "{took:?}");
        assert_eq!(read(&scene.array, 65 * 512, 1024).await.unwrap(), [2; 1024]);
    });
}

/// A client of one region, with so many blocks in flight.
#[derive(Clone, Debug)]
struct Client {
    depth: u64,
    share: u64,
}

fn wait() -> impl Strategy<Value = MergeWait> {
    prop_oneof![
        Just(MergeWait::Adaptive),
        Just(MergeWait::Off),
        (0_u64..20).prop_map(|micros| MergeWait::AtMost(Duration::from_micros(micros))),
    ]
}

/// Streams side by side, each in a region of its own, while members fail and flushes come.
async fn streams_run(
    runtime: Runtime,
    shape: (Level, usize, usize),
    wait: MergeWait,
    clients: Vec<Client>,
    failures: Vec<(usize, u8, u64)>,
) {
    let (level, count, groups) = shape;
    let members = devices(count, 12, &runtime);
    let array = Rc::new(new_array(&members, &options(level, groups)).await);
    array.set_merge(MergeConfig { wait, ..MergeConfig::default() });
    let blocks = array.layout().array_bytes() / 512;
    let region = blocks / clients.len() as u64;
    let mut expected = vec![0_u8; blocks as usize * 512];
    let mut running = Vec::new();
    for (value, client) in (1_u8..).zip(clients) {
        let start = u64::from(value - 1) * region + client.share % 7;
        let end = (start + client.share).min(u64::from(value) * region);
        expected[start as usize * 512..end.max(start) as usize * 512].fill(value);
        let (runtime, array) = (runtime.clone(), Rc::clone(&array));
        let depth = client.depth;
        running.push(runtime.clone().spawn(async move {
            stream(&runtime, &array, start..end.max(start), depth, value).await;
        }));
    }
    let mut failed: Vec<usize> = Vec::new();
    for (member, how, pause) in failures {
        runtime.sleep(Duration::from_nanos(pause)).await;
        let _ = array.submit(Request::flush()).await;
        failed.push(member % count);
        failed.sort_unstable();
        failed.dedup();
        if !failure_sets(array.layout()).contains(&failed) {
            break;
        }
        match how % 3 {
            0 => members[member % count].writes_left.set(u64::from(how) % 4),
            1 => members[member % count].gone.set(true),
            _ => {}
        }
    }
    for client in running {
        client.await;
    }
    assert!(read(&array, 0, expected.len()).await.unwrap() == expected, "what was written");
    if array.state() == ArrayState::Optimal {
        check_redundancy(&array, &members);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 120, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn merged_streams_are_their_bytes_whatever_fails(
        shape in prop::sample::select(SHAPES.to_vec()),
        seed in any::<u64>(),
        wait in wait(),
        clients in prop::collection::vec(
            (1_u64..40, 1_u64..300).prop_map(|(depth, share)| Client { depth, share }), 1..5,
        ),
        failures in prop::collection::vec((any::<usize>(), any::<u8>(), 0_u64..200_000), 0..4),
    ) {
        run(seed, |runtime| streams_run(runtime, shape, wait, clients, failures));
    }
}

#[test]
fn streams_over_the_same_blocks_leave_one_of_them_and_right_parity() {
    for seed in 0..24 {
        run(seed, |runtime| async move {
            let wait = if seed % 2 == 0 { MergeWait::Adaptive } else { SECOND };
            let scene = Scene::new(runtime, wait).await;
            let Scene { runtime, array, members } = &scene;
            let depth = 4 + seed % 40;
            let client = |value| {
                let (runtime, array) = (runtime.clone(), Rc::clone(array));
                runtime.clone().spawn(async move {
                    stream(&runtime, &array, 0..200, depth, value).await;
                })
            };
            for client in (1..4).map(client).collect::<Vec<_>>() {
                client.await;
            }
            let now = read(array, 0, 200 * 512).await.unwrap();
            for block in now.chunks(512) {
                let is_one = block.iter().all(|byte| *byte == block[0]);
                assert!(is_one && (1..4).contains(&block[0]), "no block is mixed or lost");
            }
            check_redundancy(array, members);
        });
    }
}

/// The completions that a client got in an open period.
#[derive(Default)]
struct Told {
    acknowledged: RefCell<Vec<u64>>,
    flushed: RefCell<Vec<u64>>,
}

#[test]
fn a_power_cut_while_writes_wait_leaves_old_or_new_and_what_was_flushed() {
    let mut cuts = 0;
    for cut in (3..160).step_by(2) {
        let machine = Machine::with_array(4, Level::Raid5);
        let told = Rc::new(Told::default());
        machine.power.cut_after(cut);
        let ended = machine.live(cut, &machine.all(), async |devices, runtime| {
            let array = Rc::new(attempt(devices).await.unwrap().array);
            for (round, start) in [0, 24, 48].into_iter().enumerate() {
                let writes = (start..start + 24).map(|at| {
                    let (array, told) = (Rc::clone(&array), Rc::clone(&told));
                    runtime.spawn(async move {
                        array.submit(block(at, 1)).await.unwrap();
                        told.acknowledged.borrow_mut().push(at);
                    })
                });
                let writes: Vec<_> = writes.collect();
                if round > 0 {
                    let acknowledged = told.acknowledged.borrow().clone();
                    array.submit(Request::flush()).await.unwrap();
                    told.flushed.replace(acknowledged);
                }
                for write in writes {
                    write.await;
                }
            }
        });
        cuts += u64::from(ended.was_cut());
        let flushed = told.flushed.borrow().clone();
        machine.live_to_the_end(&machine.all(), async |devices| {
            let array = attempt(devices).await.unwrap().array;
            let now = read(&array, 0, 72 * 512).await.unwrap();
            for (at, bytes) in (0..).zip(now.chunks(512)) {
                let is_whole = bytes.iter().all(|byte| *byte == bytes[0]) && bytes[0] <= 1;
                assert!(is_whole, "cut at {cut}: block {at} is old or new");
                assert!(!flushed.contains(&at) || bytes[0] == 1, "cut at {cut}: block {at}");
            }
        });
        assert!(matches!(ended, Ended::Cut | Ended::Finished(())));
    }
    assert!(cuts > 20, "{cuts} cuts were in the middle");
}

#[test]
fn many_streams_at_once_are_all_served() {
    run(9, |runtime| async move {
        let scene = Scene::new(runtime, SECOND).await;
        let starts = (0..20).map(|number| number * 60);
        let clients: Vec<_> = starts
            .map(|start| {
                let (runtime, array) = (scene.runtime.clone(), Rc::clone(&scene.array));
                scene.runtime.spawn(async move {
                    stream(&runtime, &array, start..start + 55, 6, 3).await;
                })
            })
            .collect();
        for client in clients {
            client.await;
        }
        for number in 0..20 {
            let bytes = read(&scene.array, number * 60 * 512, 55 * 512).await.unwrap();
            assert_eq!(bytes, [3; 55 * 512]);
        }
    });
}
