//! What a real cache device gets for a promise, request by request.

use headpond_block::decorators::ProbeDevice;
use headpond_block::devices::NullDevice;
use headpond_block::{BlockDevice, Buffer, Request, RequestFlags, RequestKind, Runtime};
use headpond_cache::{
    CleaningConfig, CleaningPolicy, CreateOptions, Expected, Foundation, Slice, SliceConfig, create,
};
use headpond_uring::{Allocation, FileDevice, FileOptions, RunConfig, run};
use std::rc::Rc;
use std::time::Duration;

const CORE_BYTES: u64 = 1 << 30;
const BLOCK: u64 = 4096;

/// What the device saw of so many writers, each of which writes so many blocks, one after the
/// other and stable when answered.
async fn watch(
    runtime: &Runtime,
    file: Rc<dyn BlockDevice>,
    writers: u64,
    each: u64,
    records_in_flight_max: u32,
) -> (Slice, Rc<ProbeDevice>) {
    let options = CreateOptions {
        cache: uuid::Uuid::from_u128(3),
        volume: uuid::Uuid::from_u128(1),
        core: uuid::Uuid::from_u128(2),
        core_bytes: CORE_BYTES,
        generation: 1,
        slices: 1,
        line_bytes: BLOCK as u32,
        device_bytes: None,
        unit_bytes: None,
    };
    let superblock = create(&*file, &options).await.unwrap();
    let probe = Rc::new(ProbeDevice::new(file, runtime.clone()));
    let foundation = Foundation::new(
        runtime.clone(),
        Rc::clone(&probe) as Rc<dyn BlockDevice>,
        Rc::new(NullDevice::new("null", CORE_BYTES)),
    );
    let cleaning = CleaningConfig { policy: CleaningPolicy::Nop, ..CleaningConfig::default() };
    // A slow machine may look like an idle log, which is sealed.
    let seal_delay = Duration::from_secs(60);
    let config =
        SliceConfig { cleaning, records_in_flight_max, seal_delay, ..SliceConfig::default() };
    let expected = Expected { volume: options.volume, generation: 1 };
    let (slice, _) = Slice::open(foundation, &superblock, expected, 0, config).await.unwrap();
    probe.reset();
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let slice = slice.clone();
            runtime.spawn(async move {
                for index in 0..each {
                    let at = (writer * each + index).wrapping_mul(2_654_435_761);
                    let data = Buffer::from_slice(&[writer as u8; BLOCK as usize]);
                    let write = Request::write(at % (CORE_BYTES / BLOCK) * BLOCK, data);
                    slice.submit(write.with_flags(RequestFlags::FUA)).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    (slice, probe)
}

fn with_a_file<F: Future<Output = ()>>(
    main: impl FnOnce(Rc<dyn BlockDevice>, Runtime) -> F + 'static,
) {
    let folder = headpond_testkit::tempdir();
    let options =
        FileOptions::new(folder.path().join("cache")).create(64 << 20, Allocation::Preallocated);
    run(&RunConfig::default(), |ring, runtime| async move {
        let file = FileDevice::open(&ring, &options).unwrap();
        main(Rc::new(file), runtime).await;
    })
    .unwrap();
}

#[test]
fn one_writer_costs_one_device_write_each_one_behind_the_other() {
    with_a_file(async |file, runtime| {
        let (slice, probe) = watch(&runtime, file, 1, 100, 32).await;
        let seen = probe.snapshot();
        assert_eq!((seen.writes.requests, seen.fua_writes), (100, 100));
        assert_eq!((seen.flushes.requests, seen.reads.requests), (0, 0));
        let recent = probe.recent();
        assert!(recent.iter().all(|(kind, _)| *kind == RequestKind::Write));
        let follow = recent.windows(2).filter(|pair| pair[0].1.end() == pair[1].1.start());
        assert_eq!(follow.count(), recent.len() - 1, "{recent:?}");
        slice.self_check();
    });
}

#[test]
fn many_writers_share_a_record_where_one_is_under_way() {
    with_a_file(async |file, runtime| {
        let (slice, probe) = watch(&runtime, file, 32, 40, 1).await;
        let (seen, requests) = (probe.snapshot(), 32 * 40);
        assert_eq!(seen.in_flight_max, 1);
        let bytes = seen.writes.bytes as f64 / (requests * BLOCK) as f64;
        assert!(bytes <= 1.1, "{bytes} bytes for each, in {} writes", seen.writes.requests);
        slice.self_check();
    });
}
