//! The kernel's NBD client by its messages: what makes a connected socket the device `/dev/nbdN`.
//!
//! 1. [`Request::Family`] asks for the number of the family `nbd`, which the kernel has while the
//!    module is loaded.
//! 2. [`Request::Connect`] hands the kernel a socket whose handshake is over. From then on it sends
//!    requests, each until it is answered: those of a socket that has ended wait, for as long as
//!    [`Device::dead_conn_timeout_s`], for [`Request::Reconfigure`] with another one.
//! 3. [`Request::Disconnect`] ends the device; requests that have no answer fail.
//!
//! **Not here**: the netlink socket, which is the daemon's, and who attaches what.
//!
//! **Source**: linux `include/uapi/linux/nbd-netlink.h` for the numbers, and `drivers/block/nbd.c`
//! for what the kernel does (6.12).

mod netlink;
pub mod twin;

use crate::codec::wire::TransmissionFlags;
use netlink::{GENERIC_BYTES, Writer, attribute, attributes, frames, u16_at, u32_at};

/// `NLMSG_ERROR`, also of success.
const ERROR: u16 = 2;
/// `GENL_ID_CTRL`: who knows the numbers of families.
const CONTROLLER: u16 = 0x10;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const FLAGS: u16 = 0x1 | 0x4;
const FAMILY: &str = "nbd";
/// `NBD_GENL_VERSION`, and that of the controller's questions.
const VERSION: u8 = 1;

/// Commands and attributes of the controller.
mod controller {
    pub const GET_FAMILY: u8 = 3;
    pub const NEW_FAMILY: u8 = 1;
    pub const FAMILY_ID: u16 = 1;
    pub const FAMILY_NAME: u16 = 2;
}

/// `NBD_CMD_*`.
mod command {
    pub const CONNECT: u8 = 1;
    pub const DISCONNECT: u8 = 2;
    pub const RECONFIGURE: u8 = 3;
    pub const STATUS: u8 = 5;
}

/// `NBD_ATTR_*`.
mod attr {
    pub const INDEX: u16 = 1;
    pub const SIZE_BYTES: u16 = 2;
    pub const BLOCK_SIZE_BYTES: u16 = 3;
    pub const TIMEOUT: u16 = 4;
    pub const SERVER_FLAGS: u16 = 5;
    pub const SOCKETS: u16 = 7;
    pub const DEAD_CONN_TIMEOUT: u16 = 8;
    pub const DEVICE_LIST: u16 = 9;
    pub const BACKEND_IDENTIFIER: u16 = 10;
}

/// `NBD_SOCK_*` and `NBD_DEVICE_*`.
mod item {
    pub const SOCKET: u16 = 1;
    pub const SOCKET_FD: u16 = 1;
    pub const DEVICE: u16 = 1;
    pub const DEVICE_INDEX: u16 = 1;
    pub const DEVICE_CONNECTED: u16 = 2;
}

/// A device as the kernel is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The N of `/dev/nbdN`.
    pub index: u32,
    pub size_bytes: u64,
    pub block_bytes: u32,
    pub flags: TransmissionFlags,
    /// How long requests wait for a new socket when the last one has ended, in seconds. 0: they
    /// fail at once.
    pub dead_conn_timeout_s: u64,
    /// Whose device it is; the kernel refuses a change by others, which do not know it.
    pub backend: String,
}

/// What the kernel is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Family,
    /// Makes a device, of these descriptors.
    Connect(Device, Vec<i32>),
    /// Gives it another socket in the place of one that has ended. Where none has, the kernel says
    /// yes and closes it.
    Reconfigure(Device, i32),
    Disconnect {
        index: u32,
    },
    /// Which devices there are.
    Status,
}

/// What the kernel has answered.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// How it ended, when it has: 0, or the number of an error.
    pub errno: Option<i32>,
    pub family: Option<u16>,
    /// Of the device that was connected.
    pub index: Option<u32>,
    /// Each device, and whether somebody uses it.
    pub devices: Vec<(u32, bool)>,
}

