//! Devices, options and errors of opening a volume.

mod cache;

pub(crate) use cache::{FoundCache, Wanted, is_memory};

use crate::assembly::cores::StripesDiffer;
use crate::assembly::ownership::{ClaimError, Claimant};
use crate::existing::{ContentsChanged, ExistingDevice};
use crate::notes::Note;
use headpond_block::{BlockDevice, BufferPool, DeviceName};
use headpond_cache::LoadProgress;
use headpond_raid::AssembleError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use uuid::Uuid;

/// The devices of a volume, opened by the caller.
#[derive(Default)]
pub struct Devices {
    pub tier: Option<Rc<dyn BlockDevice>>,
    pub cache: Option<Rc<dyn BlockDevice>>,
    /// Of a cache mirror, instead, in any order.
    pub copies: Vec<Rc<dyn BlockDevice>>,
    /// In any order.
    pub members: Vec<Rc<dyn BlockDevice>>,
    /// Stripe journals, in any order.
    pub journals: Vec<Rc<dyn BlockDevice>>,
    /// Why devices of the description are not among these.
    pub absent: Vec<Note>,
    /// Existing devices among the members that somebody else has written to.
    pub changed: Vec<ChangedDevice>,
}

/// An existing device, and what differs on it from when it was last in use here.
#[derive(Clone)]
pub struct ChangedDevice {
    pub device: Rc<ExistingDevice>,
    pub change: ContentsChanged,
}

impl Devices {
    /// The slots of all non-volatile devices.
    pub(crate) fn lasting_mut(&mut self) -> impl Iterator<Item = &mut Rc<dyn BlockDevice>> {
        let caches = self.cache.iter_mut().chain(&mut self.copies);
        caches.chain(&mut self.members).chain(&mut self.journals)
    }
}

/// Risks that the caller accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// None that could return wrong data.
    Careful,
    /// Discard suspect data: that which only suspect parity could reconstruct, and a cache that is
    /// missing or stale.
    Forced,
    /// The same, but trust suspect parity.
    ParityAccepted,
}

impl Tolerance {
    pub(crate) fn is_forced(self) -> bool {
        self != Self::Careful
    }
}

/// How to open a volume.
pub struct OpenOptions {
    pub tolerance: Tolerance,
    pub pool: BufferPool,
    /// Identity of a cache in memory, which every open creates: random, and never used before.
    pub new_cache: Uuid,
    /// Put between cache and array, to observe or delay requests there.
    pub around_core: Option<Decorator>,
    pub watch_load: Option<LoadWatch>,
    /// The owner, where other hosts may reach its devices; the description may disable this.
    pub claimant: Option<Claimant>,
}

/// Progress of loading the cache of a volume being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Loading {
    /// One after the other.
    pub slice: u16,
    pub slices: u16,
    /// Of this slice.
    #[serde(flatten)]
    pub progress: LoadProgress,
}

/// Receives the progress repeatedly.
pub type LoadWatch = Rc<dyn Fn(Loading)>;

/// Makes a device of a device.
pub type Decorator = Rc<dyn Fn(Rc<dyn BlockDevice>) -> Rc<dyn BlockDevice>>;

/// Why a volume cannot be opened. Only owner records were changed, unless it is a device error.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Owned(#[from] ClaimError),
    #[error(transparent)]
    Array(#[from] AssembleError),
    #[error(transparent)]
    Cache(#[from] headpond_cache::OpenError),
    #[error(
        "the volume's cache is missing ({reason}), and may have dirty data: reconnect it, or start \
         without it with --force"
    )]
    NoCacheDevice { reason: String },
    #[error("the cache mirror: {0}")]
    Copies(AssembleError),
    #[error("none of the array's devices can be used: {reason}")]
    NoMembers { reason: String },
    #[error("the I/O classes of {path} were not read")]
    Classes { path: String },
    #[error(
        "the volume has cache {cache}, which the description does not name, and which may have dirty \
         data: name its device under [cache], or start without it with --force"
    )]
    UnnamedCache { cache: Uuid },
    #[error("{device} is cache {found}, but the volume's cache is {expected}: attach that one")]
    OtherCache { device: DeviceName, expected: Uuid, found: Uuid },
    #[error(
        "the cache on {device} is an older image, or its device has lost flushed data: the volume was \
         served with a newer one since; attach that one, or start without it with --force"
    )]
    OlderCache { device: DeviceName },
    #[error(
        "the cache on {device} was made for other cores, or for these in another order: restore the \
         cores of the description, or start without it with --force"
    )]
    OtherCores { device: DeviceName },
    #[error(
        "{0}: what the cache has of it is out of date, and dirty data would overwrite what was \
         written; start without the cache with --force, which discards its dirty data"
    )]
    CoreWritten(ContentsChanged),
    #[error(transparent)]
    Stripes(#[from] StripesDiffer),
    #[error("the cache in memory cannot be created: {0}")]
    EmptyCache(#[from] headpond_cache::CreateError),
    #[error(
        "the cache has {found} slices, the description says {expected}: correct the description"
    )]
    Slices { expected: u16, found: usize },
}

impl OpenError {
    /// Whether it was refused to protect data, rather than for a failed device.
    pub fn is_refusal(&self) -> bool {
        !matches!(
            self,
            Self::Array(AssembleError::Device(_))
                | Self::Copies(AssembleError::Device(_))
                | Self::Cache(headpond_cache::OpenError::Device(_))
                | Self::EmptyCache(_)
        )
    }
}
