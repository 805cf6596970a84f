//! That policies and twins agree at every step, and on real traces.

use super::shadow::{Sample, access};
use super::twins::twin;
use super::{EvictionPolicy, Group, Heat, Policy, Residents};
use crate::types::CoreLine;
use headpond_testkit::{Break, assert_trips};
use headpond_trace::{Demand, Op, ReadOptions, TraceReader, TraceRecord};
use proptest::prelude::*;
use std::path::Path;

const CORE_LINES: u64 = 1 << 33;
/// Requests for blocks of one trace that policies and twins are asked.
const ASKED_MAX: usize = 400_000;
const CAPACITIES: [u64; 4] = [64, 1024, 8192, 65_536];

fn marked(residents: &Sample, blocks: u64) -> Vec<u64> {
    (0..blocks)
        .filter(|block| residents.heat(CoreLine(*block), Group::FIRST).is_resident())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn policy_and_twin_agree_at_every_step(
        policy in prop::sample::select(EvictionPolicy::PLAIN.to_vec()),
        capacity in 1usize..30,
        steps in prop::collection::vec((0u64..24, 0u64..24, 0u32..20), 1..800),
        removes in any::<bool>(),
    ) {
        let blocks = 24 + 24;
        let mut ours = policy.make(capacity as u64, CORE_LINES, 1);
        let (mut residents, mut twin) = (Sample::new(capacity as u64), twin(policy.word(), capacity));
        for (index, &(some, more, kind)) in steps.iter().enumerate() {
            // Some blocks are asked for more often than others.
            let block = CoreLine(if kind < 8 { some % 6 } else { some + more });
            if kind == 19 && removes {
                residents.set(block, Heat::NONE);
                ours.remove(block);
                twin.remove(block.0);
            } else {
                let is_hit = access(&mut *ours, block, &mut residents);
                prop_assert_eq!(is_hit, twin.access(block.0), "step {}", index);
            }
            let mut expected = twin.residents();
            expected.sort_unstable();
            prop_assert_eq!(marked(&residents, blocks), expected, "step {}", index);
            prop_assert!(residents.held(Group::FIRST).all <= capacity as u64);
            if index % 16 == 0 {
                ours.self_check(&residents);
            }
        }
    }
}

#[test]
fn check_notices_residents_that_no_policy_can_evict() {
    for policy in EvictionPolicy::PLAIN {
        type Cache = (Box<dyn Policy>, Sample);
        let make = || {
            let (mut ours, mut residents) = (policy.make(8, CORE_LINES, 1), Sample::new(8));
            (0..12).for_each(|line| _ = access(&mut *ours, CoreLine(line), &mut residents));
            (ours, residents)
        };
        let check = |(ours, residents): &Cache| ours.self_check(residents);
        let breaks: [Break<Cache>; 3] = [
            ("residents are in", |(_, residents)| residents.set(CoreLine(99), Heat::SMALL)),
            ("residents are in", |(_, residents)| residents.set(CoreLine(98), Heat::MAIN)),
            ("residents are in", |(ours, residents)| {
                _ = ours.insert(CoreLine(97), Group::FIRST, &mut Sample::new(8));
                residents.set(CoreLine(96), Heat::SMALL);
            }),
        ];
        assert_trips(make, check, &breaks);
    }
}

#[test]
fn one_block_that_comes_and_ends_again_and_again_does_not_fill_the_queues() {
    for policy in EvictionPolicy::PLAIN {
        let (mut ours, mut residents) = (policy.make(8, CORE_LINES, 1), Sample::new(8));
        for _ in 0..100 {
            residents.set(CoreLine(1), Heat::NONE);
            ours.remove(CoreLine(1));
            access(&mut *ours, CoreLine(1), &mut residents);
        }
        access(&mut *ours, CoreLine(2), &mut residents);
        assert!(residents.heat(CoreLine(2), Group::FIRST).is_resident(), "{policy:?}");
    }
}

