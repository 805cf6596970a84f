//! The kernel's side of these messages, for tests: devices, the descriptors that they were given,
//! and the kernel's refusals.
//!
//! **Not here**: block devices and requests; whoever runs it takes the descriptors.

use super::netlink::{GENERIC_BYTES, Writer, attribute, attributes, frame, frames, u32_at, u64_at};
use super::{CONTROLLER, ERROR, attr, command, controller, item};
use std::collections::BTreeMap;

/// The number of the family.
const FAMILY: u16 = 0x21;
/// By the minor numbers that they have.
const DEVICES_MAX: u32 = 1024;
/// Numbers of errors (`asm-generic/errno-base.h`).
const NO_ENTRY: i32 = 2;
const BUSY: i32 = 16;
const INVALID: i32 = 22;

/// The kernel's NBD client.
#[derive(Debug, Default)]
pub struct Twin {
    /// Whether its module is not loaded.
    pub is_missing: bool,
    /// Requests for another socket.
    pub reconfigured: u32,
    /// By index.
    pub devices: BTreeMap<u32, TwinDevice>,
}

/// A device that is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TwinDevice {
    pub size_bytes: u64,
    pub dead_conn_timeout_s: u64,
    pub backend: String,
    /// Its descriptor in the process that has asked; none, when the one that it had has ended.
    pub socket: Option<u32>,
    /// How many it has had.
    pub sockets: u32,
}

impl Twin {
    /// The datagram that answers a request.
    pub fn answer(&mut self, request: &[u8]) -> Vec<u8> {
        let Some(asked) = frames(request).next() else { return Vec::new() };
        let (command, rest) = match asked.body.split_at_checked(GENERIC_BYTES) {
            Some((generic, rest)) => (generic[0], rest),
            None => return error(asked.sequence, INVALID),
        };
        let mut told = Vec::new();
        let outcome = match (asked.kind, command) {
            (CONTROLLER, controller::GET_FAMILY) if self.is_missing => Err(NO_ENTRY),
            (CONTROLLER, controller::GET_FAMILY) => {
                let mut writer = Writer::default();
                writer.bytes(controller::FAMILY_ID, &FAMILY.to_ne_bytes());
                told = writer.message((CONTROLLER, 0, asked.sequence), controller::NEW_FAMILY);
                Ok(())
            }
            (FAMILY, command::STATUS) => {
                told = self.status(asked.sequence);
                Ok(())
            }
            (FAMILY, command::CONNECT) => self.connect(rest).map(|index| {
                let mut writer = Writer::default();
                writer.u32(attr::INDEX, index);
                told = writer.message((FAMILY, 0, asked.sequence), command::CONNECT);
            }),
            (FAMILY, command::RECONFIGURE) => self.reconfigure(rest),
            (FAMILY, command::DISCONNECT) => {
                let gone = index_in(rest).map(|index| self.devices.remove(&index));
                gone.flatten().map(drop).ok_or(INVALID)
            }
            _ => Err(INVALID),
        };
        [told, error(asked.sequence, outcome.err().unwrap_or(0))].concat()
    }

    fn status(&self, sequence: u32) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.nest(attr::DEVICE_LIST, |list| {
            // The module makes some when it is loaded.
            let most = self.devices.keys().next_back().map_or(2, |last| (last + 1).max(2));
            for index in 0..most {
                list.nest(item::DEVICE, |device| {
                    let connected = u8::from(self.devices.contains_key(&index));
                    device.u32(item::DEVICE_INDEX, index);
                    device.bytes(item::DEVICE_CONNECTED, &[connected]);
                });
            }
        });
        writer.message((FAMILY, 0, sequence), command::STATUS)
    }

    fn connect(&mut self, rest: &[u8]) -> Result<u32, i32> {
        let index = index_in(rest).filter(|index| *index < DEVICES_MAX).ok_or(INVALID)?;
        if self.devices.contains_key(&index) {
            return Err(BUSY);
        }
        let size_bytes = number(rest, attr::SIZE_BYTES).ok_or(INVALID)?;
        let device = TwinDevice {
            size_bytes,
            dead_conn_timeout_s: number(rest, attr::DEAD_CONN_TIMEOUT).unwrap_or_default(),
            backend: backend_in(rest),
            socket: Some(socket_in(rest).ok_or(INVALID)?),
            sockets: 1,
        };
        self.devices.insert(index, device);
        Ok(index)
    }

    fn reconfigure(&mut self, rest: &[u8]) -> Result<(), i32> {
        self.reconfigured += 1;
        let index = index_in(rest).ok_or(INVALID)?;
        let device = self.devices.get_mut(&index).ok_or(INVALID)?;
        if device.backend != backend_in(rest) {
            return Err(INVALID);
        }
        device.size_bytes = number(rest, attr::SIZE_BYTES).unwrap_or(device.size_bytes);
        // Where the old one has not ended, the kernel does nothing, and says that all is well.
        if device.socket.is_none() {
            device.socket = socket_in(rest);
            device.sockets += u32::from(device.socket.is_some());
        }
        Ok(())
    }
}

