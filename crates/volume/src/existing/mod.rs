//! An existing device as the member of an array, without a byte of ours on it.
//!
//! What a member has in front of its data (superblock, owner record, volume record) lies in a small
//! file instead, the head; behind it the device begins, unchanged. The array sees one member:
//!
//! ```text
//! head file    | superblock, records: 1 MiB | sampled blocks: 8 KiB |
//! existing device                           0 ................. end
//! the member   0 ...................... 1 MiB .............. 1 MiB + end
//! ```
//!
//! A device that carries no label of ours is mounted or written past us more easily than a member.
//! So the head has the checksums of some of its blocks ([`samples`]), which a start compares.
//!
//! **Invariants**
//! - Nothing is written to the device but the data of the array above.
//! - The checksum of a block counts only while nothing was written to that block through here
//!   since: that it does not count any more is stable before the write begins. So a start never
//!   takes our own writes for those of others, whatever a power cut leaves.
//!
//! **Not here**: finding the device again (the opener), what a changed one means for the cache
//! (`assembly/open`).

mod record;
mod samples;

pub use samples::ContentsChanged;

use crate::background::BackgroundRate;
use crate::description::CoreDescription;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceError, DeviceName, Geometry, Outcome, RemoteStorage,
    Request, RequestKind, Size, Submission,
};
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{Inspection, Level, Striping, inspect, journal_of};
use record::{COPIES, ExistingRecord, RECORD_BYTES};
use samples::Samples;
use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

/// Bytes of a head file.
pub const HEAD_BYTES: u64 = DATA_OFFSET_MIN + COPIES * RECORD_BYTES as u64;
/// Where a superblock of a member begins, of either copy.
const SUPERBLOCKS: [u64; 2] = [0, 64 << 10];
/// Sizes and addresses of the device are multiples of it.
pub const UNIT_BYTES: u64 = headpond_block::BLOCK_BYTES;

/// Longer strips gain nothing where there is one member.
const STRIP_MAX: u64 = 1 << 20;

/// How the name of one begins in a description.
const SCHEME: &str = "existing:";

impl CoreDescription {
    /// Whether it is a device with its own contents, which has no superblock.
    pub fn is_existing(&self) -> bool {
        self.members.first().is_some_and(|member| member.starts_with(SCHEME))
    }

    /// The core that is an existing device of so many bytes: an array of one member, whose strips
    /// follow each other and leave nothing of the device over.
    pub fn on_existing(member: String, bytes: u64) -> Self {
        let strip = 1 << bytes.trailing_zeros().min(STRIP_MAX.trailing_zeros());
        Self {
            raid: Level::Raid0,
            groups: 1,
            strip: Size(UNIT_BYTES.max(strip)),
            intent: true,
            integrity: false,
            members: vec![member],
            spares: Vec::new(),
            declustered: None,
            striping: Striping::Plain,
            background: BackgroundRate::default(),
            journal: None,
        }
    }
}

/// A device with its head, as a member.
pub struct ExistingDevice {
    head: Rc<dyn BlockDevice>,
    body: Rc<dyn BlockDevice>,
    geometry: Geometry,
    samples: Samples,
    /// Something was written to the head that is not stable.
    has_unflushed_head: Cell<bool>,
}

