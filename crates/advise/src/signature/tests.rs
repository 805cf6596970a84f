//! Signatures of workloads whose truth is known.

use headpond_trace::{Op, ReadOptions, TraceReader, TraceRecord};
use proptest::prelude::*;

use super::*;
use crate::testing::{Job, half_reads, scattered, together};

#[test]
fn random_writes_at_depth_are_found() {
    let job = Job::new(32, 10_000, 4096);
    let signature = together(vec![job.run(|n| (Op::Write, scattered(n, 4096)))]);
    assert_eq!(signature.streams.len(), 1);
    let stream = &signature.streams[0];
    assert!(stream.random_writes_present);
    assert_eq!((stream.pattern, stream.typical_bytes()), (Pattern::Random, 4096));
    let depth = stream.depth.as_ref().unwrap();
    assert_eq!((depth.low, depth.typical, depth.high), (32, 32, 32));
}

#[test]
fn two_sequential_streams_and_a_random_one_without_processes_are_three() {
    let first = Job { service_ns: 3_000_000, ..Job::new(1, 2000, 65_536) };
    let second = Job { service_ns: 2_500_000, ..Job::new(1, 2400, 65_536) };
    let third = Job { service_ns: 2_000_000, ..Job::new(4, 12_000, 4096) };
    let signature = together(vec![
        first.run(|n| (Op::Write, n * 65_536)),
        second.run(|n| (Op::Write, (1 << 40) + n * 65_536)),
        third.run(|n| (Op::Read, (1 << 41) + scattered(n, 4096))),
    ]);
    assert_eq!(signature.streams.len(), 3, "{:#?}", signature.streams);
    let sequential: Vec<_> =
        signature.streams.iter().filter(|s| s.pattern == Pattern::Sequential).collect();
    assert_eq!(sequential.len(), 2);
    for stream in sequential {
        assert_eq!(stream.typical_depth(), 1);
        assert!((2000..=2400).contains(&stream.requests), "{}", stream.requests);
        assert!(!stream.random_writes_present);
        assert_eq!(stream.runs.unwrap().count, 1);
    }
    let random = signature.streams.iter().find(|s| s.pattern == Pattern::Random).unwrap();
    assert_eq!((random.requests, random.typical_depth()), (12_000, 4));
}

#[test]
fn phases_one_after_another_without_processes_are_streams() {
    let random = |n| (Op::Write, scattered(n, 4096));
    let jobs = vec![
        Job { service_ns: 16_000_000, ..Job::new(1, 600, 4096) }.run(random),
        Job { start_ns: 20_000_000_000, service_ns: 30_000_000, ..Job::new(32, 9000, 4096) }
            .run(random),
        Job { start_ns: 40_000_000_000, service_ns: 30_000_000, ..Job::new(32, 9000, 4096) }
            .run(|n| (half_reads(n), scattered(n, 4096))),
        Job { start_ns: 60_000_000_000, ..Job::new(1, 9000, 65_536) }
            .run(|n| (Op::Write, n * 65_536)),
    ];
    let signature = together(jobs);
    let mut shapes: Vec<_> = signature
        .streams
        .iter()
        .map(|s| (s.pattern == Pattern::Random, s.typical_depth(), s.read_share() > 0.3))
        .collect();
    shapes.sort_unstable();
    let expected = [(false, 1, false), (true, 1, false), (true, 32, false), (true, 32, true)];
    assert_eq!(shapes, expected, "{:#?}", signature.streams);
}

#[test]
fn short_slow_phase_is_not_lost_in_the_busy_one_that_follows_at_once() {
    let random = |n| (Op::Write, scattered(n, 4096));
    let slow = Job { service_ns: 16_000_000, ..Job::new(1, 190, 4096) }.run(random);
    let busy =
        Job { start_ns: 190 * 16_000_000, service_ns: 32_000_000, ..Job::new(32, 3000, 4096) };
    let signature = together(vec![slow, busy.run(|n| random(n + 1000))]);
    let mut depths: Vec<_> = signature.streams.iter().map(|s| s.typical_depth()).collect();
    depths.sort_unstable();
    assert_eq!(depths, [1, 32], "{:#?}", signature.streams);
}

