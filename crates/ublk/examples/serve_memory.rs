//! Serves memory as a block device until it is killed, for comparing with other targets, and prints
//! its node: `serve_memory MEBIBYTES [QUEUES [DEPTH [LONGEST]]]`.

use headpond_block::BlockDevice;
use headpond_block::devices::RamDevice;
use headpond_ublk::{Devices, Parameters, Service, Shape, serve};
use headpond_uring::ublk::Queue;
use headpond_uring::{RunConfig, run};
use std::error::Error;
use std::future::pending;
use std::rc::Rc;
use std::thread;

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Result<Vec<u64>, _> = std::env::args().skip(1).map(|it| it.parse()).collect();
    let numbers = numbers?;
    let number = |at: usize, default: u64| numbers.get(at).copied().unwrap_or(default);
    let defaults = Shape::default();
    let shape = Shape {
        queues: number(1, defaults.queues.into()) as u16,
        depth: number(2, defaults.depth.into()) as u16,
        io_bytes_max: number(3, defaults.io_bytes_max.into()) as u32,
        ..defaults
    };
    run(&RunConfig::default(), |ring, runtime| async move {
        let device = Rc::new(RamDevice::new("memory", number(0, 64) << 20));
        let parameters = Parameters::of(device.geometry(), &shape);
        let made = Devices::open()?.add(None, &shape, 0, &parameters)?;
        let file = Devices::character_device(made.number)?;
        let service = Rc::new(Service::default());
        for queue in 0..made.queues {
            let queue = Queue::open(&ring, file.try_clone()?, queue, made.depth)?;
            let device = Rc::clone(&device) as Rc<dyn BlockDevice>;
            serve(&runtime, queue, device, made.io_bytes_max, Rc::clone(&service));
        }
        // It ends when all queues ask for requests, which is done here.
        thread::spawn(move || match Devices::open().and_then(|mut it| it.start(made.number)) {
            Ok(()) => println!("/dev/ublkb{}", made.number),
            Err(error) => eprintln!("{error}"),
        });
        pending::<Result<(), Box<dyn Error>>>().await
    })?
}
