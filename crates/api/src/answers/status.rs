//! A volume: its description and, while it is served, its state.

use headpond_block::memory::MemoryState;
use headpond_raid::{ArrayStatus, HealthState, Level};
use headpond_volume::{
    Alert, AlertKind, BackgroundStatus, CacheSettings, CacheStatus, CoreDescription,
    CoreFileSystem, CoreStatus, Description, DeviceReport, FIRST_CORE, JobStatus, Loading,
    OwnerStatus, VolumeStatus,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use uuid::Uuid;

/// A volume. Fields that only its daemon knows are null or empty if none serves it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    pub name: String,
    pub uuid: Uuid,
    pub state: ServiceState,
    /// Progress of a daemon that loads it.
    pub loading: Option<LoadingStatus>,
    pub slices: u16,
    /// Of a volume that is not served, as saved when it was made or last stopped; null if unknown.
    pub size_bytes: Option<u64>,
    /// Whether address distance costs time on the members.
    pub rotational: Option<bool>,
    /// The heartbeat for other hosts.
    pub owner: Option<OwnerStatus>,
    /// The arrays that share the cache; the first is the volume itself.
    pub cores: Vec<CoreAnswer>,
    /// The cache in memory in front of the cache.
    pub tier: Option<CacheAnswer>,
    pub cache: Option<CacheAnswer>,
    /// The worst of its arrays and devices.
    pub health: Option<HealthState>,
    /// Devices with errors that were not cleared.
    pub errors: Vec<DeviceReport>,
    /// File systems on its cores, if a rule of the I/O classes needs metadata.
    pub file_systems: Vec<CoreFileSystem>,
    /// Of the daemon's process.
    pub memory: Option<MemoryState>,
    /// Conditions that need attention, worst first.
    pub alerts: Vec<Alert>,
    /// Further notes for the operator.
    pub warnings: Vec<String>,
    /// Jobs in progress.
    pub jobs: Vec<JobStatus>,
    /// Addresses that clients connect to, and devices of the kernel that it is.
    pub exports: Vec<String>,
    pub clients: Vec<ClientStatus>,
    /// All clients together, and what the kernel shows of it.
    pub server: Option<ServerStatus>,
    /// The file of an active recording.
    pub recording: Option<PathBuf>,
    /// Commands in progress, oldest first.
    pub commands: Vec<String>,
    /// What a stop in progress waits for.
    pub stop_waits_for: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    /// No daemon serves it.
    Stopped,
    /// A daemon loads its cache.
    Loading,
    Serving,
    /// A daemon has its control socket, and does not answer.
    NotAnswering,
}

/// A slice that is being read, and its progress.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadingStatus {
    #[serde(flatten)]
    pub loading: Loading,
    pub elapsed_s: f64,
}

/// One of the arrays that share the cache.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CoreAnswer {
    /// Its ID in rules of the I/O classes.
    pub id: u16,
    pub name: String,
    pub level: Level,
    /// Whether it is an existing device with its contents, as an array of level 0.
    pub is_existing: bool,
    pub strip_bytes: u64,
    /// As the description names them.
    pub devices: Vec<String>,
    pub size_bytes: Option<u64>,
    /// Its state, with its members.
    pub array: Option<ArrayStatus>,
    /// The background work on it.
    pub background: Option<BackgroundStatus>,
    /// How the write hole is closed, if there is parity.
    pub write_hole: Option<String>,
}

/// A cache or a tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CacheAnswer {
    /// As the description names them; several are a mirror.
    pub devices: Vec<String>,
    /// Line size, if it was created with this description.
    pub line_bytes: u64,
    #[serde(flatten)]
    pub settings: CacheSettings,
    /// Write-back is allowed although the device is volatile.
    pub volatile_allowed: bool,
    /// Of a volume that is not served, as saved by its last clean shutdown; null if unknown.
    pub dirty_bytes: Option<u64>,
    /// Its state and usage.
    pub live: Option<CacheStatus>,
}

