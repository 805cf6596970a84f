//! A cache device that was damaged, or forged, while nobody used it.
//!
//! Damage leaves every checksum as it is: what was promised is then read back or is an error, and
//! nothing older is ever read. Forgery makes the checksums right again: anything may be read, but
//! nothing may panic.

#![no_main]

use std::rc::Rc;
use std::sync::OnceLock;

use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, Buffer, DeviceName, Geometry, Request, Runtime, Stability, Submission,
};
use headpond_cache::{CreateOptions, Expected, Foundation, Slice, SliceConfig, create, load};
use headpond_fuzz::seal;
use headpond_sim::run;
use libfuzzer_sys::fuzz_target;
use uuid::Uuid;

const BLOCK_BYTES: u64 = 4096;
const BLOCKS: u64 = 64;
const CORE_BYTES: u64 = 1 << 20;
const CACHE_BYTES: u64 = 8 << 20;
const EXPECTED: Expected = Expected { volume: Uuid::from_u128(6), generation: 1 };
/// One change: the 64 KiB in which it lies, the place there, the value.
const CHANGE_BYTES: usize = 4;
/// The device in pieces of 64 KiB.
const PIECES: usize = 128;

/// A device that, unlike RAM, does not lend its memory: lent memory is not checked.
struct Disk(Rc<RamDevice>);

impl BlockDevice for Disk {
    fn name(&self) -> &DeviceName {
        self.0.name()
    }

    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        self.0.submit(request)
    }
}

/// Both devices after a clean stop, and after an unclean one in the middle of a second life.
struct Images {
    stopped: [Vec<u8>; 2],
    cut: [Vec<u8>; 2],
}

fuzz_target!(|data: &[u8]| {
    static IMAGES: OnceLock<Images> = OnceLock::new();
    let Some((&mode, changes)) = data.split_first() else { return };
    let images = IMAGES.get_or_init(Images::make);
    let (image, newest): (_, fn(u64) -> u8) = match mode & 1 {
        0 => (&images.stopped, |_| 1),
        _ => (&images.cut, |block| if block % 2 == 0 { 2 } else { 1 }),
    };
    let devices = [device("cache", &image[0]), device("core", &image[1])];
    let is_forged = mode & 2 != 0;
    change(&devices[0], changes, is_forged);
    run(1, |runtime, _| async move {
        let Some(slice) = open(&runtime, &devices).await else { return };
        for block in 0..BLOCKS {
            let buffer = Buffer::zeroed(BLOCK_BYTES as usize);
            let read = (&slice as &dyn BlockDevice).read(block * BLOCK_BYTES, buffer.clone()).await;
            if read.is_ok() && !is_forged {
                let expected = newest(block);
                assert!(buffer.to_vec().iter().all(|byte| *byte == expected), "block {block}");
            }
        }
        let _ = (&slice as &dyn BlockDevice).flush().await;
        let _ = slice.stop().await;
    })
    .expect("no deadlock");
});

impl Images {
    fn make() -> Images {
        let devices = [device("cache", &[]), device("core", &[])];
        run(1, |runtime, _| first_life(runtime, devices.clone())).expect("no deadlock");
        let stopped = devices.clone().map(|device| device.memory().to_vec());
        run(2, |runtime, _| second_life(runtime, devices.clone())).expect("no deadlock");
        Images { stopped, cut: devices.map(|device| device.memory().to_vec()) }
    }
}

async fn first_life(runtime: Runtime, devices: [Rc<RamDevice>; 2]) {
    let options = CreateOptions {
        cache: Uuid::from_u128(7),
        volume: EXPECTED.volume,
        core: Uuid::from_u128(8),
        core_bytes: CORE_BYTES,
        generation: EXPECTED.generation,
        slices: 1,
        line_bytes: 4096,
        device_bytes: None,
        unit_bytes: Some(4096),
    };
    create(&*devices[0], &options).await.expect("a cache that fits");
    let slice = open(&runtime, &devices).await.expect("a new cache opens");
    write(&slice, 1, 0..BLOCKS).await;
    slice.stop().await.expect("RAM does not fail");
}

async fn second_life(runtime: Runtime, devices: [Rc<RamDevice>; 2]) {
    let slice = open(&runtime, &devices).await.expect("a stopped cache opens");
    write(&slice, 2, (0..BLOCKS).step_by(2)).await;
    // Until an idle log is sealed, damage to its last records cannot be told from a torn write.
    runtime.sleep(10 * SliceConfig::default().seal_delay).await;
}

async fn write(slice: &Slice, version: u8, blocks: impl Iterator<Item = u64>) {
    let slice: &dyn BlockDevice = slice;
    for block in blocks {
        let data = Buffer::from_slice(&[version; BLOCK_BYTES as usize]);
        slice.write(block * BLOCK_BYTES, data).await.expect("RAM does not fail");
    }
    slice.flush().await.expect("RAM does not fail");
}

async fn open(runtime: &Runtime, devices: &[Rc<RamDevice>; 2]) -> Option<Slice> {
    let superblock = load(&*devices[0]).await.ok()?;
    let [cache, core] = devices.clone().map(|device| Rc::new(Disk(device)) as Rc<dyn BlockDevice>);
    let foundation = Foundation::new(runtime.clone(), cache, core);
    let config = SliceConfig::default();
    Slice::open(foundation, &superblock, EXPECTED, 0, config).await.ok().map(|(slice, _)| slice)
}

fn device(name: &str, image: &[u8]) -> Rc<RamDevice> {
    let size_bytes = if name == "cache" { CACHE_BYTES } else { CORE_BYTES };
    let geometry = Geometry { stability: Stability::Flushable, ..Geometry::of_size(size_bytes) };
    let device = RamDevice::with_geometry(name, geometry);
    device.memory().slice(0..image.len()).copy_from(image);
    Rc::new(device)
}

fn change(device: &RamDevice, changes: &[u8], is_forged: bool) {
    for change in changes.chunks_exact(CHANGE_BYTES) {
        let piece = usize::from(change[0]) % PIECES * (64 << 10);
        let at = piece + usize::from(u16::from_le_bytes([change[1], change[2]]));
        device.memory().slice(at..at + 1).copy_from(&change[3..]);
        if is_forged {
            forge(&device.memory().slice(at / 4096 * 4096..at / 4096 * 4096 + 4096));
        }
    }
}

/// Makes the checksum of the structure that begins at `place` right.
fn forge(place: &Buffer) {
    let mut bytes = place.to_vec();
    let len = match &bytes[..8] {
        b"HPCACHE\0" | b"HPSLICE\0" => bytes.len(),
        b"HPRECORD" => u32::from_le_bytes(bytes[72..76].try_into().expect("four bytes")) as usize,
        _ => return,
    };
    if (12..=bytes.len()).contains(&len) {
        seal(&mut bytes, 8, 12..len);
        place.copy_from(&bytes);
    }
}
