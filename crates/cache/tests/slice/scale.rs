//! Large caches on a device that keeps only what is not zero: full of dirty lines, without anybody
//! having written them one by one.

use headpond_block::{
    BlockDevice, Buffer, DeviceName, Geometry, Outcome, Request, RequestKind, Runtime, Stability,
    Submission,
};
use headpond_cache::format::checkpoint::{CheckpointKind, CheckpointRun, bytes_max, encode_table};
use headpond_cache::format::slice_header::{
    CHECKPOINTS_OFFSET, COPY_OFFSETS, CheckpointRef, SliceHeader,
};
use headpond_cache::{
    ClassKey, CleaningConfig, CleaningPolicy, CoreBlock, CreateOptions, Epoch, Expected,
    Foundation, Heat, LoadProgress, OpenError, Position, Recovery, SegmentIndex, Sequence, Slice,
    SliceConfig, Superblock, create, load,
};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

const PAGE_BYTES: usize = 4096;
pub const LINE_BYTES: u64 = 64 << 10;
const LINE_BLOCKS: u32 = 16;
pub const LATENCY: Duration = Duration::from_micros(80);
/// A descriptor, and a line.
const UNITS_PER_RECORD: u64 = 17;
const EXPECTED: Expected = Expected { volume: Uuid::from_u128(1), generation: 1 };

/// What was asked of a device.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    pub operations: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// What the model itself took of the processor, which no real device does.
    pub spent: Duration,
}

impl Traffic {
    /// How long the device has moved bytes.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos((self.read_bytes + self.written_bytes) / 3)
    }
}

/// A device that takes memory for pages that are not zero, and the time of a fast SSD: it moves
/// bytes one after the other (3 GB/s), and each operation takes 80 µs more, while others go on.
pub struct Sparse {
    name: DeviceName,
    geometry: Geometry,
    runtime: Runtime,
    pages: RefCell<HashMap<u64, Box<[u8; PAGE_BYTES]>>>,
    scratch: RefCell<Vec<u8>>,
    traffic: Cell<Traffic>,
    /// When all bytes have been moved that were asked for.
    free_at: Cell<Duration>,
    /// Beside which the device works on, where time is not only the simulation's.
    pub processor: Cell<Option<fn() -> Duration>>,
    /// In all.
    spent: Cell<Duration>,
}

impl Sparse {
    pub fn new(name: &str, size_bytes: u64, runtime: &Runtime) -> Rc<Self> {
        let geometry = Geometry {
            stability: Stability::Flushable,
            logical_block_bytes: PAGE_BYTES as u32,
            ..Geometry::of_size(size_bytes)
        };
        let (name, runtime) = (DeviceName::new(name), runtime.clone());
        Rc::new(Self {
            name,
            geometry,
            runtime,
            pages: RefCell::default(),
            scratch: RefCell::default(),
            traffic: Cell::default(),
            free_at: Cell::default(),
            processor: Cell::default(),
            spent: Cell::default(),
        })
    }

    /// The time as the device knows it; without what the model itself takes.
    pub fn clock(&self) -> Duration {
        let simulated = Duration::from_nanos(self.runtime.now().as_nanos());
        let taken = self.processor.get().map(|processor| processor());
        simulated + taken.map_or(Duration::ZERO, |taken| taken.saturating_sub(self.spent.get()))
    }

    /// What was asked since this was asked last.
    pub fn take_traffic(&self) -> Traffic {
        self.traffic.take()
    }

    pub fn put(&self, offset: u64, bytes: &[u8]) {
        let mut pages = self.pages.borrow_mut();
        for (page, piece) in (offset / PAGE_BYTES as u64..).zip(bytes.chunks(PAGE_BYTES)) {
            let mut whole = [0; PAGE_BYTES];
            whole[..piece.len()].copy_from_slice(piece);
            match whole.iter().all(|byte| *byte == 0) {
                true => pages.remove(&page),
                false => pages.insert(page, Box::new(whole)),
            };
        }
    }

    fn get<'a>(&self, offset: u64, len: usize, bytes: &'a mut Vec<u8>) -> &'a [u8] {
        let pages = self.pages.borrow();
        bytes.clear();
        bytes.resize(len, 0);
        for (page, piece) in (offset / PAGE_BYTES as u64..).zip(bytes.chunks_mut(PAGE_BYTES)) {
            if let Some(found) = pages.get(&page) {
                piece.copy_from_slice(&found[..piece.len()]);
            }
        }
        bytes
    }

    /// Carries a request out; answers when an SSD would have done so.
    fn carry_out(&self, request: &Request) -> Duration {
        let (offset, len) = (request.range.start(), request.range.len());
        let (now, begun) = (self.clock(), processor_time());
        let mut traffic = self.traffic.get();
        traffic.operations += 1;
        match request.kind {
            RequestKind::Read => {
                let mut bytes = self.scratch.borrow_mut();
                request.buffers.copy_from(self.get(offset, len as usize, &mut bytes));
                traffic.read_bytes += len;
            }
            RequestKind::Write => {
                self.put(offset, &request.buffers.to_vec());
                traffic.written_bytes += len;
            }
            _ => {}
        }
        let spent = processor_time() - begun;
        traffic.spent += spent;
        self.spent.set(self.spent.get() + spent);
        self.traffic.set(traffic);
        let free_at = self.free_at.get().max(now) + Duration::from_nanos(len / 3);
        self.free_at.set(free_at);
        free_at + LATENCY
    }
}