/// A block device of the kernel (ublk).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BlockDeviceStatus {
    /// The kernel's name.
    pub device: PathBuf,
    /// The name that stays the same.
    pub link: PathBuf,
    /// Null: the first core.
    pub core: Option<String>,
    pub size_bytes: u64,
    pub queues: u16,
    /// Requests of a queue at a time.
    pub depth: u16,
    pub io_bytes_max: u32,
    pub is_read_only: bool,
    /// Mounts, devices above it, processes; seen every few seconds.
    pub used_by: Vec<String>,
    pub requests: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub errors: u64,
    pub in_flight: u64,
}

/// One connection of a client.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ClientStatus {
    pub peer: String,
    /// Null before its handshake has named one.
    pub export: Option<String>,
    pub age_s: f64,
    pub idle_s: f64,
    pub in_flight: u64,
    pub in_flight_bytes: u64,
    /// It is busy, and served on a thread beside the engine.
    pub on_thread: bool,
    pub requests: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub errors: u64,
}

/// Memory of all clients, and counts since the volume is served.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ServerStatus {
    /// For connections, beside the engine.
    pub threads: u64,
    /// Of connections to one of these.
    pub moves: u64,
    pub memory_held_bytes: u64,
    pub memory_bytes_max: u64,
    /// Connections whose next request waits for memory.
    pub waiting_for_memory: u64,
    pub accepted: u64,
    /// Since all slots were taken.
    pub refused: u64,
    /// Idle connections that were closed for new ones.
    pub gave_way: u64,
    /// Disconnected for holding memory that others waited for.
    pub stalled: u64,
    pub failed_handshakes: u64,
    /// Of disconnected clients.
    pub requests_dropped: u64,
    /// Block devices that the volume is exported as.
    pub block_devices: Vec<BlockDeviceStatus>,
}

impl Status {
    /// Of a volume that no daemon serves.
    pub fn described(description: &Description) -> Self {
        let first = CoreAnswer::described(FIRST_CORE, &description.name, &description.core);
        let further = description.further_cores.iter();
        let further = further.map(|it| CoreAnswer::described(it.id, &it.name, &it.core));
        Self {
            name: description.name.clone(),
            uuid: description.uuid,
            state: ServiceState::Stopped,
            loading: None,
            slices: description.slices,
            size_bytes: None,
            rotational: None,
            owner: None,
            cores: std::iter::once(first).chain(further).collect(),
            tier: CacheAnswer::of_tier(description),
            cache: CacheAnswer::of_cache(description),
            health: None,
            errors: Vec::new(),
            file_systems: Vec::new(),
            memory: None,
            alerts: Vec::new(),
            warnings: Vec::new(),
            jobs: Vec::new(),
            exports: Vec::new(),
            clients: Vec::new(),
            server: None,
            recording: None,
            commands: Vec::new(),
            stop_waits_for: None,
        }
    }

    /// Of a volume that a daemon serves, which adds its clients and commands.
    pub fn serving(description: &Description, volume: VolumeStatus) -> Self {
        let described = Self::described(description);
        let cores = described.cores.into_iter();
        let live = |core: CoreAnswer| {
            let found = volume.cores.iter().find(|live| live.id == core.id).cloned();
            core.serving(found)
        };
        Self {
            state: ServiceState::Serving,
            cores: cores.map(live).collect(),
            size_bytes: Some(volume.size_bytes),
            rotational: Some(volume.rotational),
            owner: volume.owner,
            tier: described.tier.map(|tier| tier.serving(volume.tier)),
            cache: described.cache.map(|cache| cache.serving(volume.cache)),
            health: Some(volume.health),
            errors: volume.errors,
            file_systems: volume.file_systems,
            memory: Some(volume.memory),
            alerts: volume.alerts,
            warnings: volume.warnings,
            jobs: volume.jobs,
            ..described
        }
    }

    /// The array of the first core, while the volume is served.
    pub fn array(&self) -> Option<&ArrayStatus> {
        self.cores[0].array.as_ref()
    }

