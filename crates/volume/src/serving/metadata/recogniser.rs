//! Finds the file systems of a core, and answers for each request whether it is metadata.
//!
//! What is read for this goes through the cache like any other read: only there is the newest
//! version of a superblock. It is read when rules ask for metadata, and not otherwise.

use super::ranges::Ranges;
use super::{FileSystem, FoundFileSystem, HEAD_BYTES, partitions};
use headpond_block::sync::{Busy, BusyGuard};
use headpond_block::{
    BLOCK_BYTES, BlockDevice, Buffer, ByteRange, DeviceError, Request, RequestKind, Runtime,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// After a superblock has changed: time for the rest of what a `mkfs` or a resize writes.
const LOOK_AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];
/// Blocks recognised by what was written to them; older ones are forgotten.
const LEARNED_MAX: usize = 1 << 16;
/// Longest write whose payload is looked at: XFS's largest directory block.
const LOOKED_AT_BYTES_MAX: u64 = 64 << 10;
/// As much of a write as has to be seen.
const LOOK_BYTES: usize = 176;
const READ_BYTES_MAX: u64 = 1 << 20;

/// Knows where the metadata of a core lies.
pub(crate) struct Recogniser {
    runtime: Runtime,
    device: Rc<dyn BlockDevice>,
    picture: RefCell<Picture>,
    learned: RefCell<Learned>,
    is_looking: Cell<bool>,
    /// While somebody wants it to, it begins no read.
    resting: Busy,
    reading: Busy,
}

/// What a look at the core has found.
#[derive(Default)]
struct Picture {
    found: Vec<FileSystem>,
    fixed: Ranges,
    /// When this changes, the picture is to be made anew.
    watched: Ranges,
}

/// Blocks of 4 KiB, in the order in which they were recognised.
#[derive(Default)]
struct Learned {
    blocks: BTreeSet<u64>,
    order: VecDeque<u64>,
}

impl Recogniser {
    pub fn new(runtime: Runtime, device: Rc<dyn BlockDevice>) -> Rc<Self> {
        Rc::new(Self {
            runtime,
            device,
            picture: RefCell::default(),
            learned: RefCell::default(),
            is_looking: Cell::new(false),
            resting: Busy::default(),
            reading: Busy::default(),
        })
    }

    /// Reads nothing from here on until the answer is dropped; waits for what it reads now. A look
    /// that is under way goes on afterwards.
    pub async fn rest(&self) -> BusyGuard {
        let rest = self.resting.begin();
        self.reading.until_idle().await;
        rest
    }

    /// As [`Learned::self_check`].
    pub fn self_check(&self) {
        self.learned.borrow().self_check();
    }

    /// Whether all of a request lies in metadata; remembers what a write shows of itself.
    pub fn is_metadata(&self, request: &Request) -> bool {
        let picture = self.picture.borrow();
        if picture.fixed.contains(request.range) {
            return true;
        }
        let is_in = |found: &FileSystem| match found {
            FileSystem::Xfs(xfs) => xfs.place().contains(request.range),
            FileSystem::Ext4(_) => false,
        };
        let Some(FileSystem::Xfs(xfs)) = picture.found.iter().find(|found| is_in(found)) else {
            return false;
        };
        if request.kind != RequestKind::Write || request.buffers.is_payload_free() {
            return self.learned.borrow().contains(request.range);
        }
        let head = match request.range.len() {
            len if len > LOOKED_AT_BYTES_MAX => Vec::new(),
            len => request.buffers.slice(0..LOOK_BYTES.min(len as usize)).to_vec(),
        };
        let is_metadata = xfs.is_metadata(request.range.start(), &head);
        self.learned.borrow_mut().note(request.range, is_metadata);
        is_metadata
    }

    /// Whether a change of `range` may change what is metadata.
    pub fn is_watched(&self, range: ByteRange) -> bool {
        self.picture.borrow().watched.touches(range)
    }

    /// Looks again, when whoever changed a superblock has had time to change the rest.
    pub fn look_again_later(self: &Rc<Self>) {
        if self.is_looking.replace(true) {
            return;
        }
        let recogniser = Rc::clone(self);
        drop(self.runtime.spawn(async move {
            for delay in LOOK_AGAIN {
                recogniser.runtime.sleep(delay).await;
                recogniser.look().await;
            }
            recogniser.is_looking.set(false);
        }));
    }

    /// Looks beside whatever else goes on.
    pub fn look_now(self: &Rc<Self>) {
        let recogniser = Rc::clone(self);
        drop(self.runtime.spawn(async move { recogniser.look().await }));
    }

    pub fn found(&self) -> Vec<FoundFileSystem> {
        let picture = self.picture.borrow();
        let tell = |found: &FileSystem| {
            let place = match found {
                FileSystem::Ext4(ext4) => ext4.place(),
                FileSystem::Xfs(xfs) => xfs.place(),
            };
            found.tell(picture.fixed.bytes_within(place))
        };
        picture.found.iter().map(tell).collect()
    }

