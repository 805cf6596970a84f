//! What a volume is opened from and how, and why it is not.

mod cache;

pub(crate) use cache::{Found, Wanted, is_memory};

use crate::assembly::cores::StripesDiffer;
use crate::assembly::ownership::{ClaimError, Claimant};
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
    /// Of a cache that has several, instead, in any order.
    pub copies: Vec<Rc<dyn BlockDevice>>,
    /// In any order.
    pub members: Vec<Rc<dyn BlockDevice>>,
    /// Stripe journals, in any order.
    pub journals: Vec<Rc<dyn BlockDevice>>,
    /// Why devices of the description are not among these.
    pub absent: Vec<Note>,
}

impl Devices {
    /// The places of all that may hold something when the volume is opened.
    pub(crate) fn lasting_mut(&mut self) -> impl Iterator<Item = &mut Rc<dyn BlockDevice>> {
        let caches = self.cache.iter_mut().chain(&mut self.copies);
        caches.chain(&mut self.members).chain(&mut self.journals)
    }
}

/// What the caller agrees to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// Nothing that could return wrong data.
    Careful,
    /// Give up what may be wrong: data that only parity tells which may be torn, and a cache that
    /// is lost or out of date.
    Forced,
    /// The same, and take for right what parity tells that may be torn.
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
    /// Identity of a cache in memory, which is made anew by every open: random, and never used
    /// before.
    pub new_cache: Uuid,
    /// Put between cache and array, by those who watch or slow down what passes there.
    pub around_core: Option<Decorator>,
    pub watch_load: Option<LoadWatch>,
    /// Who opens it, where other hosts may reach its devices; the description has the last word.
    pub claimant: Option<Claimant>,
}

/// How far the cache of a volume has come that is being opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Loading {
    /// One after the other.
    pub slice: u16,
    pub slices: u16,
    /// Of this slice.
    #[serde(flatten)]
    pub progress: LoadProgress,
}

/// Is told again and again how far it is.
pub type LoadWatch = Rc<dyn Fn(Loading)>;

/// Makes a device of a device.
pub type Decorator = Rc<dyn Fn(Rc<dyn BlockDevice>) -> Rc<dyn BlockDevice>>;

/// Why a volume cannot be opened. Nothing was changed but owner records, unless the error is one of
/// a device.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Owned(#[from] ClaimError),
    #[error(transparent)]
    Array(#[from] AssembleError),
    #[error(transparent)]
    Cache(#[from] headpond_cache::OpenError),
    #[error(
        "the volume's cache is not there ({reason}), and it may hold data that nothing else has: bring \
         it back, or start with --force and do without"
    )]
    NoCacheDevice { reason: String },
    #[error("the copies of the cache: {0}")]
    Copies(AssembleError),
    #[error("none of the array's devices can be used: {reason}")]
    NoMembers { reason: String },
    #[error("the I/O classes of {path} were not read")]
    Classes { path: String },
    #[error(
        "the volume has cache {cache}, which the description does not name, and which may hold data \
         that nothing else has: name its device under [cache], or start with --force and do without"
    )]
    UnnamedCache { cache: Uuid },
    #[error("{device} is cache {found}, but the volume's cache is {expected}: attach that one")]
    OtherCache { device: DeviceName, expected: Uuid, found: Uuid },
    #[error(
        "the cache on {device} is an older image of itself, or its device has lost what it had flushed: \
         the volume was served with a newer one since; attach that one, or start with --force and do \
         without"
    )]
    OlderCache { device: DeviceName },
    #[error(
        "the cache on {device} was made for other cores, or for these in another order: put the cores \
         of the description back as they were, or start with --force and do without"
    )]
    OtherCores { device: DeviceName },
    #[error(transparent)]
    Stripes(#[from] StripesDiffer),
    #[error("the cache in memory cannot be set up: {0}")]
    EmptyCache(#[from] headpond_cache::CreateError),
    #[error(
        "the cache has {found} slices, the description says {expected}: correct the description"
    )]
    Slices { expected: u16, found: usize },
}

impl OpenError {
    /// Whether it was refused because the data could be wrong, or another's; not for a device that
    /// failed.
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
