//! The arrays of a volume, and what they record of the cache in front of them.
//!
//! Each records the cache as its owner, with a generation of its own. The cache records one: the
//! sum of theirs. None ever falls, so the sum is what it was only where each is what it was. Where
//! a core leaves, the first takes over what it adds to the sum.
//!
//! **Invariants**
//! - What the first core records decides whether the volume has a cache. It is written last where
//!   one is put in front, and first where one is taken away: whatever the others say, a cache that
//!   the first does not name lacks nothing that was promised, or was given up.
//! - An array that went on without the cache has raised its generation before.

mod backing;
mod places;
mod span;

use crate::ArraySettings;
use crate::assembly::open::Decorator;
use crate::background::BackgroundWork;
use crate::description::FIRST_CORE;
pub(crate) use backing::CoreBacking;
use headpond_block::{BLOCK_BYTES, BlockDevice, ByteRange, Outcome, Runtime};
use headpond_cache::{CoreBlock, CorePlace};
use headpond_raid::{Array, OwnerStopped};
pub use places::StripesDiffer;
pub(crate) use places::{Places, Shape};
use span::SpanDevice;
use std::rc::Rc;
use uuid::Uuid;

/// Where cores lie, and all of them as one device.
type Laid = (Places, Rc<dyn BlockDevice>, Option<Rc<SpanDevice>>);

/// One array at work.
pub(crate) struct Core {
    /// What rules call it.
    pub id: u16,
    /// What it is called within the volume; the first has the volume's name.
    pub name: String,
    pub array: Rc<Array>,
    /// Work on the array beside the requests.
    pub background: BackgroundWork,
}

/// All of them, in order of address.
pub(crate) struct Cores {
    pub runtime: Runtime,
    list: Vec<Rc<Core>>,
    pub places: Places,
    /// All of them, for whoever is led anew where they change.
    pub device: Rc<dyn BlockDevice>,
    /// The same for the caches.
    pub backing: Rc<CoreBacking>,
    /// The same without what was put around it, where there are several.
    span: Option<Rc<SpanDevice>>,
    /// Put around that.
    decorator: Option<Decorator>,
}

impl Core {
    pub fn new(id: u16, name: String, array: Array, runtime: &Runtime) -> Rc<Self> {
        let array = Rc::new(array);
        let background = BackgroundWork::new(&array, runtime);
        Rc::new(Self { id, name, array, background })
    }

    fn shape(&self) -> Shape {
        Shape::of(self.array.geometry())
    }
}

impl Cores {
    /// # Errors
    /// Where no cache can lie in front of these together.
    pub fn new(
        runtime: Runtime,
        list: Vec<Rc<Core>>,
        decorator: Option<Decorator>,
    ) -> Result<Self, StripesDiffer> {
        let (places, plain, span) = Self::lay(&list)?;
        let device = decorator.as_ref().map_or_else(|| plain.clone(), |put| put(plain.clone()));
        let arrays = list.iter().map(|core| Rc::clone(&core.array)).collect();
        let backing = Rc::new(CoreBacking::new(Rc::clone(&device), arrays));
        Ok(Self { runtime, list, places, device, backing, span, decorator })
    }

    /// Where they lie, and all of them as one device.
    fn lay(list: &[Rc<Core>]) -> Result<Laid, StripesDiffer> {
        let shapes: Vec<Shape> = list.iter().map(|core| core.shape()).collect();
        let places = Places::of(&shapes)?;
        let arrays = list.iter().map(|core| Rc::clone(&core.array) as Rc<dyn BlockDevice>);
        let mut arrays: Vec<_> = arrays.collect();
        let (plain, span): (Rc<dyn BlockDevice>, _) = match arrays.len() {
            1 => (arrays.remove(0), None),
            _ => {
                let span = Rc::new(SpanDevice::new(places.clone(), arrays));
                (Rc::clone(&span) as _, Some(span))
            }
        };
        Ok((places, plain, span))
    }

    /// The same cores with one more behind them.
    ///
    /// # Errors
    /// Where no cache can lie in front of these together.
    pub fn with(&self, core: Rc<Core>) -> Result<Self, StripesDiffer> {
        let list = self.list.iter().cloned().chain([core]).collect();
        Self::new(self.runtime.clone(), list, self.decorator.clone())
    }

    /// The same cores, one of them put together again. Caches are led there, and must be held.
    ///
    /// # Errors
    /// Where no cache can lie in front of these together.
    pub fn with_in_place(&self, again: Rc<Core>) -> Result<Self, StripesDiffer> {
        let pick = |core: &Rc<Core>| Rc::clone(if core.id == again.id { &again } else { core });
        let list = self.list.iter().map(pick).collect();
        let again = Self::new(self.runtime.clone(), list, self.decorator.clone())?;
        Ok(again.on_backing_of(self))
    }

