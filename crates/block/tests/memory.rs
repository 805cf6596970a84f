//! A program whose system gives no memory when a thread of it is told to find none. It is one test:
//! the reserve is the process's.

use headpond_block::memory::{MemoryState, ReservedMemory, has, set_aside, state};
use headpond_block::{BufferPool, PoolClass, PoolConfig};
use headpond_testkit::ScarceMemory;

const RESERVE: usize = 4 << 20;

#[global_allocator]
static MEMORY: ReservedMemory<ScarceMemory> = ReservedMemory::over(ScarceMemory);

fn used() -> u64 {
    state().reserve_used_bytes
}

#[test]
fn what_is_under_way_has_the_reserve_and_what_begins_is_told_that_there_is_none() {
    set_aside(RESERVE).unwrap();
    set_aside(2 * RESERVE).unwrap();
    let class = PoolClass { buffer_bytes: 4096, count: 1 };
    let pool = BufferPool::new(&PoolConfig { classes: vec![class] });
    let before = MemoryState { reserve_bytes: RESERVE as u64, ..MemoryState::default() };
    assert_eq!(state(), before);
    assert!(has(1 << 20) && !has(usize::MAX), "who wants much has to ask");
    let mut grown = vec![1u8; 1000];

    // Nothing is asserted while there is no memory: to tell of a panic takes much.
    ScarceMemory::at_most(0);
    // What cannot be done without comes from the reserve, whatever it is, and goes back there.
    let boxed = Box::new([7u64; 100]);
    let zeroed = vec![0u8; 1 << 20];
    let borrowed = pool.take(64 << 10);
    grown.resize(5000, 2);
    let taken = used();
    // What can wait does not.
    let had = [has(0), has(1), pool.try_take(8192).is_some()];
    let slot = pool.try_take(4096);
    let short = state();
    ScarceMemory::plenty();
    assert!(slot.is_some(), "memory of the pool is there");
    assert_eq!(had, [false; 3]);
    assert!(taken >= (1 << 20) + (64 << 10) + 800 + 5000, "{taken}");
    assert!(
        short.is_short && short.failures >= 5 && short.reserve_used_bytes == taken,
        "{short:?}"
    );
    assert!(zeroed.iter().chain(&borrowed.to_vec()).all(|byte| *byte == 0));
    assert_eq!((boxed[99], grown[999], grown[4999]), (7, 1, 2));

    // From the reserve to the system, and at other ends.
    grown.resize(50_000, 3);
    assert_eq!((grown[999], grown[4999], grown[49_999]), (1, 2, 3));
    drop((boxed, borrowed));
    assert!(used() < taken && used() >= 1 << 20);
    ScarceMemory::at_most(1 << 20);
    assert!(has(1), "half of the reserve is enough, and what there is");
    ScarceMemory::at_most(0);
    let second = vec![0u8; 3 << 19];
    ScarceMemory::at_most(1 << 20);
    let had = has(1);
    ScarceMemory::plenty();
    assert!(!had, "more than half of it is in use, and there is not plenty");
    assert!(has(1) && !state().is_short, "with plenty it may stay in use");
    std::thread::spawn(move || drop((zeroed, second))).join().unwrap();
    assert_eq!(used(), 0);
    assert_eq!(state().reserve_bytes, RESERVE as u64);
    assert!(state().reserve_used_bytes_max >= (1 << 20) + (3 << 19));
}