#[test]
fn phase_that_comes_back_is_the_same_stream() {
    let mut jobs = Vec::new();
    for round in 0..4 {
        let start_ns = round * 10_000_000_000;
        let small = Job { start_ns, ..Job::new(8, 2000, 4096) };
        let large = Job { start_ns: start_ns + 5_000_000_000, ..Job::new(2, 2000, 131_072) };
        jobs.push(small.run(|n| (Op::Read, scattered(n + round * 5000, 4096))));
        jobs.push(large.run(|n| (Op::Read, scattered(n + round * 9000, 131_072))));
    }
    let signature = together(jobs);
    assert_eq!(signature.streams.len(), 2, "{:#?}", signature.streams);
    assert!(signature.streams.iter().all(|stream| stream.requests == 8000));
}

#[test]
fn processes_are_streams_of_their_own() {
    let reader = Job { process: 10, ..Job::new(4, 5000, 4096) };
    let writer = Job { process: 11, ..Job::new(4, 5000, 4096) };
    let signature = together(vec![
        reader.run(|n| (Op::Read, scattered(n, 4096))),
        writer.run(|n| (Op::Write, scattered(n + 50_000, 4096))),
    ]);
    let mut processes: Vec<_> = signature.streams.iter().map(|s| (s.process, s.mix.read)).collect();
    processes.sort_by_key(|stream| stream.0);
    assert_eq!(processes, [(Some(10), 1.0), (Some(11), 0.0)]);
    assert_eq!(signature.depth.unwrap().typical, 8);
}

#[test]
fn flushes_belong_to_the_stream_that_issues_them() {
    let job = Job { process: 5, ..Job::new(1, 3000, 4096) };
    let signature = together(vec![
        job.run(|n| if n % 3 == 2 { (Op::Flush, 0) } else { (Op::Write, scattered(n, 4096)) }),
    ]);
    assert_eq!(signature.streams.len(), 1);
    assert!((signature.streams[0].flushes_per_100_writes - 50.0).abs() < 0.1);
}

#[test]
fn trace_without_completions_has_no_depth() {
    let records: Vec<_> =
        (0..1000).map(|n| TraceRecord::new(n * 1000, Op::Read, scattered(n, 4096), 4096)).collect();
    let signature = Signature::of_records(&records);
    assert_eq!(signature.depth, None);
    assert_eq!(signature.streams[0].depth, None);
    assert_eq!(signature.streams[0].typical_depth(), 1);
}

#[test]
fn two_threads_count_what_one_does() {
    let job =
        |process: u32, depth: u64, bytes: u64| Job { process, ..Job::new(depth, 9000, bytes) };
    let records = crate::testing::sorted(vec![
        job(1, 8, 4096).run(|n| (half_reads(n), scattered(n, 4096))),
        job(2, 1, 65_536).run(|n| (Op::Write, n * 65_536)),
        job(3, 2, 16_384).run(|n| (Op::Read, scattered(n % 700, 16_384))),
    ]);
    // Not a whole number of batches, and less than one.
    for count in [records.len(), helper::HANDED + 1, 100, 0] {
        let of = |mut builder: SignatureBuilder| {
            records[..count].iter().for_each(|record| builder.add(record));
            builder.count(&Names::default())
        };
        let one = of(SignatureBuilder::new());
        assert_eq!(of(SignatureBuilder::new().on_two_threads()), one, "{count} requests");
    }
}

#[test]
fn empty_trace_has_an_empty_signature() {
    let signature = Signature::of_records(&[]);
    assert_eq!((signature.requests, signature.duration_ns), (0, 0));
    assert!(signature.streams.is_empty());
}

