//! The server's exports: named devices.

use crate::codec::option_reply::BlockSizes;
use crate::codec::wire::{STRING_BYTES_MAX, TransmissionFlags};
use crate::export_info::{ExportInfo, find_export};
use crate::limits::PAYLOAD_BYTES_MAX;
use headpond_block::{BlockDevice, Geometry};
use std::cell::RefCell;
use std::rc::Rc;

/// Preferred block size where the protocol cannot express the device's own, in bytes.
const PREFERRED_BYTES: u32 = 4096;

/// One device under one name, with the size that it had when it was last offered.
pub struct Export {
    info: ExportInfo,
    device: Rc<dyn BlockDevice>,
}

impl Export {
    /// Offers `device` for reading and writing as `name`; the empty name is the default export.
    ///
    /// # Panics
    /// Where the name is longer than [`STRING_BYTES_MAX`].
    pub fn new(name: impl Into<String>, device: Rc<dyn BlockDevice>) -> Self {
        let name = name.into();
        assert!(name.len() <= STRING_BYTES_MAX, "export name of {} bytes", name.len());
        let geometry = device.geometry();
        let info = ExportInfo {
            name,
            description: String::new(),
            size_bytes: geometry.size_bytes,
            flags: flags_of(geometry),
            block_sizes: block_sizes_of(geometry),
        };
        Self { info, device }
    }

    /// As it was agreed on with a client, with its device on another thread.
    pub(super) fn elsewhere(info: ExportInfo, device: Rc<dyn BlockDevice>) -> Self {
        Self { info, device }
    }

    /// Adds a description, which `nbdinfo` shows.
    ///
    /// # Panics
    /// Where the text is longer than [`STRING_BYTES_MAX`].
    pub fn described(mut self, description: impl Into<String>) -> Self {
        self.info.description = description.into();
        assert!(self.info.description.len() <= STRING_BYTES_MAX, "description too long");
        self
    }

    /// Makes it read-only.
    pub fn read_only(mut self) -> Self {
        self.info.flags |= TransmissionFlags::READ_ONLY;
        self.info.flags -= TransmissionFlags::SEND_TRIM | TransmissionFlags::SEND_WRITE_ZEROES;
        self
    }

    /// The same export with the device's new size, where it has changed.
    fn resized(&self) -> Option<Self> {
        let size_bytes = self.device.size_bytes();
        let info = ExportInfo { size_bytes, ..self.info.clone() };
        (size_bytes != self.info.size_bytes).then(|| Self { info, device: Rc::clone(&self.device) })
    }

    pub fn info(&self) -> &ExportInfo {
        &self.info
    }

    pub fn device(&self) -> &Rc<dyn BlockDevice> {
        &self.device
    }
}

/// A FLUSH covers the writes of all connections, so multiple connections are safe
/// (`CAN_MULTI_CONN`).
fn flags_of(geometry: &Geometry) -> TransmissionFlags {
    let mut flags = TransmissionFlags::HAS_FLAGS
        | TransmissionFlags::SEND_FLUSH
        | TransmissionFlags::SEND_FUA
        | TransmissionFlags::SEND_TRIM
        | TransmissionFlags::SEND_WRITE_ZEROES
        | TransmissionFlags::SEND_CACHE
        | TransmissionFlags::CAN_MULTI_CONN;
    flags.set(TransmissionFlags::ROTATIONAL, geometry.rotational);
    flags
}

fn block_sizes_of(geometry: &Geometry) -> BlockSizes {
    let (minimum, maximum) = (geometry.logical_block_bytes, PAYLOAD_BYTES_MAX);
    let wished = geometry.preferred_bytes;
    let can_express = wished.is_power_of_two() && wished >= minimum.max(512) && wished <= maximum;
    let preferred = if can_express { wished } else { PREFERRED_BYTES.max(minimum) };
    BlockSizes { minimum, preferred, maximum }
}

/// The exports of a server, which can be added and removed while it serves.
///
/// A connected client keeps the size of its handshake, because the protocol cannot announce another
/// one; clients that connect after a device has grown get the new size.
#[derive(Default)]
pub struct Exports {
    list: RefCell<Vec<Rc<Export>>>,
}

/// An export with this name is already offered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an export named {0:?} exists already")]
pub struct NameTaken(pub String);