impl BlockDevice for Sparse {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        let done = self.carry_out(&request);
        Submission::pending(async move {
            while let Some(left) = done.checked_sub(self.clock()).filter(|left| !left.is_zero()) {
                self.runtime.sleep(left).await;
            }
            Outcome::Ok(())
        })
    }
}

/// A cache of so many bytes whose lines of 64 KiB are all dirty, as a clean stop left it.
pub struct Full {
    pub runtime: Runtime,
    pub cache: Rc<Sparse>,
    pub core: Rc<Sparse>,
    pub superblock: Superblock,
    pub dirty_blocks: u64,
}

impl Full {
    pub async fn new(runtime: &Runtime, cache_bytes: u64) -> Self {
        let (cache, core) = (
            Sparse::new("cache", cache_bytes, runtime),
            Sparse::new("core", 4 * cache_bytes, runtime),
        );
        let options = CreateOptions {
            cache: Uuid::from_u128(2),
            volume: EXPECTED.volume,
            core: Uuid::from_u128(3),
            core_bytes: 4 * cache_bytes,
            generation: EXPECTED.generation,
            slices: 1,
            line_bytes: LINE_BYTES as u32,
            unit_bytes: Some(4096),
            device_bytes: None,
        };
        create(&*cache, &options).await.expect("a cache that fits");
        let superblock = load(&*cache).await.expect("a cache");
        let mut full = Self { runtime: runtime.clone(), cache, core, superblock, dirty_blocks: 0 };
        full.fill();
        full
    }

    /// Writes a clean header, and a checkpoint of a log that lines went into one after the other.
    fn fill(&mut self) {
        let (slice, segment) = (self.superblock.slices[0], self.superblock.segment_bytes);
        let each = u64::from(segment) / 4096;
        // As the format has it.
        let most = (slice.len() - CHECKPOINTS_OFFSET) / u64::from(segment);
        let area = bytes_max(most, most * each);
        let segments = (slice.len() - CHECKPOINTS_OFFSET - 2 * area) / u64::from(segment);
        let (used, records) = (segments * 85 / 100, each / UNITS_PER_RECORD);
        let firsts: Vec<Sequence> =
            (0..segments).map(|at| Sequence(1 + at.min(used) * records)).collect();
        let mut bytes = encode_table(&firsts);
        let checksums = [crc_fast::crc32_iscsi(&[0; 4096]); LINE_BLOCKS as usize];
        for line in 0..used * records {
            let run = CheckpointRun {
                first: CoreBlock(line * 7 % (used * records * 3) * u64::from(LINE_BLOCKS)),
                count: LINE_BLOCKS,
                kind: CheckpointKind::Dirty,
                class: ClassKey::UNKNOWN,
                is_given: true,
                // As many as eviction keeps of such a log.
                heat: if line * 100 < used * records * 30 { Heat::NONE } else { Heat::MAIN },
                position: Position(line / records * each + line % records * UNITS_PER_RECORD + 1),
            };
            run.encode(&checksums, &mut bytes);
        }
        self.dirty_blocks = used * records * u64::from(LINE_BLOCKS);
        let start = slice.start() + CHECKPOINTS_OFFSET + area;
        self.cache.put(start, &bytes);
        let header = SliceHeader {
            cache: self.superblock.cache,
            slice: 0,
            sequence: 2,
            epoch: Epoch(1),
            next_record: Sequence(1 + used * records),
            tail: Sequence(1),
            tail_segment: SegmentIndex(0),
            head: Position(used * each),
            head_segment: SegmentIndex(used as u32 - 1),
            is_clean: true,
            checkpoint: CheckpointRef {
                area: 1,
                runs: used * records,
                bytes: bytes.len() as u64,
                checksum: crc_fast::crc32_iscsi(&bytes),
            },
            reach: 0,
            order: None,
        };
        for (copy, sequence) in [(0, 2), (1, 1)] {
            let header = SliceHeader { sequence, ..header };
            self.cache.put(slice.start() + COPY_OFFSETS[copy], &header.encode());
        }
    }

    pub async fn open(&self, every: u64) -> Result<(Slice, Recovery), OpenError> {
        self.open_watched(every, &|_| {}).await
    }

    pub async fn open_watched(
        &self,
        every: u64,
        watch: &dyn Fn(LoadProgress),
    ) -> Result<(Slice, Recovery), OpenError> {
        let cleaning = CleaningConfig { policy: CleaningPolicy::Nop, ..CleaningConfig::default() };
        let checkpoint_every_bytes = every;
        let config = SliceConfig { cleaning, checkpoint_every_bytes, ..SliceConfig::default() };
        let (cache, core) = (Rc::clone(&self.cache) as Rc<_>, Rc::clone(&self.core) as Rc<_>);
        let foundation = Foundation::new(self.runtime.clone(), cache, core);
        Slice::open_watched(foundation, &self.superblock, EXPECTED, 0, config, watch).await
    }

    /// Writes so many lines over dirty ones, one after the other.
    pub async fn write_lines(&self, slice: &Slice, lines: std::ops::Range<u64>) {
        let data = Buffer::zeroed(LINE_BYTES as usize);
        for line in lines {
            // Neighbours in the log are none on the core.
            let request = Request::write(line * 7 % 4096 * 7 * LINE_BYTES, data.clone());
            slice.submit(request).await.expect("a sound device");
        }
    }
}

/// What this thread has had of a processor, as the kernel counts it.
pub fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|text| text.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}
