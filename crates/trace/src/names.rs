//! Names of the processes and devices that records refer to by number.
//!
//! Formats tell names while they are read, so a table grows with its reader and is complete at its
//! end.
//!
//! **Invariants**: device indices are dense, in the order of first sight; at most `PROCESSES_MAX`
//! names and `DEVICES_MAX` devices are kept, so that a hostile trace cannot grow the table without
//! bound.

use std::collections::HashMap;

use foldhash::fast::FixedState;

const PROCESSES_MAX: usize = 65_536;
const DEVICES_MAX: usize = 16_384;

/// Process names by id and device names by index.
#[derive(Clone, Debug, Default)]
pub struct Names {
    processes: HashMap<u32, String, FixedState>,
    issuers: HashMap<u32, u32, FixedState>,
    devices: Vec<String>,
    indices: HashMap<String, u16, FixedState>,
    numbers: HashMap<u32, String, FixedState>,
}

impl Names {
    /// The name of process `id`, where the trace told it.
    pub fn process(&self, id: u32) -> Option<&str> {
        self.processes.get(&id).map(String::as_str)
    }

    /// The name of the device with this index, where the trace told it.
    pub fn device(&self, index: u16) -> Option<&str> {
        self.devices.get(usize::from(index)).map(String::as_str)
    }

    /// All devices, in the order of their indices.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = &str> {
        self.devices.iter().map(String::as_str)
    }

    /// All processes that are named, in the order of their ids.
    pub fn processes(&self) -> Vec<(u32, &str)> {
        let mut all: Vec<_> =
            self.processes.iter().map(|(&id, name)| (id, name.as_str())).collect();
        all.sort_unstable();
        all
    }

    /// Notes that process `id` is called `name`.
    ///
    /// The kernel's io_uring workers are called `iou-wrk-N`, where N is the process they work for:
    /// what they issue is counted as N's.
    pub fn set_process(&mut self, id: u32, name: &str) {
        if self.processes.len() >= PROCESSES_MAX && !self.processes.contains_key(&id) {
            return;
        }
        if let Some(issuer) = name.strip_prefix("iou-wrk-").and_then(|n| n.parse().ok()) {
            self.issuers.insert(id, issuer);
        }
        self.processes.insert(id, name.to_owned());
    }

    /// The process on whose behalf `id` issues requests: itself, or the owner of an io_uring
    /// worker.
    pub fn issuer(&self, id: u32) -> u32 {
        if self.issuers.is_empty() {
            return id;
        }
        self.issuers.get(&id).copied().unwrap_or(id)
    }

    /// The index of the device called `name`, added when new; the last index when the table is
    /// full.
    pub fn device_index(&mut self, name: &str) -> u16 {
        if let Some(&known) = self.indices.get(name) {
            return known;
        }
        if self.devices.len() < DEVICES_MAX {
            self.indices.insert(name.to_owned(), self.devices.len() as u16);
            self.devices.push(name.to_owned());
        }
        (self.devices.len() - 1) as u16
    }

    /// Notes that the kernel's device `number` (`major << 20 | minor`) is called `name`.
    pub(crate) fn name_number(&mut self, number: u32, name: &str) {
        if self.numbers.len() < DEVICES_MAX {
            self.numbers.insert(number, name.to_owned());
        }
    }

    /// The index of the kernel's device `number`: by its name, or as `major,minor`.
    pub(crate) fn number_index(&mut self, number: u32) -> u16 {
        let name = match self.numbers.get(&number) {
            Some(name) => name.clone(),
            None => format!("{},{}", number >> 20, number & 0xf_ffff),
        };
        self.device_index(&name)
    }
}

const _: () = assert!(DEVICES_MAX <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_uring_worker_issues_for_its_owner() {
        let mut names = Names::default();
        names.set_process(165, "fio");
        names.set_process(166, "iou-wrk-165");
        assert_eq!(names.issuer(166), 165);
        assert_eq!(names.issuer(165), 165);
        assert_eq!(names.process(names.issuer(166)), Some("fio"));
    }

    #[test]
    fn devices_keep_their_index() {
        let mut names = Names::default();
        assert_eq!(names.device_index("254,0"), 0);
        assert_eq!(names.device_index("254,1"), 1);
        assert_eq!(names.device_index("254,0"), 0);
        assert_eq!(names.device(1), Some("254,1"));
        assert_eq!(names.device(2), None);
    }

    #[test]
    fn tables_stay_bounded() {
        let mut names = Names::default();
        for number in 0..(DEVICES_MAX as u32 + 10) {
            names.device_index(&number.to_string());
        }
        for id in 0..(PROCESSES_MAX as u32 + 10) {
            names.set_process(id, "x");
        }
        assert_eq!(names.devices().len(), DEVICES_MAX);
        assert_eq!(names.processes.len(), PROCESSES_MAX);
    }
}
