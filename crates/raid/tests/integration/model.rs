//! An array against a plain array of bytes.

use std::rc::Rc;

use crate::support::*;
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffer, Buffers, ByteRange, Request, RequestFlags};
use headpond_raid::{Array, ArrayState, CreateOptions, Level, Striping, Weights};
use proptest::prelude::*;

/// Level, members, groups, and how stripes lie on them.
type Shape = (Level, usize, usize, Lies);

#[derive(Clone, Copy, Debug)]
enum Lies {
    Plainly,
    /// Declustered: strips of a stripe, and spares.
    Spread(u16, u16),
    /// So many strips of each member to a round.
    Weighted(&'static [u8]),
}
use Lies::{Plainly, Spread, Weighted};

const SHAPES: [Shape; 14] = [
    (Level::Raid0, 2, 1, Weighted(&[3, 1])),
    (Level::Raid0, 3, 1, Weighted(&[2, 1, 5])),
    (Level::Raid0, 3, 1, Plainly),
    (Level::Raid1, 2, 1, Plainly),
    (Level::Raid1, 3, 1, Plainly),
    (Level::Raid10, 4, 2, Plainly),
    (Level::Raid5, 4, 1, Plainly),
    (Level::Raid6, 5, 1, Plainly),
    (Level::Raid6, 7, 1, Plainly),
    (Level::Raid50, 6, 2, Plainly),
    (Level::Raid60, 8, 2, Plainly),
    (Level::Raid5, 7, 1, Spread(3, 1)),
    (Level::Raid6, 7, 1, Spread(4, 1)),
    (Level::Raid6, 9, 1, Spread(5, 2)),
];

fn options_of((level, _, groups, lies): Shape) -> CreateOptions {
    let usual = options(level, groups);
    match lies {
        Plainly => usual,
        Spread(width, spares) => {
            CreateOptions { declustered: Some(headpond_raid::Spread { width, spares }), ..usual }
        }
        Weighted(weights) => {
            let weights = Weights::new(weights.to_vec()).expect("few, and none is zero");
            CreateOptions { striping: Striping::Weighted(weights), ..usual }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        start: u64,
        blocks: u64,
        cut: u64,
        flags: RequestFlags,
    },
    Read {
        start: u64,
        blocks: u64,
        other_copy: bool,
    },
    Zero {
        start: u64,
        blocks: u64,
    },
    Discard {
        start: u64,
        blocks: u64,
    },
    Flush,
    /// A member refuses writes, goes away, or cannot read a stretch: of all that the redundancy
    /// bears.
    Fail {
        member: usize,
        how: u8,
        at: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = || (any::<prop::sample::Index>(), 1_u64..60);
    let at = |index: prop::sample::Index| index.index(1 << 20) as u64;
    let flags = prop::sample::select(vec![
        RequestFlags::empty(),
        RequestFlags::FUA,
        RequestFlags::RECOMPUTE_PARITY,
    ]);
    let step = prop_oneof![
        6 => (range(), any::<u8>(), flags).prop_map(move |((start, blocks), cut, flags)| {
            Step::Write { start: at(start), blocks, cut: cut.into(), flags }
        }),
        4 => (range(), any::<bool>()).prop_map(move |((start, blocks), other_copy)| {
            Step::Read { start: at(start), blocks, other_copy }
        }),
        1 => range().prop_map(move |(start, blocks)| {
            Step::Zero { start: at(start), blocks: blocks * 4 }
        }),
        1 => range().prop_map(move |(start, blocks)| Step::Discard { start: at(start), blocks }),
        1 => Just(Step::Flush),
        1 => (0_usize..8, any::<u8>(), any::<u64>())
            .prop_map(|(member, how, at)| Step::Fail { member, how, at }),
    ];
    prop::collection::vec(step, 1..40)
}

/// An array, its members, and what it should hold.
struct Twin {
    array: Array,
    members: Vec<Rc<TestDevice>>,
    bytes: Vec<u8>,
    failed: Vec<usize>,
    random: Random,
}

impl Twin {
    fn range(&self, start: u64, blocks: u64) -> ByteRange {
        let total = self.bytes.len() as u64 / 512;
        let start = start % total;
        ByteRange::at(start * 512, blocks.min(total - start) * 512)
    }

    fn part(&mut self, range: ByteRange) -> &mut [u8] {
        &mut self.bytes[range.start() as usize..range.end() as usize]
    }

    /// Whether the redundancy bears another lost member.
    fn can_lose(&self, member: usize) -> bool {
        let mut failed = self.failed.clone();
        failed.push(member);
        failed.sort();
        failed.dedup();
        failure_sets(self.array.layout()).contains(&failed)
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Write { start, blocks, cut, flags } => {
                let range = self.range(start, blocks);
                let new = self.random.bytes(range.len() as usize);
                self.part(range).copy_from_slice(&new);
                let flags = if self.failed.is_empty() { flags } else { flags & RequestFlags::FUA };
                let request = Request::write(range.start(), in_parts(&new, cut)).with_flags(flags);
                self.array.submit(request).await.unwrap();
            }
            Step::Read { start, blocks, other_copy } => {
                let range = self.range(start, blocks);
                let memory = Buffer::zeroed(range.len() as usize);
                let healthy = self.failed.is_empty();
                let other = other_copy && healthy && self.array.layout().redundancy() > 0;
                let flags = if other { RequestFlags::OTHER_COPY } else { RequestFlags::empty() };
                let request = Request::read(range.start(), &memory).with_flags(flags);
                self.array.submit(request).await.unwrap();
                assert!(memory.to_vec() == self.part(range), "read of {range}");
            }
            Step::Zero { start, blocks } => {
                let range = self.range(start, blocks);
                self.part(range).fill(0);
                self.array.submit(Request::write_zeroes(range)).await.unwrap();
            }
            Step::Discard { start, blocks } => {
                let range = self.range(start, blocks);
                self.array.submit(Request::discard(range)).await.unwrap();
                let now = read(&self.array, range.start(), range.len() as usize).await.unwrap();
                let old_or_zero =
                    now.iter().zip(self.part(range)).all(|(now, old)| *now == 0 || now == old);
                assert!(old_or_zero, "discard of {range}");
                self.part(range).copy_from_slice(&now);
            }
            Step::Flush => self.array.submit(Request::flush()).await.unwrap(),
            Step::Fail { member, how, at } => self.fail(member % self.members.len(), how, at),
        }
    }

    fn fail(&mut self, member: usize, how: u8, at: u64) {
        if !self.can_lose(member) {
            return;
        }
        let device = &self.members[member];
        match how % 3 {
            0 => device.writes_left.set(u64::from(how) % 4),
            1 => device.gone.set(true),
            _ => device.make_bad(at % 16 * 512, 1024),
        }
        self.failed.push(member);
    }

    async fn check_all(&mut self) {
        let now = read(&self.array, 0, self.bytes.len()).await.unwrap();
        assert!(now == self.bytes, "the whole array");
    }
}

fn in_parts(bytes: &[u8], cut: u64) -> Buffers {
    let cut = (cut as usize * 37) % bytes.len();
    [Buffer::from_slice(&bytes[..cut]), Buffer::from_slice(&bytes[cut..])].into_iter().collect()
}

fn twin_runs(shape: Shape, seed: u64, steps: Vec<Step>) {
    let count = shape.1;
    run(seed, |runtime| async move {
        let members = devices(count, 12, &runtime);
        let array = new_array(&members, &options_of(shape)).await;
        let bytes = vec![0; array.layout().array_bytes() as usize];
        let random = Random::new(seed);
        let mut twin = Twin { array, members, bytes, failed: Vec::new(), random };
        for step in steps {
            twin.step(step).await;
        }
        twin.check_all().await;
        twin.array.self_check();
        if twin.array.state() == ArrayState::Optimal {
            twin.members.iter().for_each(|member| member.bad.borrow_mut().clear());
            check_redundancy(&twin.array, &twin.members);
        }
        twin.array.stop().await.unwrap();
        twin.members.iter().for_each(|member| {
            member.gone.set(false);
            member.writes_left.set(u64::MAX);
        });
        let failed = twin.array.status().members.iter().filter(|m| m.device.is_some()).count();
        assert_eq!(failed, count);
        twin.members.reverse();
        let Twin { bytes, members, .. } = twin;
        let assembled = start(&members).await;
        let now = read(&assembled.array, 0, bytes.len()).await.unwrap();
        assert!(now == bytes, "after assembling again");
    });
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 80, failure_persistence: None, ..ProptestConfig::default()
    })]
    #[test]
    fn an_array_is_its_bytes_whatever_fails(
        shape in prop::sample::select(SHAPES.to_vec()), seed in any::<u64>(), steps in steps(),
    ) {
        twin_runs(shape, seed, steps);
    }
}

