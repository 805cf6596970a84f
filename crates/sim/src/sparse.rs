//! Storage in memory that costs only what was written.

use headpond_block::{
    BlockDevice, Buffers, DeviceName, Geometry, Outcome, Request, RequestKind, Submission,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

const PAGE_BYTES: usize = 4096;

/// Bytes by address; what was never written reads as zeros, which cost nothing either.
#[derive(Clone, Debug, Default)]
pub(crate) struct SparseStore {
    pages: BTreeMap<u64, Box<[u8; PAGE_BYTES]>>,
}

impl SparseStore {
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) {
        for (page, start, piece) in pieces_mut(offset, into) {
            match self.pages.get(&page) {
                Some(bytes) => piece.copy_from_slice(&bytes[start..start + piece.len()]),
                None => piece.fill(0),
            }
        }
    }

    pub(crate) fn write(&mut self, offset: u64, from: &[u8]) {
        let mut done = 0;
        while done < from.len() {
            let at = offset + done as u64;
            let start = (at % PAGE_BYTES as u64) as usize;
            let len = (PAGE_BYTES - start).min(from.len() - done);
            let piece = &from[done..done + len];
            done += len;
            let page = self.pages.entry(at / PAGE_BYTES as u64);
            if matches!(page, Entry::Vacant(_)) && piece.iter().all(|byte| *byte == 0) {
                continue;
            }
            let page = page.or_insert_with(|| Box::new([0; PAGE_BYTES]));
            page[start..start + len].copy_from_slice(piece);
        }
    }

    /// Zeros the range; whole pages cost nothing any more.
    pub(crate) fn erase(&mut self, offset: u64, len: u64) {
        let (unit, end) = (PAGE_BYTES as u64, offset + len);
        let (first, last) = (offset.div_ceil(unit), end / unit);
        if first >= last {
            return self.write(offset, &vec![0; len as usize]);
        }
        self.write(offset, &vec![0; (first * unit - offset) as usize]);
        self.write(last * unit, &vec![0; (end - last * unit) as usize]);
        let mut behind = self.pages.split_off(&first);
        self.pages.append(&mut behind.split_off(&last));
    }

    /// Whether nothing was written there.
    fn is_empty_in(&self, offset: u64, len: u64) -> bool {
        let unit = PAGE_BYTES as u64;
        self.pages.range(offset / unit..(offset + len).div_ceil(unit)).next().is_none()
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }
}

/// The parts of `into` page by page: page number, offset in the page, bytes.
fn pieces_mut(offset: u64, into: &mut [u8]) -> impl Iterator<Item = (u64, usize, &mut [u8])> {
    let unit = PAGE_BYTES as u64;
    let (mut at, mut rest) = (offset, into);
    std::iter::from_fn(move || {
        let start = (at % unit) as usize;
        let len = (PAGE_BYTES - start).min(rest.len());
        let (piece, behind) = std::mem::take(&mut rest).split_at_mut(len);
        rest = behind;
        at += len as u64;
        (len > 0).then_some(((at - len as u64) / unit, start, piece))
    })
}

/// A device over sparse memory that answers at once. Buffers without payload leave no trace in it.
pub struct SparseDevice {
    name: DeviceName,
    geometry: Geometry,
    store: RefCell<SparseStore>,
    keeps: Cell<bool>,
}

impl SparseDevice {
    pub fn new(name: impl Into<DeviceName>, geometry: Geometry) -> Self {
        Self { name: name.into(), geometry, store: RefCell::default(), keeps: Cell::new(true) }
    }

    /// From now on what is written leaves no trace; what was written before can still be read. For
    /// machines that nobody will open again: the log of a cache describes itself for another life,
    /// and that would be most of what such a machine costs.
    pub fn keep_no_more(&self) {
        self.keeps.set(false);
    }

    /// Memory that the device takes up, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        (self.store.borrow().pages() * PAGE_BYTES) as u64
    }

    fn carry_out(&self, request: &Request) -> Outcome {
        request.check(&self.name, &self.geometry)?;
        if request.is_mutation() && !self.keeps.get() {
            return Ok(());
        }
        let (offset, len) = (request.range.start(), request.range.len());
        let mut store = self.store.borrow_mut();
        match request.kind {
            RequestKind::Read => read_into(&store, offset, &request.buffers),
            RequestKind::Write => write_from(&mut store, offset, &request.buffers),
            RequestKind::WriteZeroes | RequestKind::Discard => store.erase(offset, len),
            RequestKind::Flush => {}
        }
        Ok(())
    }
}

impl BlockDevice for SparseDevice {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        Submission::ready(self.carry_out(&request))
    }
}

/// Fills `buffers` from the store; those without payload stay so.
pub(crate) fn read_into(store: &SparseStore, offset: u64, buffers: &Buffers) {
    let mut at = offset;
    for buffer in buffers.iter() {
        if store.is_empty_in(at, buffer.len() as u64) {
            buffer.fill(0);
        } else if !buffer.is_payload_free() {
            let mut bytes = vec![0; buffer.len()];
            store.read(at, &mut bytes);
            buffer.copy_from(&bytes);
        }
        at += buffer.len() as u64;
    }
}

fn write_from(store: &mut SparseStore, offset: u64, buffers: &Buffers) {
    let mut at = offset;
    for buffer in buffers.iter() {
        if !buffer.is_payload_free() {
            store.write(at, &buffer.to_vec());
        }
        at += buffer.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_block::Buffer;
    use proptest::prelude::*;

    #[test]
    fn a_huge_device_costs_what_is_written() {
        let geometry = Geometry::of_size(1 << 50);
        let sparse = SparseDevice::new("sparse", geometry);
        let device: &dyn BlockDevice = &sparse;
        let written = device.write((1 << 50) - 4096, Buffer::from_slice(&[7; 4096])).now_or();
        assert!(matches!(written, Ok(Ok(()))));
        let unmoved = device.write(1 << 40, Buffer::payload_free(1 << 20)).now_or();
        assert!(matches!(unmoved, Ok(Ok(()))));
        assert_eq!(sparse.resident_bytes(), 4096);
    }

    #[test]
    fn a_device_that_keeps_no_more_remembers_what_it_kept() {
        let sparse = SparseDevice::new("sparse", Geometry::of_size(1 << 30));
        let device: &dyn BlockDevice = &sparse;
        let write = |offset, byte| {
            let written = device.write(offset, Buffer::from_slice(&[byte; 4096])).now_or();
            assert!(matches!(written, Ok(Ok(()))));
        };
        write(0, 5);
        sparse.keep_no_more();
        write(0, 6);
        write(8192, 7);
        let into = Buffer::from_slice(&[1; 12_288]);
        assert!(matches!(device.read(0, &into).now_or(), Ok(Ok(()))));
        let found = [0, 4096, 8192].map(|at| into.slice(at..at + 1).to_vec()[0]);
        assert_eq!((found, sparse.resident_bytes()), ([5, 0, 0], 4096));
    }

    proptest! {
        #[test]
        fn store_equals_a_plain_array(
            steps in prop::collection::vec((0u64..20_000, 1usize..9000, 0u8..4), 1..20),
        ) {
            let mut store = SparseStore::default();
            let mut twin = vec![0u8; 32_768];
            for (offset, len, byte) in steps {
                let range = offset as usize..offset as usize + len;
                match byte {
                    0 => store.erase(offset, len as u64),
                    byte => store.write(offset, &vec![byte; len]),
                }
                twin[range].fill(byte);
            }
            let mut read = vec![9; twin.len()];
            store.read(0, &mut read);
            prop_assert_eq!(read, twin);
        }
    }
}