#[test]
fn both_jobs_of_the_capture_are_found_with_sizes_and_depths() {
    let Some(path) = headpond_testkit::shared("traces/headpond-vm/vda.blktrace.0") else {
        headpond_testkit::skip!("both jobs of the capture are found", "the capture is absent");
    };
    let mut reader = TraceReader::open(&path, ReadOptions::default()).unwrap();
    let signature = Signature::of(&mut reader).unwrap();
    assert_eq!(signature.streams.len(), 2, "{:#?}", signature.streams);
    let random = signature.streams.iter().find(|s| s.process == Some(161)).unwrap();
    assert_eq!((random.pattern, random.requests), (Pattern::Random, 2200));
    assert!(random.random_writes_present);
    assert_eq!(random.sizes.as_ref().unwrap().dominant_bytes, 4096);
    assert_eq!(random.process_name.as_deref(), Some("fio"));
    let depth = random.depth.as_ref().unwrap();
    assert_eq!((depth.refilled_from, depth.max), (10, 16), "fills up to 16 when it is down at 10");
    assert!(depth.is_batched());
    let sequential = signature.streams.iter().find(|s| s.process == Some(165)).unwrap();
    assert_eq!(sequential.pattern, Pattern::Sequential);
    assert!(sequential.requests <= 49, "{} requests of 48", sequential.requests);
    assert_eq!(sequential.sizes.as_ref().unwrap().dominant_bytes, 2 << 20);
    assert_eq!(sequential.depth.as_ref().unwrap().typical, 8);
    assert!(!sequential.random_writes_present);
}

