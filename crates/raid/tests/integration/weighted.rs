//! Members that differ, striped by their weights: what is used of them, and how fast they are
//! together, in virtual time.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use crate::support::*;
use headpond_block::{BlockDevice, Buffer, Geometry, Request, Runtime};
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{
    AssembleError, AssembleOptions, CreateError, CreateOptions, Level, Striping, Weights, assemble,
    create,
};
use headpond_sim::ssd::State;
use headpond_sim::{Model, ModelDevice, SparseDevice};

fn members_of_rows(rows: &[u64], runtime: &Runtime) -> Vec<Rc<TestDevice>> {
    let size = |rows: &u64| DATA_OFFSET_MIN + rows * u64::from(STRIP);
    let member = |(index, rows)| TestDevice::new(index, size(rows), runtime);
    rows.iter().enumerate().map(member).collect()
}

fn striped(striping: Striping) -> CreateOptions {
    CreateOptions { striping, ..options(Level::Raid0, 1) }
}

fn weighted(weights: &[u8]) -> Striping {
    Striping::Weighted(Weights::new(weights.to_vec()).expect("few, and none is zero"))
}

#[test]
fn by_capacity_each_member_holds_what_it_has_room_for() {
    run(1, |runtime| async move {
        for (rows, plain) in [([30, 10, 20], 30), ([7, 7, 7], 21)] {
            let members = members_of_rows(&rows, &runtime);
            let array = new_array(&members, &striped(Striping::Capacity)).await;
            let strips = array.layout().array_bytes() / u64::from(STRIP);
            assert_eq!(strips, rows.iter().sum::<u64>(), "plain striping has {plain}");
            let bytes = Random::new(1).bytes(array.layout().array_bytes() as usize);
            write(&array, 0, &bytes).await.unwrap();
            let held = array.status().members.into_iter().map(|it| it.data_bytes);
            assert!(held.eq(rows.iter().map(|rows| rows * u64::from(STRIP))));
            array.stop().await.unwrap();
            let mut members = members;
            members.reverse();
            let array = start(&members).await.array;
            assert!(read(&array, 0, bytes.len()).await.unwrap() == bytes, "in any order");
        }
    });
}

#[test]
fn a_member_that_has_shrunk_is_refused_by_what_its_own_weight_needs() {
    run(2, |runtime| async move {
        let members = members_of_rows(&[30, 10], &runtime);
        let array = new_array(&members, &striped(Striping::Capacity)).await;
        array.stop().await.unwrap();
        let rows_needed = [30, 10];
        for (index, rows) in rows_needed.into_iter().enumerate() {
            for missing in [0, 1] {
                let bytes = DATA_OFFSET_MIN + (rows - missing) * u64::from(STRIP);
                let whole = members[1 - index].copy(1 - index, &runtime);
                let cut = headpond_block::devices::RamDevice::new("cut", bytes);
                let memory = Buffer::zeroed(bytes as usize);
                members[index]
                    .copy(index, &runtime)
                    .submit(Request::read(0, &memory))
                    .await
                    .unwrap();
                cut.submit(Request::write(0, &memory)).await.unwrap();
                let devices: Vec<Rc<dyn BlockDevice>> = vec![Rc::new(cut), whole];
                let started = assemble(&runtime, devices, AssembleOptions::default()).await;
                let is_small = matches!(started.err(), Some(AssembleError::TooSmall { .. }));
                assert_eq!(is_small, missing > 0, "member {index} of {rows} rows");
            }
        }
    });
}

#[test]
fn weights_are_for_level_0_and_one_for_each_member() {
    run(3, |runtime| async move {
        let members = as_devices(&members_of_rows(&[30, 30, 30], &runtime));
        let refused = async |how: CreateOptions| create(&members, &how).await.unwrap_err();
        let few = refused(striped(weighted(&[3, 1]))).await;
        assert!(few.to_string().contains("2 weights for 3 members"), "{few}");
        let other = CreateOptions { level: Level::Raid5, ..striped(Striping::Capacity) };
        let other = refused(other).await;
        assert!(matches!(other, CreateError::Layout(_)) && other.to_string().contains("level 0"));
    });
}

/// Bytes that are used of each modelled drive.
const DRIVE_BYTES: u64 = 32 << 30;
const MEBIBYTE: u64 = 1 << 20;

fn drive(name: &str, runtime: &Runtime) -> Rc<dyn BlockDevice> {
    let Ok(Model::Ssd(model)) = Model::builtin(name) else { panic!("{name} is a drive") };
    let store = SparseDevice::new(name, Geometry::of_size(DRIVE_BYTES));
    Rc::new(ModelDevice::ssd(Rc::new(store), model, State::Full, 1, runtime))
}

/// Mebibytes a second that reads of so many bytes, so many at a time, reach within a second.
async fn rate(device: Rc<dyn BlockDevice>, bytes: u64, depth: u64, runtime: &Runtime) -> f64 {
    let (begun, next, done) = (runtime.now(), Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (end, size) = (begun + Duration::from_secs(1), device.geometry().size_bytes);
    let client = |_| {
        let (device, runtime) = (Rc::clone(&device), runtime.clone());
        let (next, done) = (Rc::clone(&next), Rc::clone(&done));
        runtime.clone().spawn(async move {
            while runtime.now() < end {
                let at = next.replace((next.get() + bytes) % (size - bytes));
                let memory = Buffer::payload_free(bytes as usize);
                device.submit(Request::read(at, memory)).await.expect("read");
                done.set(done.get() + bytes);
            }
        })
    };
    for client in (0..depth).map(client).collect::<Vec<_>>() {
        client.await;
    }
    done.get() as f64 / MEBIBYTE as f64 / runtime.now().since(begun).as_secs_f64()
}

fn rate_of(names: &'static [&'static str], striping: Striping) -> f64 {
    headpond_sim::run(4, |runtime, _| async move {
        let drives: Vec<_> = names.iter().map(|name| drive(name, &runtime)).collect();
        let how = CreateOptions { strip_bytes: 128 << 10, ..striped(striping) };
        create(&drives, &how).await.expect("created");
        let array = assemble(&runtime, drives, AssembleOptions::default()).await.expect("there");
        rate(Rc::new(array.array), MEBIBYTE, 64, &runtime).await
    })
    .expect("goes on")
}

/// What `create --striping speed` is for: a fast drive and a slow one.
#[test]
fn a_fast_and_a_slow_drive_are_as_fast_as_both_together_by_weights_and_as_two_slow_ones_without() {
    let alone = ["nvme-dc-2t", "ssd-dc-960g"].map(|name| {
        headpond_sim::run(4, |runtime, _| async move {
            rate(drive(name, &runtime), MEBIBYTE, 32, &runtime).await
        })
        .expect("goes on")
    });
    let [fast, slow] = alone;
    let weights = Weights::by_speed(&alone).unwrap();
    let plain = rate_of(&["nvme-dc-2t", "ssd-dc-960g"], Striping::Plain);
    let by_speed = rate_of(&["nvme-dc-2t", "ssd-dc-960g"], Striping::Weighted(weights.clone()));
    println!("{fast:.0} and {slow:.0} MiB/s: plain {plain:.0}, {weights} {by_speed:.0}");
    assert!((0.9..1.05).contains(&(plain / (2.0 * slow))), "{plain:.0} beside {slow:.0}");
    assert!((0.9..1.05).contains(&(by_speed / (fast + slow))), "{by_speed:.0} beside {fast:.0}");
}