    /// The same cores where they lie since one of them has grown.
    pub fn in_their_size(&self) -> Self {
        let (runtime, list) = (self.runtime.clone(), self.list.clone());
        let again = Self::new(runtime, list, self.decorator.clone());
        again.expect("the stripes are what they were").on_backing_of(self)
    }

    /// Checks the arrays, and where they lie; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        assert_eq!(self.list[0].id, FIRST_CORE, "the first core is the volume");
        assert_eq!(self.places.count(), self.list.len(), "each core has a place");
        assert_eq!(self.span.is_some(), !self.is_single(), "several cores lie side by side");
        for (at, (core, place)) in self.iter().enumerate() {
            let is_another = |other: &Rc<Core>| other.id != core.id && other.name != core.name;
            assert!(self.list[..at].iter().all(is_another), "two cores are called {}", core.id);
            assert!(place.len() <= core.shape().size_bytes, "a core has no more than its array");
            core.array.self_check();
            core.background.self_check(&core.array);
        }
        self.backing.self_check(&self.device, &self.arrays());
    }

    /// Whether each has the place that its size asks for.
    pub fn lie_in_their_size(&self) -> bool {
        self.iter().all(|(core, place)| core.shape().size_bytes == place.len())
    }

    /// Where there are several, their addresses may change, and no cache lies there.
    fn on_backing_of(self, before: &Self) -> Self {
        if !self.is_single() {
            return self;
        }
        before.backing.lead_to(Rc::clone(&self.device), self.arrays());
        Self { backing: Rc::clone(&before.backing), ..self }
    }

    /// Whether there is only the first one.
    pub fn is_single(&self) -> bool {
        self.list.len() == 1
    }

    /// The same cores but this one; the places of those behind it change.
    ///
    /// # Panics
    /// Where it is the first.
    pub fn without(&self, id: u16) -> Self {
        assert_ne!(self.list[0].id, id, "the first core is the volume");
        let list = self.list.iter().filter(|core| core.id != id).cloned().collect();
        let rest = Self::new(self.runtime.clone(), list, self.decorator.clone());
        rest.expect("fewer stripes have no larger multiple")
    }

    pub fn first(&self) -> &Core {
        &self.list[0]
    }

    /// Each core and where it lies.
    pub fn iter(&self) -> impl Iterator<Item = (&Rc<Core>, ByteRange)> {
        self.list.iter().enumerate().map(|(index, core)| (core, self.places.range_of(index)))
    }

    /// Where each begins, for whoever counts them one by one.
    pub fn counted_places(&self) -> Vec<CorePlace> {
        let place = |(core, range): (&Rc<Core>, ByteRange)| {
            let first = CoreBlock(range.start() / BLOCK_BYTES);
            CorePlace { core: core.id, first }
        };
        self.iter().map(place).collect()
    }

    /// Flushes that each core failed, in their order, where there are several.
    pub fn failed_flushes(&self) -> Vec<u64> {
        self.span.as_ref().map(|span| span.failed_flushes()).unwrap_or_default()
    }

    pub fn reset_failed_flushes(&self) {
        self.span.iter().for_each(|span| span.reset_failed_flushes());
    }

    /// What lies where, in order of address.
    pub fn arrangement(&self) -> Vec<(Uuid, Shape)> {
        self.list.iter().map(|core| (core.array.uuid(), core.shape())).collect()
    }

    /// How all arrays work from now on.
    pub fn configure(&self, settings: &ArraySettings) {
        self.list.iter().for_each(|core| settings.apply_to(&core.array));
    }

    pub fn arrays(&self) -> Vec<Rc<Array>> {
        self.list.iter().map(|core| Rc::clone(&core.array)).collect()
    }

    /// The parts of a range of addresses, on the arrays that they belong to.
    pub fn split(&self, range: ByteRange) -> impl Iterator<Item = (&Rc<Array>, ByteRange)> {
        self.places.split(range).map(|(core, part)| (&self.list[core].array, part))
    }

    /// What a cache lies on, for each slice.
    pub fn backings(&self, slices: u16) -> Vec<Rc<dyn BlockDevice>> {
        vec![Rc::clone(&self.backing) as Rc<dyn BlockDevice>; usize::from(slices)]
    }

    /// The devices of a volume without a cache, one for each slice.
    pub fn parts(&self, slices: u16) -> Vec<Rc<dyn BlockDevice>> {
        vec![Rc::clone(&self.device); usize::from(slices)]
    }

    /// What a cache has to have recorded.
    pub fn generation(&self) -> u64 {
        self.list.iter().map(|core| core.array.owner_generation()).sum()
    }

    /// Which arrays lie where.
    pub fn identity(&self) -> Uuid {
        identity(&self.arrangement())
    }

    /// Records the cache in front of all of them: what is written from now on may be in it alone.
    ///
    /// # Errors
    /// Where an array cannot record it; some may have. Nothing may be written through the cache.
    pub async fn own(&self, cache: Uuid) -> Outcome {
        for core in self.list.iter().rev() {
            core.array.set_owner(Some(cache)).await?;
        }
        Ok(())
    }

    /// Records how far the cache has lived.
    ///
    /// # Errors
    /// Where an array cannot record it.
    pub async fn note_life(&self, life: u64) -> Outcome {
        for core in &self.list {
            core.array.set_owner_life(life).await?;
        }
        Ok(())
    }

    /// Records that there is no cache, which then lacks what is written from now on.
    ///
    /// # Errors
    /// Where the first cannot record it: then the cache is what it was. What another one cannot
    /// record is made good by the next open.
    pub async fn disown(&self) -> Outcome {
        let forget = async || {
            self.first().array.set_owner(None).await?;
            for core in &self.list[1..] {
                let _ = core.array.set_owner(None).await;
            }
            Ok(())
        };
        self.backing.disown_with(forget).await
    }

    /// A cache that comes back later has missed what happens from here on.
    ///
    /// # Errors
    /// Where an array cannot record it.
    pub async fn do_without(&self) -> Outcome {
        for core in &self.list {
            match core.array.owner() {
                Some(_) => core.array.set_owner(None).await?,
                None => core.array.raise_owner_generation(1).await?,
            }
        }
        Ok(())
    }

    /// # Errors
    /// The first; the others are stopped all the same.
    pub async fn stop(&self, owner: OwnerStopped) -> Outcome {
        let mut outcome = Ok(());
        for core in &self.list {
            outcome = outcome.and(core.array.stop_after(owner).await);
        }
        outcome
    }

    /// Work on the arrays goes on beside the requests from now on.
    pub fn begin_background(&self) {
        for core in &self.list {
            core.background.begin();
        }
    }

    /// Ends it.
    pub async fn stop_background(&self) {
        for core in &self.list {
            core.background.stop().await;
        }
    }
}

