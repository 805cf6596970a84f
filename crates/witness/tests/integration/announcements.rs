//! No write reaches the device before the witness has stored its announcement.

use crate::common::{LOAD, REGION, SIZE_BYTES, key};
use headpond_block::decorators::ProbeDevice;
use headpond_block::devices::RamDevice;
use headpond_block::{RequestKind, Stream};
use headpond_sim::net::{Link as Figures, connection};
use headpond_sim::run;
use headpond_witness::field::event::Event;
use headpond_witness::field::link::Link;
use headpond_witness::field::wire::{FromWitness, ToWitness, Welcome};
use headpond_witness::field::writer::Writer;
use std::rc::Rc;
use std::time::Duration;

#[test]
fn what_is_not_stored_is_not_written() {
    run(1, |runtime, sim| async move {
        let (client, witness) = connection(&runtime, &mut sim.random(), Figures::LOCAL);
        let accepting = runtime
            .spawn(async move { Link::accept(witness as Rc<dyn Stream>, &key(), [2; 32]).await });
        let link = Link::connect(client as Rc<dyn Stream>, &key(), [1; 32]).await.unwrap();
        let witness = accepting.await.unwrap();
        let ram = Rc::new(RamDevice::new("disk", SIZE_BYTES));
        let device = Rc::new(ProbeDevice::new(ram, runtime.clone()));
        let welcome = Welcome { seed: 7, next_sequence: 1, region: REGION };
        let writer = Writer::new(device.clone(), &runtime, Rc::new(link), LOAD, &welcome);
        let running = Rc::clone(&writer);
        drop(runtime.spawn(async move { running.run().await }));
        let ToWitness::Events(events) = witness.receive().await.unwrap() else { panic!("reports") };
        let is_announced = |event: &Event| matches!(event, Event::Announced { .. });
        assert!(events.len() >= LOAD.depth as usize && events.iter().all(is_announced));
        runtime.sleep(Duration::from_secs(5)).await;
        assert_eq!(device.recent(), [], "nothing was stored yet");
        witness.answer(&FromWitness::Stored { events: events.len() as u64 }).await.unwrap();
        runtime.sleep(Duration::from_secs(5)).await;
        let writes = device.recent();
        let is_write = |request: &&(RequestKind, _)| request.0 == RequestKind::Write;
        let count = writes.iter().filter(is_write).count();
        assert!((1..=events.len()).contains(&count), "{count} of {} announced", events.len());
    })
    .unwrap();
}
