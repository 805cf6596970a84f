//! Clients on a thread of their own, as those of a daemon are: some lives have them.

use headpond_block::channel::{ChannelDevice, channel};
use headpond_block::{BlockDevice, DeviceName, Geometry, Request, Runtime, Submission};
use std::rc::Rc;

/// Requests under way at a time, fewer than clients may have.
const PLACES: usize = 8;

/// The executors of a life.
pub(crate) struct Threads {
    /// Of the volume.
    pub engine: Runtime,
    /// Of its clients, where that is another one.
    pub clients: Option<Runtime>,
}

/// A device that is used from another thread.
struct Crossed {
    device: Rc<ChannelDevice>,
    clients: Runtime,
}

impl Threads {
    /// The device as its clients see it.
    pub fn cross(&self, device: Rc<dyn BlockDevice>) -> Rc<dyn BlockDevice> {
        let Some(clients) = self.clients.clone() else { return device };
        let name = device.name().clone();
        let (client, end) = channel(device.geometry().clone(), PLACES);
        drop(self.engine.spawn(end.serve(self.engine.clone(), device)));
        let device = Rc::new(client.open(&clients, name));
        Rc::new(Crossed { device, clients })
    }
}

impl BlockDevice for Crossed {
    fn name(&self) -> &DeviceName {
        self.device.name()
    }

    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        let device: Rc<dyn BlockDevice> = self.device.clone();
        Submission::pending(self.clients.spawn(async move { device.submit(request).await }))
    }
}
