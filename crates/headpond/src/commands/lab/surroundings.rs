//! Served volumes as targets of the lab.

use crate::device::{DeviceSpec, Export};
use headpond_api::client::Client;
use headpond_api::operations;
use headpond_api::outcome::told;
use headpond_api::place::Places;
use headpond_api::requests::{FlushPace, SetBody};
use headpond_block::{LocalFuture, Runtime};
use headpond_lab::{Connected, ExportFacts, SettingFact, Surroundings, VolumeFacts};
use headpond_nbd::codec::wire::TransmissionFlags;
use headpond_uring::{Ring, RunConfig, run};
use headpond_volume::SettingError;
use std::path::Path;

/// The volumes of this machine.
pub struct Served<'a> {
    places: &'a Places,
}

impl<'a> Served<'a> {
    pub fn new(places: &'a Places) -> Self {
        Self { places }
    }
}

impl Served<'_> {
    /// The volume of this machine that is served at an address.
    fn volume_at(&self, export: &Export) -> Option<String> {
        let is_there = |name: &String| {
            let own = self.export_of(name).ok().and_then(|own| own.parse::<Export>().ok());
            own.is_some_and(|own| own.is_of_the_server_of(export))
        };
        self.places.names().into_iter().find(is_there)
    }
}

impl Surroundings for Served<'_> {
    fn export_of(&self, volume: &str) -> Result<String, String> {
        let description = self.places.load(volume).map_err(|error| told(&error))?;
        let socket = || self.places.nbd_socket(volume).map_err(|error| told(&error));
        let nbd = match description.exports.first() {
            Some(export) => export.address.clone(),
            None => format!("unix:{}", socket()?.display()),
        };
        match (nbd.strip_prefix("unix:"), nbd.strip_prefix("tcp:")) {
            (Some(path), _) => Ok(format!("nbd+unix:///?socket={path}")),
            (None, Some(address)) => Ok(format!("nbd://{address}")),
            (None, None) => {
                Err(format!("{volume} is exported at {nbd}, which fio does not support"))
            }
        }
    }

    fn connect<'a>(
        &'a self,
        export: &'a str,
        ring: &'a Ring,
        runtime: &'a Runtime,
    ) -> LocalFuture<'a, Result<Connected, String>> {
        Box::pin(async move {
            let export: Export = export.parse().map_err(|error| told(&error))?;
            let device = export.connect(ring, runtime).await.map_err(|error| told(&error))?;
            let takes_discards = device.terms().flags.contains(TransmissionFlags::SEND_TRIM);
            Ok(Connected { device, takes_discards })
        })
    }

    fn facts_of(&self, volume: &str) -> Option<VolumeFacts> {
        let description = self.places.load(volume).ok()?;
        let part = |name: &str, word: &String| {
            let spec: Option<DeviceSpec> = word.parse().ok();
            let path = spec.as_ref().and_then(DeviceSpec::path).map(Path::to_owned);
            (name.to_owned(), word.clone(), path)
        };
        let members = description.core.members.iter().map(|word| part("member", word));
        let cache = description.cache.iter().flat_map(|cache| {
            let copies = cache.mirror.iter().flat_map(|mirror| &mirror.copies);
            [&cache.device].into_iter().chain(copies).map(|word| part("cache", word))
        });
        let tier = description.tier.iter().map(|tier| part("tier", &tier.device));
        let journal = description.core.journal.iter().map(|it| part("journal", &it.device));
        let parts = members.chain(cache).chain(tier).chain(journal).collect();
        let shown = description.cache.iter().flat_map(|cache| cache.settings.shown());
        let tier = description.tier.iter().flat_map(|tier| tier.settings.shown());
        let all = shown.chain(tier).chain(description.array.shown());
        let settings = all.map(|it| SettingFact {
            is_default: it.value == it.default,
            name: it.key,
            value: it.value,
        });
        Some(VolumeFacts { parts, settings: settings.collect() })
    }

    fn facts_of_export(&self, address: &str) -> Option<ExportFacts> {
        let export: Export = address.parse().ok()?;
        let terms = run(&RunConfig::default(), |ring, runtime| async {
            let (ring, runtime) = (ring, runtime);
            let device = export.connect(&ring, &runtime).await.ok()?;
            let terms = device.terms().clone();
            device.close().await;
            Some(terms)
        });
        let terms = terms.ok()??;
        let sizes = terms.block_sizes;
        let flags = terms.flags.iter_names().map(|(name, _)| name.to_owned()).collect();
        Some(ExportFacts {
            name: terms.name,
            description: terms.description,
            size_bytes: terms.size_bytes,
            block_bytes: [sizes.minimum, sizes.preferred, sizes.maximum],
            flags,
            volume: self.volume_at(&export),
        })
    }

    fn setting_of(&self, volume: &str, name: &str) -> Result<String, String> {
        let description = self.places.load(volume).map_err(|error| told(&error))?;
        let key = name.strip_prefix("cache.").unwrap_or(name);
        let of_cache = description.cache.into_iter().flat_map(|cache| cache.settings.shown());
        let mut all = of_cache.chain(description.array.shown());
        let found = all.find(|setting| setting.key == key);
        found.map(|setting| setting.value).ok_or_else(|| format!("it has no setting {key}"))
    }

    /// Settings have the names of `headpond set`; a prefix `cache.` is accepted, so that one plan
    /// works for a volume and the model of its machine.
    fn set(&self, volume: &str, name: &str, value: &str) -> Result<(), String> {
        let client = Client::of(self.places, volume).map_err(|error| told(&error))?;
        let name = name.strip_prefix("cache.").unwrap_or(name);
        let change = format!("{name}={value}").parse();
        let changes = vec![change.map_err(|error: SettingError| error.to_string())?];
        let body = SetBody { changes, flush: true, pace: FlushPace::Max };
        client.call_with(&operations::SET, &body).map(drop).map_err(|error| told(&error))
    }
}
