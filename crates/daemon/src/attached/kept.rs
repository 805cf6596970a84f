//! What the run folder has of a volume's devices, for the daemon after this one.

use crate::host;
use headpond_api::place::Places;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// In which the kernel had them.
    pub boot: Uuid,
    pub devices: Vec<KeptDevice>,
}

/// An export that is a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptDevice {
    pub index: u32,
    pub export: String,
    pub dead_conn_timeout_s: u64,
    /// By which the kernel knows whose it is.
    pub backend: String,
    /// Tells it from the same one that was detached before; 0: taken over.
    #[serde(skip)]
    pub number: u64,
}

impl Kept {
    /// What the daemon before this one has left, in this boot.
    pub fn load(places: &Places, volume: &str) -> Self {
        let boot = host::boot();
        let none = || Self { boot, devices: Vec::new() };
        match places.attached::<Self>(volume) {
            Ok(Some(kept)) if kept.boot == boot => kept,
            Ok(_) => none(),
            Err(error) => {
                tracing::warn!("{error:#}: the devices of an earlier daemon are not known");
                none()
            }
        }
    }
}

impl KeptDevice {
    pub fn path(&self) -> String {
        format!("/dev/nbd{}", self.index)
    }
}
