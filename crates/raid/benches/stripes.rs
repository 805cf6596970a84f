//! Full-stripe sequential writes on members of RAM, beside the same bytes, parity included, written
//! to the same members without an array.
//!
//! Both take turns, and each figure is the median of its rounds. Rates count what reaches the
//! members; memcpy between two areas as large as all members says what the memory allows. Parity
//! has to be computed somewhere: the limit is the time of those writes and of that alone.

use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, Buffer, Executor, Geometry, Order, Request, Runtime, VirtualClock,
};
use headpond_raid::parity;
use headpond_raid::{
    AssembleOptions, Contents, CreateOptions, Integrity, Intent, Level, Occupied, Striping,
    assemble, create,
};
use uuid::Uuid;

const STRIP_BYTES: usize = 64 << 10;
const MEMBER_BYTES: u64 = 32 << 20;
const ROUNDS: usize = 15;

fn main() {
    let executor = Executor::new(Box::new(VirtualClock::default()), Order::Fifo);
    executor.block_on(measure_all(&executor.runtime())).expect("nothing waits");
}

async fn measure_all(runtime: &Runtime) {
    for (level, count) in
        [(Level::Raid5, 4), (Level::Raid5, 9), (Level::Raid6, 6), (Level::Raid6, 10)]
    {
        for stripes in [1, 4] {
            measure(level, count, stripes, runtime).await;
        }
    }
}

async fn measure(level: Level, count: usize, stripes: usize, runtime: &Runtime) {
    let member = |index| -> Rc<dyn BlockDevice> {
        let name = format!("r{index}");
        Rc::new(RamDevice::with_geometry(name.as_str(), Geometry::of_size(MEMBER_BYTES)))
    };
    let members: Vec<_> = (0..count).map(member).collect();
    let options = CreateOptions {
        name: "bench".into(),
        uuid: Uuid::from_u128(1),
        level,
        groups: 1,
        declustered: None,
        striping: Striping::Plain,
        strip_bytes: STRIP_BYTES as u32,
        contents: Contents::Zeros,
        intent: Intent::None,
        integrity: Integrity::None,
        occupied: Occupied::Refuse,
        owner: None,
        journal: None,
    };
    create(&members, &options).await.expect("created");
    let how = AssembleOptions::default();
    let array = assemble(runtime, members.clone(), how).await.expect("assembled").array;
    let request_bytes = array.layout().stripe_bytes() as usize * stripes;
    let memory = Buffer::from_slice(&vec![0x5a; request_bytes]);
    let bytes = (MEMBER_BYTES - (2 << 20)) * count as u64;
    let copies = (Buffer::zeroed(bytes as usize), Buffer::zeroed(bytes as usize));
    let mut times = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        times[0].push(write_array(&array, &memory).await);
        times[1].push(write_members(&members, &memory, stripes).await);
        let start = Instant::now();
        copies.1.copy_from_buffer(black_box(&copies.0));
        times[2].push(start.elapsed().as_nanos() as f64 / bytes as f64);
        times[3].push(compute_parity(&array, &memory, stripes));
    }
    let [ours, plain, memcpy, parity] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        1.0 / times[ROUNDS / 2]
    });
    let limit = 1.0 / (1.0 / plain + 1.0 / parity);
    println!(
        "{level} of {count}, {:>4} KiB a write: {ours:>5.1} GB/s, {:.2} of {limit:.1}: {plain:.1} \
         plainly ({:.2}) and {parity:.1} for the parity; memcpy {memcpy:.1}",
        request_bytes >> 10,
        ours / limit,
        ours / plain,
    );
    let name = format!("{level} of {count} full stripes x{stripes}");
    println!(r#"{{"name":"{name}","unit":"GB/s","ours":{ours:.2},"limit":{limit:.2}}}"#);
}

/// Nanoseconds for each byte that reaches a member, parity included.
async fn write_array(array: &headpond_raid::Array, memory: &Buffer) -> f64 {
    let (layout, mut offset) = (array.layout(), 0);
    let share = layout.width() as f64 / layout.data_strips() as f64;
    let start = Instant::now();
    while offset + memory.len() as u64 <= layout.array_bytes() {
        array.submit(Request::write(offset, black_box(memory))).await.expect("written");
        offset += memory.len() as u64;
    }
    start.elapsed().as_nanos() as f64 / (offset as f64 * share)
}

/// The same writes to the members, without parity to compute; parity strips are written from the
/// same memory as well.
async fn write_members(members: &[Rc<dyn BlockDevice>], memory: &Buffer, stripes: usize) -> f64 {
    let (mut offset, mut bytes) = (1 << 20, 0);
    let len = STRIP_BYTES * stripes;
    let start = Instant::now();
    while offset + len as u64 <= MEMBER_BYTES {
        for (index, member) in members.iter().enumerate() {
            let from = index * len % (memory.len() - len + 1) / STRIP_BYTES * STRIP_BYTES;
            let part = memory.slice(from..from + len);
            member.submit(Request::write(offset, black_box(part))).await.expect("written");
        }
        offset += len as u64;
        bytes += len * members.len();
    }
    start.elapsed().as_nanos() as f64 / bytes as f64
}

/// The parity alone, of the same memory, over as many bytes as reach the members with it.
fn compute_parity(array: &headpond_raid::Array, memory: &Buffer, stripes: usize) -> f64 {
    let layout = array.layout();
    let strips = layout.data_strips();
    let turns = MEMBER_BYTES as usize / STRIP_BYTES / stripes;
    // SAFETY: nothing writes to the memory of requests that have been answered.
    let bytes = unsafe { memory.as_slice() };
    let (mut p, mut q) = (vec![1; STRIP_BYTES], vec![1; STRIP_BYTES]);
    let start = Instant::now();
    for _ in 0..turns {
        for stripe in bytes.chunks_exact(strips * STRIP_BYTES) {
            let data: Vec<&[u8]> = stripe.chunks_exact(STRIP_BYTES).map(black_box).collect();
            match layout.parity_strips() {
                1 => parity::sum(&mut p, &data),
                _ => parity::pq(&mut p, &mut q, &data.into_iter().map(Some).collect::<Vec<_>>()),
            }
            black_box((&p, &q));
        }
    }
    let written = turns * stripes * layout.width() * STRIP_BYTES;
    start.elapsed().as_nanos() as f64 / written as f64
}