#[test]
fn every_failure_set_within_the_redundancy_is_survived() {
    for shape in SHAPES {
        let (level, count, ..) = shape;
        run(7, |runtime| async move {
            let random = Random::new(count as u64);
            let members = devices(count, 10, &runtime);
            let array = new_array(&members, &options_of(shape)).await;
            let layout = array.layout().clone();
            let mut bytes = random.bytes(layout.array_bytes() as usize);
            write(&array, 0, &bytes).await.unwrap();
            check_redundancy(&array, &members);
            array.stop().await.unwrap();
            for set in failure_sets(&layout) {
                let copies = members.iter().enumerate();
                let left: Vec<_> = copies
                    .filter(|(index, _)| !set.contains(index))
                    .map(|(index, member)| member.copy(index, &runtime))
                    .collect();
                let assembled = start(&left).await;
                assert_eq!(assembled.missing.len(), set.len());
                let array = assembled.array;
                assert!(read(&array, 0, bytes.len()).await.unwrap() == bytes, "{level} {set:?}");
                let kept = bytes.clone();
                for _ in 0..12 {
                    let start = random.below(bytes.len() as u64 / 512) * 512;
                    let room = (bytes.len() as u64 - start) / 512;
                    let len = (1 + random.below(room.min(30))) * 512;
                    let new = random.bytes(len as usize);
                    write(&array, start, &new).await.unwrap();
                    bytes[start as usize..(start + len) as usize].copy_from_slice(&new);
                }
                assert!(read(&array, 0, bytes.len()).await.unwrap() == bytes, "{level} {set:?}");
                bytes = kept;
            }
        });
    }
}

