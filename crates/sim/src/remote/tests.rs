//! The model gives what its file says.

use super::*;
use crate::command::{Command, CommandKind, Machine};
use crate::{Model, ModelDevice, SparseDevice, run};
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffer, ByteRange, Geometry, Instant, Stability, Submission};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

const TEXT: &str = "kind = \"remote\"\nname = \"far\"\ndescription = \"d\"\n\
                    capacity_bytes = 1_073_741_824\n\
                    [read]\nlatency_us = [[50, 400], [90, 600], [100, 1600]]\n\
                    iops = [[8, 10_000], [32, 28_000], [128, 30_000]]\nmib_us = 4600\nmb_per_s = 800\n\
                    [write]\nlatency_us = [[100, 1000]]\niops = [[32, 6_000]]\nmib_us = 6000\n\
                    mb_per_s = 400\n[flush]\nus = 70\n";

fn model(text: &str) -> Rc<RemoteModel> {
    let Model::Remote(model) = Model::parse("far", text).unwrap() else { panic!("remote storage") };
    model
}

/// Requests a second with so many always in flight, of which `reads` are reads.
fn rates(depth: usize, reads: usize, bytes: usize, seconds: u64) -> (f64, f64) {
    let done = run(1, |runtime, _| async move {
        let store = Rc::new(SparseDevice::new("far", Geometry::of_size(1 << 30)));
        let device: Rc<dyn BlockDevice> =
            Rc::new(ModelDevice::remote(store, model(TEXT), 1, &runtime));
        let end = Instant::START + Duration::from_secs(seconds);
        let done = [const { Cell::new(0u64) }; 2];
        let one = |lane: usize| {
            let (device, runtime, is_read) = (&device, &runtime, lane < reads);
            let done = &done[usize::from(!is_read)];
            Submission::pending(async move {
                loop {
                    let offset = done.get() * 4096 % (1 << 29);
                    let buffer = Buffer::payload_free(bytes);
                    match is_read {
                        true => device.read(offset, buffer).await?,
                        false => device.write(offset, buffer).await?,
                    }
                    if runtime.now() > end {
                        return Ok(());
                    }
                    done.set(done.get() + 1);
                }
            })
        };
        assert!(join_all((0..depth).map(one).collect()).await.iter().all(Result::is_ok));
        done.map(|done| done.get() as f64 / seconds as f64)
    });
    done.unwrap().into()
}

fn near(what: &str, found: f64, wanted: f64, tolerance: f64) {
    assert!((found / wanted - 1.0).abs() < tolerance, "{what}: {found} is not {wanted}");
}

#[test]
fn with_so_many_in_flight_it_is_as_fast_as_its_file_says() {
    near("alone", rates(1, 1, 4096, 10).0, 1e6 / 600.0, 0.02);
    near("8", rates(8, 8, 4096, 3).0, 10_000.0, 0.02);
    near("32", rates(32, 32, 4096, 2).0, 28_000.0, 0.02);
    // Half-way between 0.8 and 1.143 ms.
    near("between", rates(20, 20, 4096, 2).0, 20.0 / 971.4e-6, 0.02);
    near("beyond", rates(200, 200, 4096, 2).0, 30_000.0, 0.02);
    near("a write alone", rates(1, 0, 4096, 2).1, 1_000.0, 1e-3);
    near("32 writes", rates(32, 0, 4096, 2).1, 6_000.0, 0.02);
}

#[test]
fn of_mixed_requests_each_has_its_share_of_the_rate_of_its_kind() {
    let (reads, writes) = rates(32, 8, 4096, 2);
    near("a quarter are reads", reads, 28_000.0 / 4.0, 0.03);
    near("the others writes", writes, 6_000.0 * 3.0 / 4.0, 0.03);
}

#[test]
fn long_requests_take_what_was_measured_alone_and_together() {
    near("a read", rates(1, 1, 1 << 20, 10).0, 1e6 / 4600.0, 0.02);
    near("16 reads", rates(16, 16, 1 << 20, 2).0, 800e6 / f64::from(1 << 20), 0.03);
    near("16 writes", rates(16, 0, 1 << 20, 2).1, 400e6 / f64::from(1 << 20), 0.03);
}

#[test]
fn latencies_spread_as_they_were_measured() {
    let mut queue = RemoteQueue::new(model(TEXT), 3);
    let mut now = Instant::START;
    let mut times = Vec::new();
    for _ in 0..10_000 {
        let range = ByteRange::at(0, 4096);
        let begun = now;
        queue.submit(now, Command { kind: CommandKind::Read, range });
        while queue.take_answer(now).is_none() {
            now = queue.next_answer().expect("one waits");
        }
        times.push(now.since(begun).as_micros());
    }
    times.sort_unstable();
    assert_eq!((times[3_000], times[7_000], times[9_500]), (400, 600, 1600));
}

#[test]
fn a_flush_waits_for_the_writes_before_it_and_not_for_those_after() {
    let mut queue = RemoteQueue::new(model(TEXT), 1);
    let range = ByteRange::at(0, 4096);
    let of = |kind| Command { kind, range };
    let first = queue.submit(Instant::START, of(CommandKind::Write));
    let flush = queue.submit(Instant::START, of(CommandKind::Flush));
    queue.submit(Instant::from_nanos(900_000), of(CommandKind::Write));
    let mut ends = Vec::new();
    while let Some(at) = queue.next_answer() {
        ends.extend(queue.take_answer(at));
    }
    assert_eq!(ends.len(), 3);
    assert_eq!((ends[0].tag, ends[1].tag), (first, flush));
    assert_eq!(ends[1].at.since(ends[0].at).as_micros(), 70);
}

#[test]
fn without_a_flush_it_reports_no_cache() {
    let text = TEXT.split("[flush]").next().unwrap();
    assert!(!model(text).reports_a_cache() && model(TEXT).reports_a_cache());
    let stability = |text| {
        run(1, |runtime, _| async move {
            let store = Rc::new(SparseDevice::new("far", Geometry::of_size(1 << 20)));
            ModelDevice::remote(store, model(text), 1, &runtime).geometry().stability
        })
        .unwrap()
    };
    assert_eq!(stability(TEXT), Stability::Flushable);
    assert_eq!(
        stability(text),
        SparseDevice::new("s", Geometry::of_size(4096)).geometry().stability
    );
}

#[test]
fn mistakes_name_the_field() {
    for (from, to, says) in [
        ("[100, 1600]]", "[99, 1600]]", "read.latency_us = [[50, 400], [90, 600], [99, 1600]]"),
        ("[90, 600]", "[90, 300]", "read.latency_us"),
        ("[[8, 10_000]", "[[1, 10_000]", "read.iops"),
        ("[32, 28_000]", "[8, 28_000]", "read.iops"),
        ("[[32, 6_000]]", "[[32, 0]]", "write.iops"),
        ("mb_per_s = 400", "mb_per_s = 0", "write.mb_per_s"),
        ("us = 70", "us = -1", "flush.us"),
        ("capacity_bytes = 1_073_741_824", "capacity_bytes = 1_073_741_825", "capacity_bytes"),
        ("mib_us = 6000", "mib_ms = 6", "unknown field `mib_ms`"),
    ] {
        assert!(TEXT.contains(from), "{from}");
        let error = Model::parse("x.toml", &TEXT.replace(from, to)).unwrap_err().to_string();
        assert!(error.starts_with("x.toml: ") && error.contains(says), "{error}");
    }
}