/// Why a device cannot be used as it is.
#[derive(Debug, thiserror::Error)]
pub enum ExistingError {
    #[error(
        "{device}: has {size_bytes} bytes, which is no multiple of 4 KiB: its last bytes could not \
         be served; use a device or partition of another size"
    )]
    Size { device: DeviceName, size_bytes: u64 },
    #[error(
        "{device}: has {size_bytes} bytes now, and {expected_bytes} when it was taken: it shrank"
    )]
    Shrank { device: DeviceName, size_bytes: u64, expected_bytes: u64 },
    #[error(
        "{head}: is not the head of an existing device, or is damaged: if it is lost, `headpond \
         import` makes a new one"
    )]
    Head { head: DeviceName },
    #[error("{head}: was written by a newer version of Headpond ({version})")]
    Newer { head: DeviceName, version: u32 },
    #[error(
        "{device}: is {what}, not a device with contents of its own; use another one, or clear it with \
         `headpond label clear`"
    )]
    Labelled { device: DeviceName, what: String },
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl ExistingDevice {
    /// Takes a device as it is: it is only read. `identity`: what the opener finds it again by.
    ///
    /// # Errors
    /// Where it is a member or cache already, or its size does not fit.
    pub async fn take(
        head: Rc<dyn BlockDevice>,
        body: Rc<dyn BlockDevice>,
        identity: &str,
    ) -> Result<Rc<Self>, ExistingError> {
        let (device, size_bytes) = (body.name().clone(), body.size_bytes());
        if !size_bytes.is_multiple_of(UNIT_BYTES) {
            return Err(ExistingError::Size { device, size_bytes });
        }
        refuse_labelled(&*body).await?;
        let record = ExistingRecord::of(size_bytes, identity);
        // A head that was used before says nothing of this device.
        let nothing = Buffer::zeroed(DATA_OFFSET_MIN as usize);
        head.write(0, &nothing).await?;
        let taken = Self::of(head, body, record);
        taken.accept().await?;
        Ok(Rc::new(taken))
    }

    /// Opens one that was taken; with what differs from its head, if anything does.
    ///
    /// # Errors
    /// Where the head says nothing, or the device is too small for it.
    pub async fn open(
        head: Rc<dyn BlockDevice>,
        body: Rc<dyn BlockDevice>,
    ) -> Result<(Rc<Self>, Option<ContentsChanged>), ExistingError> {
        let record = record::load(&*head).await?;
        let (size_bytes, expected_bytes) = (body.size_bytes(), record.size_bytes);
        if size_bytes < expected_bytes {
            let device = body.name().clone();
            return Err(ExistingError::Shrank { device, size_bytes, expected_bytes });
        }
        let opened = Self::of(head, body, record);
        let changed = opened.samples.compare(&*opened.body).await?;
        Ok((Rc::new(opened), changed))
    }

    /// What a head says of how its device is found again.
    ///
    /// # Errors
    /// Where the head says nothing.
    pub async fn identity_in(head: &dyn BlockDevice) -> Result<String, ExistingError> {
        Ok(record::load(head).await?.identity)
    }

    fn of(head: Rc<dyn BlockDevice>, body: Rc<dyn BlockDevice>, record: ExistingRecord) -> Self {
        let geometry =
            Geometry { size_bytes: DATA_OFFSET_MIN + record.size_bytes, ..body.geometry().clone() };
        let stability = geometry.stability.worst(head.geometry().stability);
        let geometry = Geometry { stability, ..geometry };
        let (samples, unflushed) = (Samples::new(record), Cell::new(false));
        Self { head, body, geometry, samples, has_unflushed_head: unflushed }
    }

    /// Takes the contents for the right ones, whatever they were before.
    ///
    /// # Errors
    /// Those of the devices.
    pub async fn accept(&self) -> Outcome {
        self.samples.forget_all();
        self.samples.refresh(&*self.head, &*self.body).await
    }

    /// Checks that it is as its head says; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        self.samples.self_check();
        let bytes = self.samples.size_bytes();
        assert!(bytes <= self.body.size_bytes(), "the device has all that is served");
        assert_eq!(self.geometry.size_bytes, DATA_OFFSET_MIN + bytes, "head and device, no more");
    }

    async fn submit_to_head(&self, request: Request) -> Outcome {
        if !request.is_mutation() {
            return self.head.submit(request).await;
        }
        // Starts, stops and errors are recorded there: seldom, and after a stop's last flush.
        if SUPERBLOCKS.contains(&request.range.start()) {
            self.samples.refresh(&*self.head, &*self.body).await?;
        }
        self.has_unflushed_head.set(true);
        self.head.submit(request).await
    }

    async fn submit_over_border(&self, request: Request) -> Outcome {
        let head = request.range.intersect(ByteRange::at(0, DATA_OFFSET_MIN));
        let body = ByteRange::at(DATA_OFFSET_MIN, request.range.end() - DATA_OFFSET_MIN);
        self.submit(request.part(head, head.start())).await?;
        self.submit(request.part(body, body.start())).await
    }

    async fn flush(&self) -> Outcome {
        self.has_unflushed_head.set(false);
        let flushed = self.head.flush().await;
        if flushed.is_err() {
            self.has_unflushed_head.set(true);
        }
        flushed.and(self.body.flush().await)
    }

    async fn submit_sampled(&self, request: Request, touched: Range<usize>) -> Outcome {
        self.samples.begin_write(&*self.head, touched.clone()).await?;
        let outcome = self.body.submit(request).await;
        self.samples.end_write(touched);
        outcome
    }
}

/// Parts of volumes have no contents of their own.
async fn refuse_labelled(body: &dyn BlockDevice) -> Result<(), ExistingError> {
    let what = match inspect(body).await? {
        Inspection::Member(found) => format!("a member of array `{}`", found.array.name),
        _ if headpond_cache::load(body).await.is_ok() => "the cache of a volume".to_owned(),
        _ if journal_of(body).await?.is_some() => "the stripe journal of an array".to_owned(),
        _ => return Ok(()),
    };
    Err(ExistingError::Labelled { device: body.name().clone(), what })
}

impl BlockDevice for ExistingDevice {
    fn name(&self) -> &DeviceName {
        self.body.name()
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn remote(&self) -> Option<&dyn RemoteStorage> {
        self.body.remote()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if request.kind == RequestKind::Flush {
            return match self.has_unflushed_head.get() {
                true => Submission::pending(self.flush()),
                false => self.body.submit(request),
            };
        }
        if let Err(error) = request.check(self.name(), &self.geometry) {
            return Submission::ready(Err(error));
        }
        if request.range.end() <= DATA_OFFSET_MIN {
            return Submission::pending(self.submit_to_head(request));
        }
        if request.range.start() < DATA_OFFSET_MIN {
            return Submission::pending(self.submit_over_border(request));
        }
        let request = request.part(request.range, request.range.start() - DATA_OFFSET_MIN);
        if !request.is_mutation() {
            return self.body.submit(request);
        }
        match self.samples.touched_by(request.range) {
            touched if touched.is_empty() => self.body.submit(request),
            touched => Submission::pending(self.submit_sampled(request, touched)),
        }
    }
}
