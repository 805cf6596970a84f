//! How fast mirrors of modelled drives are read, in virtual time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::support::options;
use headpond_block::{BlockDevice, Buffer, Geometry, Request, Runtime};
use headpond_raid::{AssembleOptions, CreateOptions, Level, assemble, create};
use headpond_sim::hdd::HddModel;
use headpond_sim::{ModelDevice, SparseDevice, run};

const MEMBER_BYTES: u64 = 1 << 40;
const MEBIBYTE: u64 = 1 << 20;

/// A client that keeps `depth` reads in flight.
#[derive(Clone, Copy)]
struct Load {
    depth: u64,
    bytes: u64,
    order: Order,
}

/// From one stream to the next: more than one reads in ten seconds, and tracks of the same speed.
const APART_BYTES: u64 = 8 << 30;

#[derive(Clone, Copy)]
enum Order {
    Random,
    /// As many streams, each with its share of the depth.
    Streams(u64),
}

fn drive(index: u64, runtime: &Runtime) -> Rc<dyn BlockDevice> {
    let model = Rc::new(HddModel::builtin("hdd-7k2-4t").expect("built in"));
    let store = SparseDevice::new(format!("d{index}").as_str(), Geometry::of_size(MEMBER_BYTES));
    Rc::new(ModelDevice::new(Rc::new(store), model, index * 1_700_000, runtime))
}

async fn mirror(level: Level, copies: u64, groups: u64, runtime: &Runtime) -> Rc<dyn BlockDevice> {
    let drives: Vec<_> = (0..copies * groups).map(|index| drive(index, runtime)).collect();
    let options = CreateOptions { strip_bytes: 64 << 10, ..options(level, groups as usize) };
    create(&drives, &options).await.expect("created");
    let options = AssembleOptions::default();
    Rc::new(assemble(runtime, drives, options).await.expect("assembled").array)
}

/// Mebibytes a second that `load` reads for ten seconds.
async fn rate(device: Rc<dyn BlockDevice>, load: Load, runtime: &Runtime) -> f64 {
    let (start, bytes) = (runtime.now(), Rc::new(Cell::new(0)));
    let end = start + Duration::from_secs(10);
    let streams = if let Order::Streams(streams) = load.order { streams } else { 1 };
    let space = match load.order {
        Order::Random => device.geometry().size_bytes,
        Order::Streams(_) => APART_BYTES,
    };
    let next: Vec<Rc<Cell<u64>>> =
        (0..streams).map(|stream| Rc::new(Cell::new(stream * space))).collect();
    let clients = (0..load.depth).map(|client| {
        let (device, runtime, bytes) = (device.clone(), runtime.clone(), bytes.clone());
        let next = next[(client % streams) as usize].clone();
        runtime.clone().spawn(async move {
            while runtime.now() < end {
                let at = next.get();
                match load.order {
                    Order::Random => next.set((at + 0x9e37_79b9_7f4a_7000) % space / 4096 * 4096),
                    Order::Streams(_) => next.set(at + load.bytes),
                }
                let memory = Buffer::payload_free(load.bytes as usize);
                device.submit(Request::read(at, memory)).await.expect("read");
                bytes.set(bytes.get() + load.bytes);
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await;
    }
    bytes.get() as f64 / MEBIBYTE as f64 / runtime.now().since(start).as_secs_f64()
}

fn rate_of(level: Level, copies: u64, groups: u64, load: Load) -> f64 {
    run(3, |runtime, _| async move {
        let device = mirror(level, copies, groups, &runtime).await;
        rate(device, load, &runtime).await
    })
    .expect("goes on")
}

fn rate_of_one_drive(load: Load) -> f64 {
    run(3, |runtime, _| async move { rate(drive(0, &runtime), load, &runtime).await })
        .expect("goes on")
}

fn random(depth: u64) -> Load {
    Load { depth, bytes: 4096, order: Order::Random }
}

fn streams(count: u64, depth: u64) -> Load {
    Load { depth, bytes: MEBIBYTE, order: Order::Streams(count) }
}

#[test]
fn copies_share_random_reads_of_as_many_in_flight_for_each() {
    for depth in [1, 8, 32] {
        let one = rate_of_one_drive(random(depth));
        for copies in [2, 3] {
            let gain = rate_of(Level::Raid1, copies, 1, random(copies * depth)) / one;
            assert!(gain > 0.9 * copies as f64, "{copies} copies, depth {depth}: {gain:.2}");
        }
    }
}

#[test]
fn one_stream_with_enough_in_flight_is_read_from_all_copies() {
    let one = rate_of_one_drive(streams(1, 32));
    for (level, copies, groups, least) in
        [(Level::Raid1, 2, 1, 1.8), (Level::Raid1, 3, 1, 2.7), (Level::Raid10, 2, 2, 3.5)]
    {
        let gain = rate_of(level, copies, groups, streams(1, 32)) / one;
        assert!(gain > least, "{level}, {copies} copies: {gain:.2}");
    }
}

#[test]
fn one_stream_with_little_in_flight_stays_with_one_copy() {
    let one = rate_of_one_drive(streams(1, 2));
    let two = rate_of(Level::Raid1, 2, 1, streams(1, 2));
    assert!(two > 0.99 * one, "{two:.0} of {one:.0}");
}

#[test]
fn two_streams_find_a_copy_each() {
    let one = rate_of_one_drive(streams(1, 2));
    for depth in [2, 8, 32] {
        let gain = rate_of(Level::Raid1, 2, 1, streams(2, depth)) / one;
        assert!(gain > 1.9, "depth {depth}: {gain:.2} of one stream on one drive");
    }
}
