//! What the default cleaner promises, on the modelled array of forty disks: at 100 % dirty it is as
//! fast as the array cleans in peace, and steady; and who writes meanwhile hardly notices.

use crate::machine::Machine;
use crate::stack::Stack;
use headpond_block::{Buffer, Request, Runtime};
use headpond_sim::{Random, run};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const BLOCK_BYTES: u64 = 4096;

const ARRAY: &str = "name = \"full\"\n[core]\nraid = 60\ngroups = 4\nstrip = \"64K\"\n\
                     drive = \"hdd-7k2-4t\"\ndrives = 40\n[cache]\n";

/// A machine and somebody who writes random blocks all over it.
struct Scene {
    machine: Machine,
    runtime: Runtime,
    random: RefCell<Random>,
    written: Cell<u64>,
    is_over: Cell<bool>,
}

impl Scene {
    fn run<T: 'static, F: Future<Output = T>>(
        cache: &str,
        course: impl FnOnce(Rc<Self>) -> F,
    ) -> T {
        let stack = Stack::parse(&format!("{ARRAY}{cache}")).unwrap();
        let parts = stack.parts().unwrap();
        run(1, |runtime, sim| async move {
            let machine = Machine::start(&stack, &parts, &runtime, &sim).await.unwrap();
            let (random, written) = (RefCell::new(sim.random()), Cell::new(0));
            let is_over = Cell::new(false);
            course(Rc::new(Self { machine, runtime, random, written, is_over })).await
        })
        .expect("it goes on")
    }

    fn dirty_blocks(&self) -> u64 {
        self.machine.volume.stats().slices[0].dirty_bytes / BLOCK_BYTES
    }

    async fn write(&self) {
        let blocks = self.machine.front.size_bytes() / BLOCK_BYTES;
        let block = self.random.borrow_mut().below(blocks);
        let data = Buffer::payload_free(BLOCK_BYTES as usize);
        self.machine.front.submit(Request::write(block * BLOCK_BYTES, data)).await.unwrap();
        self.written.set(self.written.get() + 1);
    }

    async fn fill(&self) {
        let stats = || self.machine.volume.stats().slices[0].clone();
        while stats().dirty_bytes + BLOCK_BYTES < stats().dirty_bytes_max {
            self.write().await;
        }
    }

    /// A closed loop of so many requests, until the scene is over.
    fn keep_writing(self: &Rc<Self>, depth: u32) {
        for _ in 0..depth {
            let scene = Rc::clone(self);
            drop(self.runtime.spawn(async move {
                while !scene.is_over.get() {
                    scene.write().await;
                }
            }));
        }
    }
}

/// Blocks a second that the array takes when a full cache is cleaned in peace.
fn offline(cache: &str) -> f64 {
    Scene::run(cache, |scene| async move {
        scene.fill().await;
        let (dirty, begun) = (scene.dirty_blocks(), scene.runtime.now());
        scene.machine.volume.clean_all().await.unwrap();
        assert_eq!(scene.dirty_blocks(), 0);
        dirty as f64 / scene.runtime.now().since(begun).as_secs_f64()
    })
}

/// Writes that were answered in each second, at 100 % dirty.
fn online(cache: &str, seconds: u32) -> Vec<f64> {
    Scene::run(cache, move |scene| async move {
        scene.fill().await;
        scene.keep_writing(32);
        scene.runtime.sleep(Duration::from_secs(20)).await;
        let mut windows = Vec::new();
        for _ in 0..seconds {
            let before = scene.written.get();
            scene.runtime.sleep(Duration::from_secs(1)).await;
            windows.push((scene.written.get() - before) as f64);
        }
        scene.is_over.set(true);
        windows
    })
}

#[test]
fn full_of_dirty_data_it_is_as_fast_as_in_peace_and_even() {
    let cache = "size = \"320M\"\n";
    let (offline, windows) = (offline(cache), online(cache, 40));
    let mean = windows.iter().sum::<f64>() / windows.len() as f64;
    eprintln!("offline {offline:.0}/s, online {mean:.0}/s, by second {windows:?}");
    assert!(mean > 0.9 * offline, "{mean:.0}/s of {offline:.0}/s");
    let is_even = |window: &f64| (0.9 * mean..1.1 * mean).contains(window);
    assert!(windows.iter().all(is_even), "{mean:.0}/s: {windows:?}");
}

/// The latency that 99 of a hundred writes keep, at 2,000 writes a second for ten seconds.
fn p99_of_writes(cleaning: &str, is_cleaning: bool) -> Duration {
    let cache = format!("size = \"2G\"\nmodel = \"nvme-dc-2t\"\ncleaning = {cleaning}\n");
    Scene::run(&cache, move |scene| async move {
        for _ in 0..100_000 {
            scene.write().await;
        }
        if is_cleaning {
            let cleaner = Rc::clone(&scene);
            let clean = async move { cleaner.machine.volume.clean_all().await.unwrap() };
            drop(scene.runtime.spawn(clean));
        }
        let latencies = Rc::new(RefCell::new(Vec::new()));
        for _ in 0..20_000 {
            scene.runtime.sleep(Duration::from_micros(500)).await;
            let (writer, latencies) = (Rc::clone(&scene), Rc::clone(&latencies));
            drop(scene.runtime.spawn(async move {
                let begun = writer.runtime.now();
                writer.write().await;
                latencies.borrow_mut().push(writer.runtime.now().since(begun));
            }));
        }
        assert_eq!(is_cleaning, scene.dirty_blocks() < 110_000, "{}", scene.dirty_blocks());
        let mut latencies = latencies.take();
        latencies.sort_unstable();
        latencies[latencies.len() * 99 / 100]
    })
}

#[test]
fn a_cleaner_at_full_speed_at_most_doubles_the_p99_of_writes() {
    let quiet = p99_of_writes("\"nop\"", false);
    let busy = p99_of_writes("\"stripe\"", true);
    eprintln!("p99 of writes: {quiet:?} without a cleaner, {busy:?} beside it");
    assert!(!quiet.is_zero() && busy <= quiet * 2, "{busy:?}, quiet {quiet:?}");
}