/// Mostly below 2^`bits`, sometimes anything.
fn extreme(bits: u32) -> impl Strategy<Value = u64> {
    prop_oneof![200 => 0u64..1 << bits, 1 => any::<u64>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_records_give_a_signature_that_counts_each_request_once(
        records in proptest::collection::vec(
            (extreme(40), 0usize..5, any::<u64>(), extreme(22), 0u32..6, any::<Option<u32>>()),
            0..600,
        ),
    ) {
        let records: Vec<_> = records
            .into_iter()
            .map(|(issued_ns, op, offset, length, process, response)| {
                let length = length.min(u64::MAX - offset);
                let mut record = TraceRecord::new(issued_ns, Op::ALL[op], offset, length);
                record.process = process;
                record.completed_ns = response.map(|ns| issued_ns.saturating_add(u64::from(ns)));
                record
            })
            .collect();
        let signature = Signature::of_records(&records);
        prop_assert!(!crate::render::render_signature(&signature).contains("NaN"));
        prop_assert_eq!(signature.requests, records.len() as u64);
        let sum: u64 = signature.streams.iter().map(|stream| stream.requests).sum();
        prop_assert_eq!(sum, records.len() as u64);
    }
}

/// Each figure is what its definition in docs/analyze.md makes of the others.
fn figures_add_up(signature: &Signature) {
    let close =
        |one: f64, other: f64| (one - other).abs() <= 1e-6 * one.abs().max(other.abs()).max(1.0);
    let streams = &signature.streams;
    assert_eq!(streams.iter().map(|it| it.requests).sum::<u64>(), signature.requests);
    assert_eq!(streams.iter().map(|it| it.bytes).sum::<u64>(), signature.bytes);
    if signature.requests > 0 {
        assert!(close(streams.iter().map(|it| it.request_share).sum(), 1.0));
    }
    for stream in streams {
        stream_adds_up(stream);
    }
    let first_ns = streams.iter().map(|it| it.first_ns).min().unwrap_or(0);
    let last_ns = streams.iter().map(|it| it.last_ns).max().unwrap_or(0);
    assert_eq!(last_ns - first_ns, signature.duration_ns);
    let volume = &signature.volume;
    let data = |stream: &StreamSignature| stream.mix.read + stream.mix.write;
    let all_data = streams.iter().all(|it| close(data(it), 1.0));
    assert!(!all_data || volume.read_bytes + volume.written_bytes == signature.bytes);
    assert!(volume.read_bytes + volume.written_bytes <= signature.bytes);
    if let Some((low, high)) = volume.range_bytes {
        assert!(low <= high);
    }
    assert!(volume.hits.windows(2).all(|pair| pair[0].cache_bytes < pair[1].cache_bytes));
    assert!(volume.hits.windows(2).all(|pair| pair[0].reads <= pair[1].reads + 1e-9));
    let set = &volume.working_set;
    assert!(set.mean_bytes <= set.peak_bytes);
}

fn stream_adds_up(stream: &StreamSignature) {
    let close =
        |one: f64, other: f64| (one - other).abs() <= 1e-6 * one.abs().max(other.abs()).max(1.0);
    assert!(stream.first_ns <= stream.last_ns, "{stream:#?}");
    let seconds = (stream.last_ns - stream.first_ns) as f64 / 1e9;
    if seconds > 0.0 {
        assert!(close(stream.requests_per_second * seconds, stream.requests as f64), "{stream:#?}");
        assert!(close(stream.bytes_per_second * seconds, stream.bytes as f64), "{stream:#?}");
    }
    let mix = &stream.mix;
    let sum = mix.read + mix.write + mix.flush + mix.discard + mix.write_zeroes;
    assert!(close(sum, 1.0), "{stream:#?}");
    let data = (mix.read + mix.write) * stream.requests as f64;
    let sequential = stream.sequential_share * data;
    let runs = stream.runs.map_or((0.0, 0.0), |runs| {
        let count = runs.count as f64;
        assert!(runs.mean_bytes <= runs.longest_bytes as f64 + 0.5, "{stream:#?}");
        assert!(runs.longest_bytes <= stream.bytes, "{stream:#?}");
        (runs.mean_requests * count, runs.mean_bytes * count)
    });
    assert!(close(runs.0, sequential), "{} {sequential} {stream:#?}", runs.0);
    assert!(runs.1 <= stream.bytes as f64 + 0.5, "{stream:#?}");
    if stream.pattern == Pattern::Sequential && stream.runs.is_some() && stream.requests > 100 {
        assert!(runs.1 > 0.0, "{stream:#?}");
    }
    if let Some(sizes) = &stream.sizes {
        let shares: f64 = sizes.distribution.iter().map(|it| it.share).sum();
        assert!(shares <= 1.0 + 1e-9 && sizes.dominant_share <= shares + 1e-9, "{stream:#?}");
        let (least, most) = (sizes.smallest_bytes as f64, sizes.largest_bytes as f64);
        assert!(least <= sizes.mean_bytes + 0.5 && sizes.mean_bytes <= most + 0.5, "{stream:#?}");
    }
    if let Some(depth) = &stream.depth {
        assert!(depth.low <= depth.typical && depth.typical <= depth.high, "{stream:#?}");
        assert!(depth.high <= depth.max && depth.mean <= f64::from(depth.max), "{stream:#?}");
    }
}

fn is_readable(path: &std::path::Path) -> Option<TraceReader> {
    TraceReader::open(path, ReadOptions::default()).ok()
}

#[test]
fn figures_of_all_sample_traces_add_up() {
    let Some(root) = headpond_testkit::shared("traces") else {
        headpond_testkit::skip!("figures of real traces", "traces is absent");
    };
    let mut read = 0;
    let folders =
        std::fs::read_dir(root).unwrap().filter_map(|it| std::fs::read_dir(it.ok()?.path()).ok());
    for path in folders.flatten().map(|it| it.unwrap().path()) {
        if let Some(mut reader) = is_readable(&path)
            && let Ok(signature) = Signature::of(&mut reader)
        {
            println!("{}", path.display());
            figures_add_up(&signature);
            read += 1;
        }
    }
    assert!(read >= 12, "{read}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Runs that meet, change their size and go on in another phase; pauses; several processes.
    #[test]
    fn figures_of_any_trace_add_up(
        pieces in proptest::collection::vec(
            (0u64..3, 0u64..6, 1u64..400, 0usize..3, 0u64..400_000_000, any::<bool>()), 1..40),
    ) {
        let mut at_ns = 0;
        let mut ends = [0u64; 6];
        let mut records = Vec::new();
        for (process, place, count, size, pause_ns, is_sequential) in pieces {
            let length_bytes = [512, 4096, 1 << 20][size];
            for n in 0..count {
                let offset = match is_sequential {
                    true => (place << 40) + ends[place as usize],
                    false => (place << 40) + scattered(n, 4096),
                };
                let op = if place % 2 == 0 { Op::Read } else { Op::Write };
                let mut record = TraceRecord::new(at_ns, op, offset, length_bytes);
                record.process = process as u32;
                record.completed_ns = Some(at_ns + 90_000);
                records.push(record);
                ends[place as usize] += if is_sequential { length_bytes } else { 0 };
                at_ns += 40_000;
            }
            at_ns += pause_ns;
        }
        figures_add_up(&Signature::of_records(&records));
    }
}