    /// Looks at the whole core. Where it cannot be read, what was found before holds.
    pub async fn look(&self) {
        if let Ok(picture) = self.picture_now().await {
            let is_other = self.picture.borrow().found != picture.found;
            if is_other {
                self.learned.take();
            }
            self.picture.replace(picture);
        }
    }

    async fn picture_now(&self) -> Result<Picture, DeviceError> {
        let size_bytes = self.device.size_bytes();
        let table = ByteRange::at(0, partitions::TABLE_BYTES.min(size_bytes));
        let table_bytes = self.read(table).await?;
        let mut places = partitions::partitions(&table_bytes, size_bytes);
        places.push(ByteRange::at(0, size_bytes));
        let (mut found, mut fixed, mut watched) = (Vec::new(), Vec::new(), vec![table]);
        for place in places {
            let head = ByteRange::at(place.start(), HEAD_BYTES.min(place.len()));
            watched.push(head);
            let Some(one) = FileSystem::recognise(&self.read(head).await?, place) else { continue };
            fixed.extend(self.metadata_of(&one).await?);
            found.push(one);
        }
        Ok(Picture { found, fixed: Ranges::of(fixed), watched: Ranges::of(watched) })
    }

    async fn metadata_of(&self, found: &FileSystem) -> Result<Vec<ByteRange>, DeviceError> {
        match found {
            FileSystem::Xfs(xfs) => Ok(xfs.metadata()),
            FileSystem::Ext4(ext4) => {
                let mut descriptors = Vec::new();
                for place in ext4.descriptor_places() {
                    descriptors.extend(self.read(place).await?);
                }
                Ok(ext4.metadata(&descriptors))
            }
        }
    }

    async fn read(&self, range: ByteRange) -> Result<Vec<u8>, DeviceError> {
        let mut bytes = Vec::new();
        for piece in range.split_at_multiples(READ_BYTES_MAX) {
            let sectors = piece.align_outward(headpond_block::SECTOR_BYTES);
            let buffer = Buffer::zeroed(sectors.len() as usize);
            self.resting.until_idle().await;
            let reading = self.reading.begin();
            let outcome = self.device.submit(Request::read(sectors.start(), &buffer)).await;
            drop(reading);
            outcome?;
            let start = (piece.start() - sectors.start()) as usize;
            bytes.extend_from_slice(&buffer.to_vec()[start..start + piece.len() as usize]);
        }
        Ok(bytes)
    }
}

impl Learned {
    /// Checks that what was learned is forgotten in its turn; for tests and simulation.
    ///
    /// # Panics
    /// Where it is not.
    fn self_check(&self) {
        assert!(self.order.len() <= LEARNED_MAX, "so many blocks are known and no more");
        let in_order: BTreeSet<u64> = self.order.iter().copied().collect();
        assert!(self.blocks.is_subset(&in_order), "a block is never forgotten");
    }

    fn contains(&self, range: ByteRange) -> bool {
        range.len() <= LOOKED_AT_BYTES_MAX
            && !self.blocks.is_empty()
            && blocks_of(range).all(|block| self.blocks.contains(&block))
    }

    fn note(&mut self, range: ByteRange, is_metadata: bool) {
        if !is_metadata {
            if !self.blocks.is_empty() && range.len() <= LOOKED_AT_BYTES_MAX {
                for block in blocks_of(range) {
                    self.blocks.remove(&block);
                }
            }
            return;
        }
        for block in blocks_of(range) {
            if self.blocks.insert(block) {
                self.order.push_back(block);
            }
        }
        while self.order.len() > LEARNED_MAX {
            let oldest = self.order.pop_front().expect("more than none");
            self.blocks.remove(&oldest);
        }
    }
}

fn blocks_of(range: ByteRange) -> impl Iterator<Item = u64> {
    let outer = range.align_outward(BLOCK_BYTES);
    outer.start() / BLOCK_BYTES..outer.end() / BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_testkit::{Break, assert_trips};

    #[test]
    fn check_notices_blocks_that_are_never_forgotten() {
        let make = || {
            let mut learned = Learned::default();
            learned.note(ByteRange::at(0, 16 << 10), true);
            learned.note(ByteRange::at(4096, 4096), false);
            learned
        };
        let breaks: [Break<Learned>; 3] = [
            ("a block is never forgotten", |it| _ = it.order.pop_front()),
            ("a block is never forgotten", |it| _ = it.blocks.insert(99)),
            ("so many blocks are known", |it| it.order.extend(0..LEARNED_MAX as u64)),
        ];
        assert_trips(make, Learned::self_check, &breaks);
    }
}
