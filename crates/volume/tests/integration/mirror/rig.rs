//! The devices of a volume whose cache has copies, and what the tests ask of it.

use crate::support::{CREATE, careful, description};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, DeviceError, Geometry, RequestKind, Runtime, Stability};
use headpond_cache::{CleaningConfig, CleaningPolicy, Mode};
use headpond_raid::superblock::RoleState;
use headpond_sim::run;
use headpond_volume::{
    CacheStatus, Description, Devices, MirrorDescription, OpenError, ReturningMember, Volume,
};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

pub const COPY_BYTES: u64 = 16 << 20;
pub const BLOCKS: u64 = 40;

/// The devices of a volume, which outlive its programs.
pub struct Rig {
    pub runtime: Runtime,
    pub description: Description,
    pub copies: Vec<(Rc<RamDevice>, FaultControl)>,
    pub members: Vec<Rc<RamDevice>>,
}

pub fn ram(name: &str, size_bytes: u64) -> Rc<RamDevice> {
    let geometry = Geometry { stability: Stability::Flushable, ..Geometry::of_size(size_bytes) };
    Rc::new(RamDevice::with_geometry(name, geometry))
}

pub fn mirrored(copies: &[&str]) -> Description {
    let mut description = description(Mode::WriteBack, 1);
    let cache = description.cache.as_mut().expect("it has a cache");
    cache.settings.cleaning = CleaningConfig { policy: CleaningPolicy::Nop, ..Default::default() };
    cache.device = copies[0].into();
    let copies = copies[1..].iter().map(|name| (*name).to_owned()).collect();
    let uuid = Uuid::from_u128(0xc0b1e5);
    cache.mirror = Some(MirrorDescription { uuid, copies, spares: Vec::new() });
    description
}

impl Rig {
    /// Two copies, one slice.
    pub async fn new(runtime: &Runtime) -> Self {
        Self::of(runtime, &["a", "b"], 1).await
    }

    pub async fn of(runtime: &Runtime, copies: &[&str], slices: u16) -> Self {
        let copy = |name: &&str| (ram(name, COPY_BYTES), FaultControl::default());
        let rig = Self {
            runtime: runtime.clone(),
            description: Description { slices, ..mirrored(copies) },
            copies: copies.iter().map(copy).collect(),
            members: ["m0", "m1", "m2"].map(|name| ram(name, 16 << 20)).into(),
        };
        let all: Vec<usize> = (0..copies.len()).collect();
        Volume::create(&rig.description, &rig.devices(&all), &CREATE).await.unwrap();
        rig
    }

    pub fn devices(&self, copies: &[usize]) -> Devices {
        let copy = |index: &usize| {
            let (ram, control) = &self.copies[*index];
            let (inner, control) = (Rc::clone(ram) as Rc<dyn BlockDevice>, control.clone());
            Rc::new(FaultDevice::new(inner, control, self.runtime.clone())) as Rc<_>
        };
        let members = self.members.iter().map(|member| Rc::clone(member) as Rc<_>);
        Devices {
            copies: copies.iter().map(copy).collect(),
            members: members.collect(),
            ..Devices::default()
        }
    }

    pub async fn try_open(&self, copies: &[usize]) -> Result<Volume, OpenError> {
        Volume::open(&self.runtime, &self.description, self.devices(copies), careful()).await
    }

    /// With these copies in place.
    pub async fn open(&self, copies: &[usize]) -> Volume {
        self.try_open(copies).await.unwrap_or_else(|error| panic!("it opens: {error}"))
    }

    pub fn image(&self, copy: usize) -> Vec<u8> {
        self.copies[copy].0.memory().to_vec()
    }

    pub fn put_back(&self, copy: usize, image: &[u8]) {
        self.copies[copy].0.memory().copy_from(image);
    }

    /// Flips a bit in every block of a copy that is full of `byte`.
    pub fn rot(&self, copy: usize, byte: u8) {
        let mut image = self.image(copy);
        let pages = image.chunks_exact_mut(4096).filter(|page| page.iter().all(|it| *it == byte));
        assert!(pages.map(|page| page[9] ^= 1).count() > 0, "it is there");
        self.put_back(copy, &image);
    }

    pub fn fail(&self, copy: usize, fault: Fault) {
        for kind in [RequestKind::Read, RequestKind::Write, RequestKind::Flush] {
            self.copies[copy].1.add(FaultRule::on(kind, fault.clone()));
        }
    }
}

pub async fn write(volume: &Volume, byte: u8) {
    let device: &dyn BlockDevice = volume;
    for block in 0..BLOCKS {
        device.write(block * 4096, Buffer::from_slice(&[byte; 4096])).await.unwrap();
    }
    device.flush().await.unwrap();
}

pub async fn byte_at(volume: &Volume, block: u64) -> Result<u8, DeviceError> {
    let buffer = Buffer::zeroed(4096);
    (volume as &dyn BlockDevice).read(block * 4096, &buffer).await?;
    let bytes = buffer.to_vec();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    Ok(bytes[0])
}

pub async fn expect(volume: &Volume, byte: u8) {
    volume.self_check();
    for block in 0..BLOCKS {
        assert_eq!(byte_at(volume, block).await.ok(), Some(byte), "block {block}");
    }
}

pub fn cache(volume: &Volume) -> CacheStatus {
    volume.status().cache.expect("it has a cache")
}

pub fn active(volume: &Volume) -> usize {
    let mirror = cache(volume).mirror.expect("it has copies");
    mirror.array.members.iter().filter(|member| member.state == RoleState::Active).count()
}

pub fn warns(volume: &Volume, text: &str) -> bool {
    volume.status().warnings.iter().any(|warning| warning.contains(text))
}

pub async fn until_whole(rig: &Rig, volume: &Volume) {
    for _ in 0..1000 {
        if active(volume) == rig.copies.len() {
            return;
        }
        rig.runtime.sleep(Duration::from_secs(1)).await;
    }
    panic!("the copy never becomes whole: {:?}", cache(volume).mirror);
}

pub fn simulate<F: Future<Output = ()>>(test: impl FnOnce(Runtime) -> F) {
    run(1, |runtime, _| test(runtime)).expect("no deadlock");
}

/// A copy that is to come back under its name.
pub fn returning(rig: &Rig, copy: usize) -> ReturningMember {
    let (device, uuid) =
        (rig.devices(&[copy]).copies.remove(0), Uuid::from_u128(77 + copy as u128));
    ReturningMember { word: device.name().to_string(), device, uuid }
}
