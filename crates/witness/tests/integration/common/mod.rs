//! A witness and a machine that loses its power, in virtual time.

use headpond_block::{BlockDevice, Runtime, Stream};
use headpond_sim::net::{Link as Figures, SimListener, SimStream};
use headpond_sim::{Medium, OperationTime, Power, Random, Sim, SimDisk};
use headpond_witness::field::auth::{Key, NONCE_BYTES};
use headpond_witness::field::looker::look;
use headpond_witness::field::ruling::Ruling;
use headpond_witness::field::server::{Endless, Limits, Server, Surroundings};
use headpond_witness::field::session::{OpenError, open};
use headpond_witness::field::wire::{Hello, Pattern, Purpose, Region, Sync, WireLoad};
use headpond_witness::field::writer::{WriteError, Writer, WriterTotals};
use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

pub const SIZE_BYTES: u64 = 1 << 20;
pub const BLOCK: u64 = 4096;

pub fn key() -> Key {
    Key::new([7; 32])
}

pub const LOAD: WireLoad = WireLoad {
    pattern: Pattern::Random,
    sync: Sync::Flush,
    sync_every: 16,
    depth: 8,
    write_blocks: 1,
    seconds: None,
};

pub const REGION: Region = Region { start_bytes: 0, blocks: SIZE_BYTES / BLOCK, atom_bytes: 512 };

/// Virtual time of day, and chance from the seed.
pub struct Virtual {
    pub runtime: Runtime,
    pub random: RefCell<Random>,
}

impl Surroundings for Virtual {
    fn now_ms(&self) -> u64 {
        self.runtime.now().as_nanos() / 1_000_000
    }

    fn random(&self) -> [u8; NONCE_BYTES] {
        std::array::from_fn(|_| self.random.borrow_mut().number() as u8)
    }

    fn note(&self, _what: &str) {}
}

pub struct Rig {
    pub runtime: Runtime,
    pub sim: Sim,
    pub random: RefCell<Random>,
    listener: RefCell<SimListener>,
}

impl Rig {
    pub fn new(runtime: Runtime, sim: Sim, folder: &Path) -> Self {
        let random = RefCell::new(sim.random());
        let listener = RefCell::new(SimListener::new(&runtime, sim.random()));
        let rig = Self { runtime, sim, random, listener };
        rig.start_witness(folder, Limits::default());
        rig
    }

    /// A witness that knows what is in its folder; an earlier one hears nobody any more.
    pub fn start_witness(&self, folder: &Path, limits: Limits) {
        let listener = SimListener::new(&self.runtime, self.sim.random());
        self.listener.replace(listener.clone());
        let (runtime, random) = (self.runtime.clone(), RefCell::new(self.sim.random()));
        let surroundings = Box::new(Virtual { runtime, random });
        let (key, folder) = (key(), folder.to_owned());
        let server =
            Server::new(&self.runtime, key, folder, limits, surroundings, Box::new(Endless));
        drop(self.runtime.spawn(async move { server.serve(Rc::new(listener)).await }));
    }

    pub fn dial(&self) -> Rc<SimStream> {
        self.listener.borrow().connect(Figures::LOCAL)
    }

    pub fn nonce(&self) -> [u8; NONCE_BYTES] {
        std::array::from_fn(|_| self.random.borrow_mut().number() as u8)
    }

    pub fn hello(&self, purpose: Purpose) -> Hello {
        let (name, region) = ("disk".to_owned(), Some(REGION));
        Hello { name, purpose, region, device_bytes: SIZE_BYTES, boot: None }
    }

    pub async fn writer(
        &self,
        device: Rc<dyn BlockDevice>,
        load: WireLoad,
    ) -> Result<(Rc<Writer>, Rc<SimStream>), OpenError> {
        let (stream, hello) = (self.dial(), self.hello(Purpose::Write));
        let (nonce, shared) = (self.nonce(), Rc::clone(&stream) as Rc<dyn Stream>);
        let (link, welcome) = open(&self.runtime, shared, &key(), nonce, &hello).await?;
        Ok((Writer::new(device, &self.runtime, link, load, &welcome), stream))
    }

    /// Writes for some time, then ends in order.
    pub async fn write(
        &self,
        device: Rc<dyn BlockDevice>,
        load: WireLoad,
        time: Duration,
    ) -> Result<WriterTotals, WriteError> {
        let (writer, _stream) = self.writer(device, load).await.expect("a session");
        let ender = {
            let (writer, runtime) = (Rc::clone(&writer), self.runtime.clone());
            async move {
                runtime.sleep(time).await;
                writer.stop();
            }
        };
        drop(self.runtime.spawn(ender));
        writer.run().await
    }

    /// Writes until the power goes, some time later.
    pub async fn write_until_cut(&self, medium: &Rc<Medium>, load: WireLoad, time: Duration) {
        let power = Power::on();
        let (writer, stream) =
            self.writer(self.disk(medium, &power), load).await.expect("a session");
        let running = Rc::clone(&writer);
        drop(self.runtime.spawn(async move { running.run().await }));
        self.runtime.sleep(time).await;
        power.cut();
        stream.cut();
        medium.lose_power(&mut self.random.borrow_mut());
        // The witness notices.
        self.runtime.sleep(Duration::from_secs(1)).await;
    }

    pub fn disk(&self, medium: &Rc<Medium>, power: &Power) -> Rc<dyn BlockDevice> {
        let (medium, time) = (Rc::clone(medium), OperationTime::SOME);
        Rc::new(SimDisk::attach(medium, power, &self.runtime, &self.sim, time))
    }

    pub fn powered(&self, medium: &Rc<Medium>) -> Rc<dyn BlockDevice> {
        self.disk(medium, &Power::on())
    }

    pub async fn verify(&self, device: Rc<dyn BlockDevice>) -> Result<Ruling, OpenError> {
        let (stream, hello) = (self.dial(), self.hello(Purpose::Verify));
        let (link, welcome) = open(&self.runtime, stream, &key(), self.nonce(), &hello).await?;
        let ruling = look(&*device, &self.runtime, &link, &welcome, &|_| {}).await;
        Ok(ruling.expect("a ruling"))
    }

    /// Between some and twice as many milliseconds.
    pub fn some_ms(&self, ms: u64) -> Duration {
        Duration::from_millis(ms + self.random.borrow_mut().below(ms))
    }
}
