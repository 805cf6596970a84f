//! Models fitted to drives whose figures are known, because they are models themselves.

use headpond_block::{BlockDevice, Geometry, Instant, Runtime, Stability};
use headpond_sim::hdd::HddModel;
use headpond_sim::remote::RemoteModel;
use headpond_sim::ssd::{SsdModel, SsdParameters, State};
use headpond_sim::{FixedLatency, FixedLatencyDevice, Model, ModelDevice, SparseDevice, run};
use headpond_whatif::fit::{
    FitKind, FitOptions, Measured, MeasuredDisk, MeasuredRemote, MeasuredSsd, measure,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const OPTIONS: FitOptions = FitOptions { destructive: true, kind: None, seed: 7 };

fn disk(model: HddModel) -> (MeasuredDisk, Rc<HddModel>) {
    let model = Rc::new(model);
    let measured = run(3, |runtime, _| {
        let model = Rc::clone(&model);
        async move {
            let store = SparseDevice::new("disk", Geometry::of_size(model.size_bytes()));
            let device: Rc<dyn BlockDevice> =
                Rc::new(ModelDevice::new(Rc::new(store), model, 1_234_567, &runtime));
            measure(&device, &runtime, OPTIONS, &|_| {}).await.unwrap()
        }
    });
    let Measured::Hdd(disk) = measured.unwrap() else { panic!("a disk") };
    (disk, model)
}

fn near(what: &str, found: f64, truth: f64, tolerance: f64) {
    assert!((found / truth - 1.0).abs() <= tolerance, "{what}: {found} is not {truth}");
}

#[test]
fn a_disk_is_measured_as_it_is() {
    for name in ["hdd-7k2-4t", "hdd-7k2-14t"] {
        let (disk, truth) = disk(HddModel::builtin(name).unwrap());
        let parameters = truth.parameters();
        near("rpm", 60.0 / disk.revolution_s, f64::from(parameters.geometry.rpm), 1e-3);
        let hit = parameters.interface.command_ms + 4.096 / parameters.interface.mb_per_s;
        let geometry = &parameters.geometry;
        let sectors = (geometry.outer_sectors_per_track, geometry.inner_sectors_per_track);
        near("hit", disk.hit_s * 1e3, hit, 0.1);
        near("interface", disk.interface_mb_per_s, parameters.interface.mb_per_s, 0.1);
        let read_ahead = parameters.read_buffer.read_ahead_kib;
        near("read-ahead", disk.read_ahead_bytes as f64 / 1024.0, read_ahead, 0.5);
        near("segments", disk.segments as f64, parameters.read_buffer.segments as f64, 0.5);
        let writes = disk.writes.unwrap();
        assert!(writes.cache_enabled);
        near("runs", writes.runs as f64, parameters.write_cache.runs_max as f64, 0.25);
        let text = Measured::Hdd(disk.clone()).model_text("fitted", "a model").unwrap();
        let Ok(Model::Hdd(fitted)) = Model::parse("fitted", &text) else { panic!("{text}") };
        let found = &fitted.parameters().geometry;
        near("outer", f64::from(found.outer_sectors_per_track), f64::from(sectors.0), 0.05);
        near("inner", f64::from(found.inner_sectors_per_track), f64::from(sectors.1), 0.05);
        // The two behave alike, whatever their parts are called.
        let load = |model: &Rc<HddModel>, sequential| loads(&disk_device(model), sequential);
        for sequential in [false, true] {
            near(name, load(&fitted, sequential), load(&truth, sequential), 0.1);
        }
        let cylinders = |model: &HddModel| f64::from(model.parameters().geometry.heads);
        for (distance, seconds) in disk.seeks.iter().skip(1) {
            let heads_ratio = 8.0 / cylinders(&truth);
            let true_ms = truth.seek_ms((f64::from(*distance) * heads_ratio) as u32);
            assert!((seconds * 1e3 - true_ms).abs() < 0.6, "{distance}: {seconds} {true_ms}");
        }
    }
}

type Device = Box<dyn Fn(&Runtime) -> Rc<dyn BlockDevice>>;

fn disk_device(model: &Rc<HddModel>) -> Device {
    let model = Rc::clone(model);
    Box::new(move |runtime| {
        let store = SparseDevice::new("disk", Geometry::of_size(model.size_bytes()));
        Rc::new(ModelDevice::new(Rc::new(store), Rc::clone(&model), 0, runtime))
    })
}

/// Reads a second, one at a time.
fn loads(device: &Device, sequential: bool) -> f64 {
    run(5, |runtime, sim| async move {
        let device = device(&runtime);
        let mut random = sim.random();
        let begun = runtime.now();
        let bytes = if sequential { 1 << 20 } else { 4096 };
        for number in 0..2000u64 {
            let block = if sequential { number } else { random.below(device.size_bytes() / bytes) };
            let buffer = headpond_block::Buffer::payload_free(bytes as usize);
            device.read(block * bytes, buffer).await.unwrap();
        }
        2000.0 / runtime.now().since(begun).as_secs_f64()
    })
    .unwrap()
}

fn ssd(parameters: &SsdParameters, options: FitOptions) -> MeasuredSsd {
    let model = Rc::new(SsdModel::new(parameters.clone()).unwrap());
    let measured = run(3, |runtime, _| async move {
        let store = SparseDevice::new("ssd", Geometry::of_size(model.size_bytes()));
        let device: Rc<dyn BlockDevice> =
            Rc::new(ModelDevice::ssd(Rc::new(store), model, State::Full, 1, &runtime));
        measure(&device, &runtime, options, &|_| {}).await.unwrap()
    });
    let Measured::Ssd(ssd) = measured.unwrap() else { panic!("an SSD") };
    ssd
}

fn parameters(name: &str) -> SsdParameters {
    let Ok(Model::Ssd(model)) = Model::builtin(name) else { panic!("an SSD") };
    model.parameters().clone()
}

#[test]
fn without_leave_nothing_is_written() {
    let truth = parameters("nvme-dc-2t");
    let model = Rc::new(SsdModel::new(truth).unwrap());
    let options = FitOptions { destructive: false, ..OPTIONS };
    let (measured, counts) = run(3, |runtime, _| async move {
        use headpond_block::decorators::ProbeDevice;
        let store = SparseDevice::new("ssd", Geometry::of_size(model.size_bytes()));
        let inner = Rc::new(ModelDevice::ssd(Rc::new(store), model, State::Full, 1, &runtime));
        let probe = Rc::new(ProbeDevice::new(inner, runtime.clone()));
        let device: Rc<dyn BlockDevice> = probe.clone();
        let measured = measure(&device, &runtime, options, &|_| {}).await.unwrap();
        (measured, probe.snapshot())
    })
    .unwrap();
    assert!(counts.reads.requests > 1000 && counts.writes.requests == 0);
    let text = measured.model_text("n", "a model").unwrap();
    assert!(text.contains("those figures are assumed"), "{text}");
}

const REMOTE: FitOptions = FitOptions { kind: Some(FitKind::Remote), ..OPTIONS };
const IMAGE_BYTES: u64 = 128 << 20;

/// What is measured of a device, and the model that comes of it.
fn remote(device: &Device, options: FitOptions) -> (MeasuredRemote, Rc<RemoteModel>, String) {
    let measured = run(3, |runtime, _| async move {
        measure(&device(&runtime), &runtime, options, &|_| {}).await.unwrap()
    });
    let measured = measured.unwrap();
    let text = measured.model_text("fitted", "a model").unwrap();
    let Ok(Model::Remote(fitted)) = Model::parse("fitted", &text) else { panic!("{text}") };
    let Measured::Remote(remote) = measured else { panic!("remote storage") };
    (remote, fitted, text)
}

fn image(model: &Rc<RemoteModel>) -> Device {
    let model = Rc::clone(model);
    Box::new(move |runtime| {
        let store = SparseDevice::new("image", Geometry::of_size(IMAGE_BYTES));
        Rc::new(ModelDevice::remote(Rc::new(store), Rc::clone(&model), 1, runtime))
    })
}

/// Requests of 4 KiB a second, with so many in flight for two seconds.
fn rate(device: &Device, depth: usize, is_write: bool) -> f64 {
    run(5, |runtime, sim| async move {
        let (device, runtime, random) = (device(&runtime), &runtime, RefCell::new(sim.random()));
        let (device, random, done) = (&*device, &random, &Cell::new(0u64));
        let lane = |_| {
            headpond_block::Submission::pending(async move {
                while runtime.now() < Instant::START + Duration::from_secs(2) {
                    let offset = random.borrow_mut().below(IMAGE_BYTES / 4096) * 4096;
                    let buffer = headpond_block::Buffer::payload_free(4096);
                    match is_write {
                        true => device.write(offset, buffer).await?,
                        false => device.read(offset, buffer).await?,
                    }
                    done.set(done.get() + 1);
                }
                Ok(())
            })
        };
        headpond_block::sync::join_all((0..depth).map(lane).collect()).await;
        done.get() as f64 / 2.0
    })
    .unwrap()
}

/// The model does at depth 1 and 32 what the device does that it was fitted to.
fn behaves(device: &Device, fitted: &Rc<RemoteModel>) {
    for (depth, is_write) in [(1, false), (32, false), (1, true), (32, true)] {
        let (found, truth) = (rate(&image(fitted), depth, is_write), rate(device, depth, is_write));
        near(&format!("depth {depth}, writes: {is_write}"), found, truth, 0.06);
    }
}

#[test]
fn remote_storage_of_known_figures_is_measured_as_it_is() {
    let figures = FixedLatency {
        read: Duration::from_micros(400),
        write: Duration::from_micros(1500),
        flush: Duration::from_micros(90),
        bytes_per_s: 500_000_000,
        stability: Stability::Flushable,
    };
    let device: Device = Box::new(move |runtime| {
        let store = SparseDevice::new("fake", Geometry::of_size(IMAGE_BYTES));
        Rc::new(FixedLatencyDevice::new(Rc::new(store), figures, runtime.clone()))
    });
    let (measured, fitted, text) = remote(&device, REMOTE);
    // 4 KiB cross in 8.192 us.
    near("read", fitted.parameters().read.mean_us(), 408.2, 1e-3);
    near("write", fitted.parameters().write.mean_us(), 1508.2, 1e-3);
    near("flush", measured.flush_s.unwrap() * 1e6, 90.0, 1e-3);
    near("16 in flight", measured.reads.iops[3].1, 16.0 / 408.2e-6, 0.01);
    near("the most", measured.reads.iops[7].1, 500e6 / 4096.0, 0.01);
    near("1 MiB", measured.reads.mib_s * 1e6, 400.0 + 2097.2, 1e-3);
    near("MB/s", measured.reads.mb_per_s, 500.0, 0.01);
    assert!(text.contains("Measured: all figures") && measured.zero_share == 0.0, "{text}");
    assert_eq!(fitted.size_bytes(), IMAGE_BYTES);
    behaves(&device, &fitted);
}

#[test]
fn a_model_of_an_image_of_ceph_is_measured_as_it_is() {
    let Ok(Model::Remote(truth)) = Model::builtin("rbd") else { panic!("remote storage") };
    let device = image(&truth);
    let (_, fitted, _) = remote(&device, REMOTE);
    behaves(&device, &fitted);
    let (found, truth) = (fitted.parameters(), truth.parameters());
    near("MB/s", found.read.mb_per_s, truth.read.mb_per_s, 0.05);
    near("1 MiB written", found.write.mib_us, truth.write.mib_us, 0.1);
}

#[test]
fn writes_that_were_not_allowed_are_assumed_and_zeros_are_told() {
    let Ok(Model::Remote(truth)) = Model::builtin("rbd") else { panic!("remote storage") };
    let options = FitOptions { destructive: false, ..REMOTE };
    let (measured, fitted, text) = remote(&image(&truth), options);
    assert!(measured.writes.is_none() && text.contains("Assumed: the writes"), "{text}");
    assert!(text.contains("100 % of the blocks that were read are zeros"), "{text}");
    let parameters = fitted.parameters();
    assert!(parameters.write.mean_us() > 3.0 * parameters.read.mean_us());
}

#[test]
fn what_does_not_turn_is_no_disk() {
    let model = Rc::new(SsdModel::new(parameters("ssd-dc-960g")).unwrap());
    let options = FitOptions { destructive: false, kind: Some(FitKind::Hdd), seed: 1 };
    let error = run(3, |runtime, _| async move {
        let store = SparseDevice::new("ssd", Geometry::of_size(model.size_bytes()));
        let device: Rc<dyn BlockDevice> =
            Rc::new(ModelDevice::ssd(Rc::new(store), model, State::Full, 1, &runtime));
        measure(&device, &runtime, options, &|_| {}).await.unwrap_err().to_string()
    });
    let error = error.unwrap();
    assert!(error.contains("no rotation") && error.contains("--kind ssd"), "{error}");
}

/// Minutes of simulation, for `make conclusions`.
mod conclusions {
    use super::*;

    #[test]
    fn a_solid_state_drive_is_measured_as_it_is() {
        for name in ["ssd-dc-960g", "ssd-consumer-250g", "nvme-dc-2t"] {
            let truth = parameters(name);
            let measured = ssd(&truth, OPTIONS);
            let text = Measured::Ssd(measured.clone()).model_text("fitted", "a model").unwrap();
            let Ok(Model::Ssd(fitted)) = Model::parse("fitted", &text) else { panic!("{text}") };
            let again = ssd(fitted.parameters(), OPTIONS);
            near("latency", again.read_s, measured.read_s, 0.1);
            for ((depth, truth), (_, found)) in measured.read_iops.iter().zip(&again.read_iops) {
                near(&format!("{name}, depth {depth}"), *found, *truth, 0.2);
            }
            near("MB/s", again.read_mb_per_s, measured.read_mb_per_s, 0.2);
            let (writes, before) = (again.writes.unwrap(), measured.writes.unwrap());
            near("write", writes.write_s, before.write_s, 0.15);
            near("sustained", writes.sustained_mb_per_s, before.sustained_mb_per_s, 0.15);
            assert_eq!(before.burst_bytes.is_some(), truth.slc.is_some(), "{name}: {before:?}");
            let protected = fitted.parameters().write_cache.protected;
            assert_eq!(protected, truth.write_cache.protected, "{name}");
            let is_slow = |flush_s: f64| flush_s > 200e-6;
            assert_eq!(is_slow(writes.flush_s), is_slow(before.flush_s), "{writes:?} {before:?}");
        }
    }
}
