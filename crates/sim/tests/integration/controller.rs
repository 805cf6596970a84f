//! What a controller does to the drives behind it.

use crate::common::{Load, parameters, rate, ssd};
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffer, Geometry, Runtime, Stability};
use headpond_sim::hdd::HddModel;
use headpond_sim::ssd::State;
use headpond_sim::{Controller, ControllerModel, Model, ModelDevice, Random, SparseDevice, run};
use std::rc::Rc;
use std::time::Duration;

fn model(name: &str, change: impl Fn(&mut ControllerModel)) -> Rc<ControllerModel> {
    let Ok(Model::Controller(model)) = Model::builtin(name) else { panic!("a controller") };
    let mut model = (*model).clone();
    change(&mut model);
    Rc::new(model)
}

fn disk(runtime: &Runtime, write_cache: bool) -> Rc<dyn BlockDevice> {
    let model = Rc::new(HddModel::builtin("hdd-7k2-4t").unwrap().with_write_cache(write_cache));
    let store = SparseDevice::new("disk", Geometry::of_size(model.size_bytes()));
    Rc::new(ModelDevice::new(Rc::new(store), model, 0, runtime))
}

/// Random writes a second on a disk behind it.
fn disk_rate(model: &Rc<ControllerModel>, load: Load) -> f64 {
    let model = Rc::clone(model);
    run(1, |runtime, _| async move {
        let device = Controller::new(model, &runtime).attach(disk(&runtime, false));
        rate(&device, &runtime, load).await
    })
    .unwrap()
}

#[test]
fn write_back_hides_the_drive_until_the_cache_is_full() {
    let back = model("raid-cache-1g", |model| model.cache.capacity_mib = 64);
    let through = model("raid-through", |_| {});
    let fits = disk_rate(&back, Load { ramp: 100, ..Load::random_write(4, 10_000) });
    assert!(fits > 20_000.0, "{fits}");
    let bare = disk_rate(&through, Load::random_write(4, 500));
    let full = disk_rate(&back, Load { ramp: 20_000, ..Load::random_write(4, 4000) });
    assert!(full < fits / 20.0, "{full} after {fits}");
    // A sorted cache full of writes is still better than four unsorted ones.
    assert!(full > 1.2 * bare, "{full} against {bare}");
}

#[test]
fn latency_climbs_when_destaging_is_the_limit() {
    let model = model("raid-cache-1g", |model| model.cache.capacity_mib = 8);
    let longest = |per_second: u64| {
        let model = Rc::clone(&model);
        run(1, |runtime, _| async move {
            let device = Controller::new(model, &runtime).attach(disk(&runtime, false));
            let mut random = Random::new(1);
            let mut longest = Duration::ZERO;
            let pause = Duration::from_nanos(1_000_000_000 / per_second);
            for _ in 0..20_000 {
                let block = random.below(device.size_bytes() / 4096);
                let begun = runtime.now();
                device.write(block * 4096, Buffer::payload_free(4096)).await.unwrap();
                longest = longest.max(runtime.now().since(begun));
                runtime.sleep(pause).await;
            }
            longest
        })
        .unwrap()
    };
    let (calm, pressed) = (longest(50), longest(2000));
    assert!(calm < Duration::from_micros(100), "{calm:?}");
    assert!(pressed > 20 * calm, "{pressed:?} after {calm:?}");
}

#[test]
fn its_processor_and_link_bound_all_drives_together() {
    let slow = model("raid-through", |model| model.ceilings.iops_max = 50_000.0);
    let narrow = model("chipset-dmi3", |model| model.ceilings.mb_per_s = 1000.0);
    let together = |model: Rc<ControllerModel>, load: Load| {
        run(1, |runtime, _| async move {
            let controller = Controller::new(model, &runtime);
            let attach =
                || controller.attach(ssd(&parameters("nvme-dc-2t"), State::Full, &runtime));
            let drives = [attach(), attach()];
            let begun = runtime.now();
            let run = |drive: &Rc<dyn BlockDevice>| {
                let (drive, runtime) = (Rc::clone(drive), runtime.clone());
                headpond_block::Submission::pending(async move {
                    rate(&drive, &runtime, load).await;
                    Ok(())
                })
            };
            join_all(drives.iter().map(run).collect()).await;
            2.0 * (load.ramp + load.count) as f64 / runtime.now().since(begun).as_secs_f64()
        })
        .unwrap()
    };
    let reads = together(slow, Load::random_read(64, 20_000));
    assert!((45_000.0..51_000.0).contains(&reads), "{reads}");
    let load = Load { bytes: 1 << 20, random: false, ..Load::random_read(8, 1000) };
    let megabytes = together(narrow, load) * 1.048576;
    assert!((950.0..1010.0).contains(&megabytes), "{megabytes}");
}

#[test]
fn a_flush_is_answered_or_passed_on_as_the_model_says() {
    use headpond_sim::controller::FlushRule;
    let took = |rule: FlushRule, write_cache: bool| {
        let model = model("raid-cache-1g", |model| model.cache.flush = rule);
        run(1, |runtime, _| async move {
            let controller = Controller::new(model, &runtime);
            let device = controller.attach(disk(&runtime, write_cache));
            for index in 0..32u64 {
                device.write(index << 34, Buffer::payload_free(4096)).await.unwrap();
            }
            let begun = runtime.now();
            device.flush().await.unwrap();
            (device.geometry().stability, runtime.now().since(begun))
        })
        .unwrap()
    };
    let (stability, answered) = took(FlushRule::Answered, false);
    assert_eq!(stability, Stability::StableOnCompletion);
    assert!(answered < Duration::from_millis(1), "{answered:?}");
    let (stability, passed) = took(FlushRule::PassedOn, false);
    assert_eq!(stability, Stability::Flushable);
    assert!(passed > Duration::from_millis(50), "{passed:?}");
    // What a drive's own volatile cache holds is not made safe by the controller's.
    assert_eq!(took(FlushRule::Answered, true).0, Stability::Flushable);
}

#[test]
fn reads_see_the_newest_data_wherever_it_is() {
    let model = model("raid-cache-1g", |model| model.cache.capacity_mib = 1);
    run(1, |runtime, _| async move {
        let controller = Controller::new(model, &runtime);
        let store = SparseDevice::new("disk", Geometry::of_size(4 << 20));
        let hdd = Rc::new(HddModel::builtin("hdd-7k2-4t").unwrap());
        let drive = Rc::new(ModelDevice::new(Rc::new(store), hdd, 0, &runtime));
        let device = controller.attach(drive);
        let mut naive = vec![0u8; 4 << 20];
        let mut random = Random::new(3);
        for step in 0..3000u64 {
            let at = random.below((4 << 20) / 512 - 64) as usize * 512;
            let len = (1 + random.below(64) as usize) * 512;
            if step % 3 == 0 {
                let into = Buffer::zeroed(len);
                device.read(at as u64, &into).await.unwrap();
                assert_eq!(into.to_vec(), naive[at..at + len], "step {step}");
            } else {
                naive[at..at + len].fill(step as u8);
                let data = Buffer::from_slice(&naive[at..at + len]);
                device.write(at as u64, data.clone()).await.unwrap();
                data.fill(0xee);
            }
        }
    })
    .unwrap();
}