fn error(sequence: u32, errno: i32) -> Vec<u8> {
    frame((ERROR, 0, sequence), &(-errno).to_ne_bytes())
}

fn index_in(rest: &[u8]) -> Option<u32> {
    u32_at(attribute(rest, attr::INDEX)?, 0)
}

fn number(rest: &[u8], kind: u16) -> Option<u64> {
    u64_at(attribute(rest, kind)?, 0)
}

fn backend_in(rest: &[u8]) -> String {
    let text = attribute(rest, attr::BACKEND_IDENTIFIER).unwrap_or_default();
    String::from_utf8_lossy(text).trim_end_matches('\0').to_owned()
}

fn socket_in(rest: &[u8]) -> Option<u32> {
    let (_, socket) = attributes(attribute(rest, attr::SOCKETS)?).next()?;
    u32_at(attribute(socket, item::SOCKET_FD)?, 0)
}

#[cfg(test)]
mod tests {
    use super::super::{Answer, Device, Request};
    use super::*;
    use crate::codec::wire::TransmissionFlags;

    fn ask(twin: &mut Twin, request: &Request) -> Answer {
        let mut answer = Answer::default();
        answer.read(&twin.answer(&request.encode(FAMILY, 5)), FAMILY, 5);
        answer
    }

    #[test]
    fn a_device_is_made_once_and_gets_a_new_socket_when_its_own_has_ended() {
        let device = Device {
            index: 1,
            size_bytes: 1 << 20,
            block_bytes: 512,
            flags: TransmissionFlags::HAS_FLAGS,
            dead_conn_timeout_s: 600,
            backend: "ours".into(),
        };
        let mut twin = Twin::default();
        assert_eq!(ask(&mut twin, &Request::Family).family, Some(FAMILY));
        let connect = Request::Connect(device.clone(), vec![9]);
        let answer = ask(&mut twin, &connect);
        assert_eq!((answer.errno, answer.index), (Some(0), Some(1)));
        assert_eq!(ask(&mut twin, &connect).errno, Some(BUSY));
        assert_eq!(ask(&mut twin, &Request::Status).devices, [(0, false), (1, true)]);
        let again = |backend: &str| {
            Request::Reconfigure(Device { backend: backend.into(), ..device.clone() }, 10)
        };
        assert_eq!(ask(&mut twin, &again("ours")).errno, Some(0));
        assert_eq!(twin.devices[&1].socket, Some(9), "the first one has not ended");
        twin.devices.get_mut(&1).unwrap().socket = None;
        assert_eq!(ask(&mut twin, &again("another's")).errno, Some(INVALID));
        assert_eq!(ask(&mut twin, &again("ours")).errno, Some(0));
        assert_eq!((twin.devices[&1].socket, twin.devices[&1].sockets), (Some(10), 2));
        assert_eq!(ask(&mut twin, &Request::Disconnect { index: 1 }).errno, Some(0));
        assert_eq!(ask(&mut twin, &again("ours")).errno, Some(INVALID));
        assert_eq!(ask(&mut Twin { is_missing: true, ..twin }, &Request::Family).errno, Some(2));
    }
}