impl Exports {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an export for new connections.
    ///
    /// # Errors
    /// [`NameTaken`]; nothing was added.
    pub fn add(&self, export: Export) -> Result<(), NameTaken> {
        let name = &export.info.name;
        if self.list.borrow().iter().any(|other| other.info.name == *name) {
            return Err(NameTaken(name.clone()));
        }
        self.list.borrow_mut().push(Rc::new(export));
        Ok(())
    }

    /// Removes an export; its connections keep it. `None` where there was none.
    pub fn remove(&self, name: &str) -> Option<Rc<Export>> {
        let mut list = self.list.borrow_mut();
        let index = list.iter().position(|export| export.info.name == name)?;
        Some(list.remove(index))
    }

    /// Offers devices that have grown with their new size.
    fn follow_devices(&self) {
        for export in &mut *self.list.borrow_mut() {
            if let Some(resized) = export.resized() {
                *export = Rc::new(resized);
            }
        }
    }

    /// The export with exactly this name.
    pub fn get(&self, name: &str) -> Option<Rc<Export>> {
        self.list.borrow().iter().find(|export| export.info.name == name).cloned()
    }

    /// What a handshake announces.
    pub fn infos(&self) -> Vec<ExportInfo> {
        self.follow_devices();
        self.list.borrow().iter().map(|export| export.info.clone()).collect()
    }

    /// Every export that is offered.
    pub fn all(&self) -> Vec<Rc<Export>> {
        self.list.borrow().clone()
    }

    /// The export that a client means by `name`, which may be the default's empty name.
    pub fn find(&self, name: &str) -> Option<Rc<Export>> {
        let infos = self.infos();
        find_export(&infos, name).and_then(|info| self.get(&info.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::devices::RamDevice;
    use headpond_block::{ChangingGeometry, DeviceName, Request, Submission};

    fn ram(logical_block_bytes: u32, preferred_bytes: u32) -> Rc<dyn BlockDevice> {
        let mut geometry = Geometry::of_size(1 << 20);
        geometry.logical_block_bytes = logical_block_bytes;
        geometry.preferred_bytes = preferred_bytes;
        Rc::new(RamDevice::with_geometry("ram", geometry))
    }

    #[test]
    fn the_smallest_block_is_the_devices_logical_block() {
        let export = Export::new("a", ram(4096, 65_536));
        let sizes = BlockSizes { minimum: 4096, preferred: 65_536, maximum: 32 << 20 };
        assert_eq!(export.info().block_sizes, sizes);
    }

    #[test]
    fn a_preferred_size_that_the_protocol_forbids_is_replaced() {
        let export = Export::new("a", ram(512, 3 * 65_536));
        assert_eq!(export.info().block_sizes.preferred, 4096);
    }

    #[test]
    fn names_are_unique_and_exports_come_and_go() {
        let exports = Exports::new();
        exports.add(Export::new("a", ram(512, 4096))).unwrap();
        let again = exports.add(Export::new("a", ram(512, 4096)));
        assert_eq!(again, Err(NameTaken("a".into())));
        assert_eq!(exports.find("").unwrap().info().name, "a");
        assert!(exports.remove("a").is_some());
        assert!(exports.find("").is_none());
    }

    /// Memory that says it has more room when it is told to.
    struct Growing(ChangingGeometry, RamDevice);

    impl BlockDevice for Growing {
        fn name(&self) -> &DeviceName {
            self.1.name()
        }

        fn geometry(&self) -> &Geometry {
            self.0.now()
        }

        fn submit(&self, request: Request) -> Submission<'_> {
            self.1.submit(request)
        }
    }

    #[test]
    fn who_comes_after_a_device_has_grown_is_told_so_and_who_was_there_keeps_what_he_was_told() {
        let geometry = ChangingGeometry::new(Geometry::of_size(1 << 20));
        let device = Rc::new(Growing(geometry, RamDevice::new("ram", 2 << 20)));
        let exports = Exports::new();
        exports.add(Export::new("a", device.clone()).described("grows")).unwrap();
        let before = exports.find("a").unwrap();
        device.0.change(Geometry::of_size(2 << 20));
        assert_eq!(exports.infos()[0].size_bytes, 2 << 20);
        let after = exports.find("a").unwrap();
        assert_eq!((before.info().size_bytes, after.info().size_bytes), (1 << 20, 2 << 20));
        assert_eq!(after.info().description, "grows");
    }
}