#[test]
fn writes_in_flight_on_the_same_stripes_leave_data_and_parity_right() {
    for (seed, shape) in SHAPES.into_iter().cycle().take(36).enumerate() {
        let count = shape.1;
        run(seed as u64, |runtime| async move {
            let random = Random::new(seed as u64);
            let members = devices(count, 8, &runtime);
            let array = new_array(&members, &options_of(shape)).await;
            let blocks = array.layout().array_bytes() / 512;
            let mut expected = vec![0; array.layout().array_bytes() as usize];
            let mut order: Vec<u64> = (0..blocks).collect();
            for index in 1..order.len() {
                order.swap(index, random.below(index as u64 + 1) as usize);
            }
            let mut writes = Vec::new();
            for block in order.into_iter().take(200) {
                let bytes = random.bytes(512);
                let at = block as usize * 512;
                expected[at..at + 512].copy_from_slice(&bytes);
                writes.push(array.submit(Request::write(at as u64, Buffer::from_slice(&bytes))));
            }
            for outcome in join_all(writes).await {
                outcome.unwrap();
            }
            assert!(read(&array, 0, expected.len()).await.unwrap() == expected);
            check_redundancy(&array, &members);
        });
    }
}

#[test]
fn overlapping_writes_leave_one_of_them_and_right_parity() {
    for (seed, shape) in SHAPES.into_iter().cycle().take(36).enumerate() {
        let count = shape.1;
        run(seed as u64, |runtime| async move {
            let random = Random::new(seed as u64);
            let members = devices(count, 5, &runtime);
            let array = new_array(&members, &options_of(shape)).await;
            let blocks = array.layout().array_bytes() / 512;
            let mut writes = Vec::new();
            for value in 1..=60_u8 {
                let start = random.below(blocks);
                let len = (1 + random.below((blocks - start).min(40))) as usize * 512;
                let data = Buffer::from_slice(&vec![value; len]);
                writes.push(array.submit(Request::write(start * 512, data)));
            }
            join_all(writes).await.into_iter().for_each(|outcome| outcome.unwrap());
            let now = read(&array, 0, array.layout().array_bytes() as usize).await.unwrap();
            for block in now.chunks(512) {
                assert!(block.iter().all(|byte| *byte == block[0]), "no block is mixed");
            }
            check_redundancy(&array, &members);
        });
    }
}