impl Request {
    /// The message; `family` is the number of `nbd`, which only the question for it lacks.
    pub fn encode(&self, family: u16, sequence: u32) -> Vec<u8> {
        let mut writer = Writer::default();
        let to = |kind| (kind, FLAGS, sequence);
        match self {
            Self::Family => {
                writer.text(controller::FAMILY_NAME, FAMILY);
                writer.message(to(CONTROLLER), controller::GET_FAMILY)
            }
            Self::Connect(device, sockets) => {
                device.encode(&mut writer);
                // Of a single request: zero, so that one that takes long is not taken for lost.
                writer.u64(attr::TIMEOUT, 0);
                writer.u64(attr::SERVER_FLAGS, device.flags.bits().into());
                put_sockets(&mut writer, sockets);
                writer.message(to(family), command::CONNECT)
            }
            Self::Reconfigure(device, socket) => {
                // Without TIMEOUT: it would set the time back after which requests are sent again.
                device.encode(&mut writer);
                put_sockets(&mut writer, &[*socket]);
                writer.message(to(family), command::RECONFIGURE)
            }
            Self::Disconnect { index } => {
                writer.u32(attr::INDEX, *index);
                writer.message(to(family), command::DISCONNECT)
            }
            Self::Status => writer.message(to(family), command::STATUS),
        }
    }
}

impl Device {
    fn encode(&self, writer: &mut Writer) {
        writer
            .u32(attr::INDEX, self.index)
            .u64(attr::SIZE_BYTES, self.size_bytes)
            .u64(attr::BLOCK_SIZE_BYTES, self.block_bytes.into())
            .u64(attr::DEAD_CONN_TIMEOUT, self.dead_conn_timeout_s)
            .text(attr::BACKEND_IDENTIFIER, &self.backend);
    }
}

fn put_sockets(writer: &mut Writer, sockets: &[i32]) {
    writer.nest(attr::SOCKETS, |list| {
        for socket in sockets {
            let number = u32::from_ne_bytes(socket.to_ne_bytes());
            list.nest(item::SOCKET, |socket| {
                socket.u32(item::SOCKET_FD, number);
            });
        }
    });
}

impl Answer {
    /// Reads one datagram of the answer to the request with this number; the answer is over when
    /// [`Self::errno`] is known.
    pub fn read(&mut self, datagram: &[u8], family: u16, sequence: u32) {
        for frame in frames(datagram).filter(|frame| frame.sequence == sequence) {
            let command = frame.body.first().copied();
            let rest = frame.body.get(GENERIC_BYTES..).unwrap_or_default();
            match (frame.kind, command) {
                (ERROR, _) => {
                    let number = u32_at(frame.body, 0).unwrap_or_default().cast_signed();
                    self.errno = Some(number.saturating_neg());
                }
                (CONTROLLER, Some(controller::NEW_FAMILY)) => {
                    let number = attribute(rest, controller::FAMILY_ID);
                    self.family = number.and_then(|data| u16_at(data, 0));
                }
                (kind, Some(command::CONNECT)) if kind == family => {
                    self.index = attribute(rest, attr::INDEX).and_then(|data| u32_at(data, 0));
                }
                (kind, Some(command::STATUS)) if kind == family => {
                    let list = attribute(rest, attr::DEVICE_LIST).unwrap_or_default();
                    self.devices.extend(devices_in(list));
                }
                _ => {}
            }
        }
    }
}

