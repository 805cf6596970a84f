//! `headpond serve`: the volume on its data thread, its exports, and the control thread.
//!
//! 1. Devices are opened and the volume is assembled on the data thread's ring; how far that is,
//!    the terminal and `status` show.
//! 2. NBD listeners and the control socket come up; from here on it is `serving`.
//! 3. Wishes arrive as messages and are granted one by one, long ones beside the others.
//! 4. `stop`, SIGTERM or SIGINT: clients finish, the cache saves its state, the array is closed.

mod caches;
mod clients;
mod control;
mod cores;
mod desk;
mod files;
pub mod loading;
mod members;
mod message;
mod opening;
mod pulse;
mod recording;
mod routes;
mod serving;
mod work;

pub use members::MISSING;
pub use message::{
    AddCoreBody, AttachBody, DetachBody, FlushBody, FlushPace, GrowBody, JournalBody, LookBody,
    MemberBody, OfCoreBody, PaceBody, PurgeBody, RecordBody, RemoveCoreBody, ResizeBody, SetBody,
    StopBody,
};
pub use opening::serve;
