//! Serves a volume: the volume and its exports on the data thread, busy connections on threads of
//! their own, the control thread, and threads for files, the log and events.
//!
//! 1. Devices are opened and the volume is assembled on the data thread's ring; the terminal and
//!    `status` show the progress.
//! 2. NBD listeners and the control socket are opened; the state is `serving`.
//! 3. Commands arrive as messages and are executed, long ones concurrently.
//! 4. `stop`, SIGTERM or SIGINT: clients finish, the cache saves its state, the array is closed.

#![forbid(unsafe_code)]

pub mod assembly;
pub mod attached;
mod attaching;
pub mod block_devices;
mod caches;
mod clients;
mod command;
mod control;
mod cores;
pub mod device;
mod events;
pub mod export;
pub mod exporter;
mod exporting;
mod files;
pub mod host;
pub mod loading;
pub mod log;
mod members;
mod meminfo;
pub mod metrics;
mod opening;
pub mod progress_bar;
mod pulse;
mod recording;
mod returning;
mod run_blocking;
mod service;
mod serving;
mod stopped;
mod systemd;
mod threads;
pub mod wall_clock;
mod watching;
mod work;

pub use members::MISSING;
pub use opening::{ServeOptions, serve};
pub use stopped::{clear_stopped, keep_event_of_set, set_stopped};
pub use systemd::Notifier;