fn devices_in(list: &[u8]) -> impl Iterator<Item = (u32, bool)> + '_ {
    let items = attributes(list).filter(|(kind, _)| *kind == item::DEVICE);
    items.filter_map(|(_, device)| {
        let index = u32_at(attribute(device, item::DEVICE_INDEX)?, 0)?;
        let connected = attribute(device, item::DEVICE_CONNECTED)?.first()?;
        Some((index, *connected != 0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn device() -> Device {
        Device {
            index: 3,
            size_bytes: 1 << 30,
            block_bytes: 512,
            flags: TransmissionFlags::HAS_FLAGS | TransmissionFlags::SEND_FLUSH,
            dead_conn_timeout_s: 600,
            backend: "headpond:hv0".into(),
        }
    }

    /// Without the header's length and sequence: type, flags, command and attributes.
    fn told(request: &Request) -> (u16, u16, u8, Vec<(u16, Vec<u8>)>) {
        let bytes = request.encode(0x21, 7);
        let frame = frames(&bytes).next().unwrap();
        assert_eq!((frames(&bytes).count(), frame.sequence), (1, 7));
        assert_eq!(frame.body[1..4], [1, 0, 0], "version 1");
        let attributes = attributes(&frame.body[4..]);
        let attributes = attributes.map(|(kind, data)| (kind, data.to_vec())).collect();
        (frame.kind, frame.flags, frame.body[0], attributes)
    }

    #[test]
    fn the_family_is_asked_for_by_name() {
        let name = vec![(2, b"nbd\0".to_vec())];
        assert_eq!(told(&Request::Family), (0x10, 5, 3, name));
    }

    #[test]
    fn a_device_has_its_size_its_flags_no_timeout_and_a_time_without_a_socket() {
        let (family, flags, command, attributes) = told(&Request::Connect(device(), vec![11, 12]));
        assert_eq!((family, flags, command), (0x21, 5, 1));
        let expected: Vec<(u16, Vec<u8>)> = vec![
            (1, 3u32.to_ne_bytes().into()),
            (2, (1u64 << 30).to_ne_bytes().into()),
            (3, 512u64.to_ne_bytes().into()),
            (8, 600u64.to_ne_bytes().into()),
            (10, b"headpond:hv0\0".to_vec()),
            (4, 0u64.to_ne_bytes().into()),
            (5, 5u64.to_ne_bytes().into()),
        ];
        assert_eq!(attributes[..7], expected);
        let (kind, sockets) = &attributes[7];
        assert_eq!(*kind, 7);
        let socket = |(kind, item): (u16, &[u8])| {
            assert_eq!(kind, 1);
            u32_at(attribute(item, 1).unwrap(), 0).unwrap()
        };
        let sockets: Vec<u32> = netlink::attributes(sockets).map(socket).collect();
        assert_eq!(sockets, [11, 12]);
    }

    #[test]
    fn a_new_socket_does_not_set_the_timeout_of_requests() {
        let (_, _, command, attributes) = told(&Request::Reconfigure(device(), 11));
        let kinds: Vec<u16> = attributes.iter().map(|(kind, _)| *kind).collect();
        assert_eq!((command, &kinds[..]), (3, &[1, 2, 3, 8, 10, 7][..]));
    }

    #[test]
    fn other_requests_have_at_most_an_index() {
        let index = vec![(1, 4u32.to_ne_bytes().to_vec())];
        assert_eq!(told(&Request::Disconnect { index: 4 }), (0x21, 5, 2, index));
        assert_eq!(told(&Request::Status), (0x21, 5, 5, Vec::new()));
    }

    #[test]
    fn an_error_has_its_number_and_success_is_none() {
        for (wire, errno) in [(0i32, 0), (-16, 16), (i32::MIN, i32::MAX)] {
            let mut answer = Answer::default();
            let bytes = netlink::frame((ERROR, 0, 9), &wire.to_ne_bytes());
            answer.read(&bytes, 0x21, 8);
            assert_eq!(answer, Answer::default(), "of another request");
            answer.read(&bytes, 0x21, 9);
            assert_eq!(answer.errno, Some(errno));
        }
    }

    proptest! {
        #[test]
        fn whatever_the_kernel_says_is_read(bytes: Vec<u8>, kind in 0u16..0x30, command in 0u8..8) {
            let mut body = vec![command, 1, 0, 0];
            body.extend(&bytes);
            let mut answer = Answer::default();
            answer.read(&netlink::frame((kind, 0, 1), &body), 0x21, 1);
            answer.read(&bytes, 0x21, 1);
            prop_assert!(answer.devices.len() <= bytes.len());
        }
    }
}
