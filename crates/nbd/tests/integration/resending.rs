//! A client that needs no handshake and sends what was not answered to the next server: the
//! kernel's.

use crate::common::{SIZE_BYTES, Stage, on_both};
use crate::raw::RawClient;
use headpond_block::decorators::{Limits as ThrottleRates, ThrottleDevice};
use headpond_block::devices::RamDevice;
use headpond_block::sync::Receiver;
use headpond_block::{BlockDevice, Buffer, Runtime};
use headpond_nbd::codec::wire::Command;
use headpond_nbd::limits::Limits;
use headpond_nbd::server::handshake::Agreement;
use headpond_sim::Sim;
use headpond_sim::net::{Link, connection};
use std::rc::Rc;
use std::time::Duration;

const LATENCY: Duration = Duration::from_millis(10);

fn stage(runtime: &Runtime, sim: &Sim, limits: Limits) -> (Stage, Rc<dyn BlockDevice>) {
    let rates = ThrottleRates { latency: LATENCY, ..ThrottleRates::default() };
    let ram: Rc<dyn BlockDevice> = Rc::new(RamDevice::new("ram", SIZE_BYTES));
    let device = Rc::new(ThrottleDevice::new(ram.clone(), runtime.clone(), rates));
    (Stage::new(runtime.clone(), sim.clone(), device, limits), ram)
}

fn agreed(stage: &Stage) -> Option<(RawClient, Receiver<()>)> {
    let (client, server) = connection(&stage.runtime, &mut stage.sim.random(), Link::LOCAL);
    let terms = Agreement { export: String::new(), structured_replies: false, resends: true };
    let end = stage.server.serve_agreed(server, terms)?;
    Some((RawClient(client), end))
}

#[test]
fn it_is_served_at_once_and_its_end_waits_for_what_is_at_the_device() {
    on_both(1, |runtime, sim| async move {
        let (stage, ram) = stage(&runtime, &sim, Limits::default());
        let (raw, end) = agreed(&stage).unwrap();
        assert_eq!(raw.outcome(Command::Read, u64::MAX - 511, 512).await, 22);
        assert_eq!(raw.outcome(Command::Flush, 0, 0).await, 0);
        ram.write(0, Buffer::from_slice(&[7; 512])).await.unwrap();
        raw.ask(Command::WriteZeroes.to_wire(), 0, 512).await;
        runtime.sleep(LATENCY / 2).await;
        drop(raw);
        assert_eq!(end.await, Some(()));
        let read = Buffer::zeroed(512);
        ram.read(0, read.clone()).await.unwrap();
        assert_eq!(read.to_vec(), [0; 512], "written before the end was told");
        assert!(stage.server.report().connections.is_empty());
    });
}

#[test]
fn at_a_stop_new_requests_have_no_answer_and_are_not_done() {
    on_both(2, |runtime, sim| async move {
        let (stage, ram) = stage(&runtime, &sim, Limits::default());
        let (raw, _end) = agreed(&stage).unwrap();
        assert_eq!(raw.outcome(Command::Flush, 0, 0).await, 0);
        ram.write(0, Buffer::from_slice(&[7; 1024])).await.unwrap();
        raw.ask(Command::WriteZeroes.to_wire(), 0, 512).await;
        runtime.sleep(LATENCY / 2).await;
        let server = stage.server.clone();
        let stopping = runtime.spawn(async move { server.stop().await });
        runtime.sleep(LATENCY / 4).await;
        // With a payload, and without one.
        raw.ask(Command::Write.to_wire(), 512, 512).await;
        raw.send(&[9; 512]).await;
        raw.ask(Command::Flush.to_wire(), 0, 0).await;
        assert_eq!(raw.error().await, 0, "of the one that was at the device");
        assert!(raw.is_cut_off().await, "the others have no answer, not even an error");
        stopping.await.unwrap();
        let read = Buffer::zeroed(1024);
        ram.read(0, read.clone()).await.unwrap();
        assert_eq!(read.to_vec(), [[0; 512], [7; 512]].concat());
        assert!(agreed(&stage).is_none(), "it serves nobody any more");
    });
}

#[test]
fn without_a_place_it_is_not_served() {
    on_both(3, |runtime, sim| async move {
        let limits = Limits { connections_max: 1, ..Limits::default() };
        let (stage, _) = stage(&runtime, &sim, limits);
        let (raw, _end) = agreed(&stage).unwrap();
        assert_eq!(raw.outcome(Command::Flush, 0, 0).await, 0);
        assert!(agreed(&stage).is_none());
        assert_eq!(raw.outcome(Command::Flush, 0, 0).await, 0);
    });
}