/// Mappings that end at once never make the queues grow, nor drive out much of what stays.
#[test]
fn blocks_that_come_and_end_leave_room_to_those_that_stay() {
    for policy in EvictionPolicy::PLAIN {
        let mut ours: Box<dyn Policy> = policy.make(1000, CORE_LINES, 1);
        let mut residents = Sample::new(1000);
        let memory = ours.memory();
        let mut misses = 0;
        for round in 0..100_000u64 {
            let passing = CoreLine(5000 + round);
            access(&mut *ours, passing, &mut residents);
            residents.set(passing, Heat::NONE);
            ours.remove(passing);
            misses += u64::from(!access(&mut *ours, CoreLine(round % 500), &mut residents));
        }
        assert_eq!(ours.memory(), memory, "{policy:?}");
        assert!(misses < 25_000, "{policy:?} missed {misses} of 100000 requests for 500 blocks");
    }
}

/// The blocks that a trace asks for, in order; parts of blocks count as whole ones. Some formats
/// tell no operations.
fn blocks_of(trace: &Path) -> Vec<u64> {
    let options = ReadOptions { demand: Demand::References, ..ReadOptions::default() };
    let records = TraceReader::open(trace, options).expect("a readable trace");
    let asked = records
        .map(|record| record.expect("a sound trace"))
        .filter(|record| !matches!(record.op, Op::Flush | Op::Discard) && record.length_bytes > 0);
    let blocks =
        |record: TraceRecord| record.offset_bytes / 4096..record.end_bytes().div_ceil(4096);
    asked.flat_map(blocks).take(ASKED_MAX).collect()
}

fn misses_of_ours(policy: EvictionPolicy, capacity: u64, blocks: &[u64]) -> u64 {
    let (mut ours, mut residents) = (policy.make(capacity, CORE_LINES, 1), Sample::new(capacity));
    let asked = blocks.iter().map(|block| access(&mut *ours, CoreLine(*block), &mut residents));
    asked.map(|is_hit| u64::from(!is_hit)).sum()
}

fn agree_on(name: &str, blocks: &[u64]) {
    assert!(blocks.len() > 900, "{name} has {} requests for blocks", blocks.len());
    for capacity in CAPACITIES {
        let misses = EvictionPolicy::PLAIN.map(|policy| {
            let mut twin = twin(policy.word(), capacity as usize);
            let expected: u64 = blocks.iter().map(|block| u64::from(!twin.access(*block))).sum();
            let found = misses_of_ours(policy, capacity, blocks);
            assert_eq!(found, expected, "{name}, {capacity} blocks, {policy:?}");
            format!("{} {found}", policy.word())
        });
        println!("{name}: {} requests, {capacity} blocks: {misses:?}", blocks.len());
    }
}

/// One file of each recording: the same requests in another format are the same to a policy.
const TRACES: [&str; 14] = [
    "arc/arc-P3.lis.zst",
    "blkreplay/linux-webserver-2.load.gz",
    "blkreplay/windows-shared-server.load.gz",
    "blktrace/takeoverjp-sample.blktrace.0",
    "cloudphysics/cloudPhysicsIO.vscsi.zst",
    "disksim-valid/atlas_III.trace.zst",
    "disksim-valid/cheetah4LP.trace.zst",
    "disksim-valid/hp_c2490a.trace.zst",
    "disksim-valid/ibm18es.trace.zst",
    "fio-iolog/own-oltp-v3.iolog.zst",
    "headpond-vm/vda.bin",
    "mqsim/tpcc-small.trace.zst",
    "msr/msr.cut.per_10k.rw_20_80.105.trace.zst",
    "octf/sample_trace.tar.xz",
];

#[test]
fn miss_counts_of_policies_and_twins_are_equal_on_real_traces() {
    for name in TRACES {
        let Some(trace) = headpond_testkit::shared(format!("traces/{name}")) else {
            headpond_testkit::skip!("miss counts on real traces", "{name} is not in ../shared");
        };
        agree_on(name, &blocks_of(&trace));
    }
}