/// Which arrays lie where: that of the array itself where there is one. A cache that was made in
/// front of other cores, or of the same in another order, has its blocks in other places.
///
/// Source: FNV-1a with 128 bits (Fowler, Noll, Vo), over words of 64 bits instead of bytes: it is
/// to tell arrangements apart, and nobody gains by finding two that are alike.
pub(crate) fn identity(cores: &[(Uuid, Shape)]) -> Uuid {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    if let [(only, _)] = cores {
        return *only;
    }
    let words = cores.iter().flat_map(|(uuid, shape)| {
        let (high, low) = uuid.as_u64_pair();
        [high, low, shape.size_bytes]
    });
    let mixed = words.fold(BASIS, |mixed, word| (mixed ^ u128::from(word)).wrapping_mul(PRIME));
    uuid::Builder::from_custom_bytes(mixed.to_be_bytes()).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Volume;
    use crate::volume::self_check::tests::lived;
    use headpond_block::Geometry;
    use headpond_block::decorators::ProbeDevice;
    use headpond_testkit::{Break, assert_trips};

    #[test]
    fn check_notices_cores_that_do_not_lie_where_they_should() {
        fn of(volume: &Volume, change: impl FnOnce(&mut Cores)) {
            let mut cores = volume.cores.borrow_mut();
            change(Rc::get_mut(&mut cores).expect("nobody else has them"));
        }
        let breaks: [Break<Volume>; 7] = [
            ("the first core is the volume", |it| of(it, |cores| cores.list.reverse())),
            ("each core has a place", |it| of(it, |cores| _ = cores.list.pop())),
            ("lie side by side", |it| of(it, |cores| cores.span = None)),
            ("two cores are called", |it| {
                of(it, |cores| cores.list[1] = Rc::clone(&cores.list[0]));
            }),
            ("no more than its array", |it| {
                let large = Shape::of(&Geometry::of_size(1 << 30));
                of(it, |cores| cores.places = Places::of(&[large, large]).expect("alike"));
            }),
            ("led to the cores that there are", |it| {
                let cores = it.cores();
                let around = ProbeDevice::new(Rc::clone(&cores.device), it.runtime.clone());
                cores.backing.lead_to(Rc::new(around), cores.arrays());
            }),
            ("recorded on the arrays", |it| {
                let cores = it.cores();
                cores.backing.lead_to(Rc::clone(&cores.device), Vec::new());
            }),
        ];
        assert_trips(lived, |it| it.cores().self_check(), &breaks);
    }

    #[test]
    fn another_arrangement_of_cores_is_another_core() {
        let [small, large] = [1 << 30, 2 << 30].map(|size| Shape::of(&Geometry::of_size(size)));
        let [a, b] = [1, 2].map(Uuid::from_u128);
        assert_eq!(identity(&[(a, small)]), a, "as it was before there were several");
        let all = [
            identity(&[(a, small), (b, small)]),
            identity(&[(b, small), (a, small)]),
            identity(&[(a, large), (b, small)]),
            identity(&[(a, small), (b, large)]),
            identity(&[(a, small)]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one));
        }
    }
}