    /// The core of this name; the first where none is given.
    pub fn core(&self, name: Option<&str>) -> Option<&CoreAnswer> {
        let is_it = |core: &&CoreAnswer| name.is_none_or(|name| core.name == name);
        self.cores.iter().find(is_it)
    }

    /// The cache, while the volume is served and has one.
    pub fn live_cache(&self) -> Option<&CacheStatus> {
        self.cache.as_ref()?.live.as_ref()
    }

    /// Whether it has no alert but that its cache is full of dirty data, which is what it is for.
    pub fn is_well(&self) -> bool {
        self.alerts.iter().all(|alert| alert.kind == AlertKind::CacheFull)
    }

    /// Whether writes of an array failed.
    pub fn has_array_errors(&self) -> bool {
        self.alerts.iter().any(|alert| alert.kind == AlertKind::ArrayWriteErrors)
    }

    /// Dirty data of its cache and its tier, where it is known.
    pub fn dirty_bytes(&self) -> Option<u64> {
        let caches: Vec<_> = self.cache.iter().chain(&self.tier).collect();
        let known = caches.iter().filter_map(|cache| cache.dirty_bytes);
        if caches.is_empty() { Some(0) } else { known.reduce(|sum, bytes| sum + bytes) }
    }

    /// Whether all arrays, that of the cache among them, have all their members, and no device has
    /// errors that were not cleared.
    pub fn is_healthy(&self) -> bool {
        self.health.is_none_or(|health| health == HealthState::Healthy)
    }
}

impl LoadingStatus {
    /// Estimated seconds until this slice is read.
    pub fn seconds_left(&self) -> Option<f64> {
        let progress = self.loading.progress;
        let left = progress.bytes.checked_sub(progress.read_bytes)?;
        (progress.read_bytes > 0).then(|| self.elapsed_s * left as f64 / progress.read_bytes as f64)
    }
}

impl CoreAnswer {
    fn described(id: u16, name: &str, core: &CoreDescription) -> Self {
        Self {
            id,
            name: name.to_owned(),
            level: core.raid,
            is_existing: core.is_existing(),
            strip_bytes: core.strip.bytes(),
            devices: core.members.clone(),
            size_bytes: None,
            array: None,
            background: None,
            write_hole: None,
        }
    }

    fn serving(self, live: Option<CoreStatus>) -> Self {
        let Some(CoreStatus { size_bytes, array, background, write_hole, .. }) = live else {
            return self;
        };
        let (size_bytes, array, background) = (Some(size_bytes), Some(array), Some(background));
        Self { size_bytes, array, background, write_hole, ..self }
    }
}

impl CacheAnswer {
    fn of_cache(description: &Description) -> Option<Self> {
        let cache = description.cache.as_ref()?;
        Some(Self {
            devices: cache.copies().map(str::to_owned).collect(),
            line_bytes: cache.line.bytes(),
            settings: cache.settings.clone(),
            volatile_allowed: cache.volatile_allowed,
            dirty_bytes: None,
            live: None,
        })
    }

    fn of_tier(description: &Description) -> Option<Self> {
        let tier = description.tier.as_ref()?;
        Some(Self {
            devices: vec![tier.device.clone()],
            line_bytes: tier.line.bytes(),
            settings: description.tier_settings(tier),
            volatile_allowed: tier.volatile_allowed,
            dirty_bytes: None,
            live: None,
        })
    }

    fn serving(self, live: Option<CacheStatus>) -> Self {
        let dirty_bytes = live.as_ref().map(|live| live.dirty_bytes);
        Self { dirty_bytes, live, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_volume::LoadProgress;

    #[test]
    fn time_left_is_what_the_rest_takes_at_the_same_speed() {
        let left = |read_bytes| {
            let progress = LoadProgress { segments_read: 2, segments: 8, read_bytes, bytes: 400 };
            let loading = Loading { slice: 0, slices: 2, progress };
            LoadingStatus { loading, elapsed_s: 2.0 }.seconds_left()
        };
        assert_eq!(left(100), Some(6.0));
        assert_eq!(left(0), None);
        assert_eq!(left(500), None, "of a file that something else wrote");
    }
}
