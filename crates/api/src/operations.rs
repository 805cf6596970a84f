//! The operations of the control API: path, body and answer of each, for both sides.

use crate::answers::{
    AttachedDevice, Flushed, Recorded, RecordingStarted, Resized, Stats, Status, Stopped, Versioned,
};
use crate::refusal::Refusal;
use crate::requests::*;
use headpond_cache::ScrubReport;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::any::TypeId;
use std::marker::PhantomData;

/// One operation with body `B` (`()` if none) and answer `A`.
pub struct Operation<B, A> {
    pub path: &'static str,
    /// Whether it is read-only: a `GET`, else a `POST`.
    pub is_look: bool,
    pub summary: &'static str,
    types: PhantomData<fn(B) -> A>,
}

impl<A> Operation<(), A> {
    const fn get(path: &'static str, summary: &'static str) -> Self {
        Self { path, is_look: true, summary, types: PhantomData }
    }
}

impl<B, A> Operation<B, A> {
    const fn post(path: &'static str, summary: &'static str) -> Self {
        Self { path, is_look: false, summary, types: PhantomData }
    }
}

/// The operations by name, and the list of them that the document is made of.
macro_rules! operations {
    ($($name:ident: $kind:ident $path:literal $body:ty => $answer:ty, $summary:literal;)+) => {
        $(pub const $name: Operation<$body, $answer> = Operation::$kind($path, $summary);)+

        fn add_all(document: &mut Document) {
            $(document.add(&$name);)+
        }
    };
}

operations! {
    STATUS: get "/v1/status" () => Status, "The state of the volume.";
    STATS: get "/v1/stats" () => Stats, "Statistics.";
    RESET_STATS: post "/v1/stats/reset" () => Stats,
        "Statistics until now; resets the counters.";
    CLEAR_ERRORS: post "/v1/errors/clear" ClearBody => Status,
        "Clear the errors of a device, or of all.";
    SET: post "/v1/settings" SetBody => Status, "Change settings, here and in the description.";
    SET_EXPORTS: post "/v1/exports" ExportsBody => Status,
        "Change the exports in the description; the next start serves them.";
    ATTACH_DEVICE: post "/v1/device/attach" AttachDeviceBody => AttachedDevice,
        "Make an export a block device of the kernel, by its NBD client.";
    DETACH_DEVICE: post "/v1/device/detach" DetachDeviceBody => Status,
        "End such a block device.";
    FLUSH: post "/v1/flush" FlushBody => Flushed, "Write all dirty data to the array.";
    STOP: post "/v1/stop" StopBody => Stopped, "Close the volume and end the daemon.";
    ATTACH_CACHE: post "/v1/cache/attach" AttachBody => Status, "Make a device the cache.";
    DETACH_CACHE: post "/v1/cache/detach" DetachBody => Status, "Detach the cache.";
    REPLACE_CACHE: post "/v1/cache/replace" AttachBody => Status,
        "Replace the cache device; the settings stay.";
    RESIZE_CACHE: post "/v1/cache/resize" ResizeBody => Resized, "Use more or less of the device.";
    PURGE_CACHE: post "/v1/cache/purge" PurgeBody => Status, "Invalidate all cached data.";
    SCRUB_CACHE: post "/v1/cache/scrub" () => ScrubReport,
        "Read the whole cache and compare it with its checksums.";
    ADD_CORE: post "/v1/core/add" AddCoreBody => Status, "Make devices an array behind the cache.";
    REMOVE_CORE: post "/v1/core/remove" RemoveCoreBody => Status,
        "Remove a core, which becomes a volume of its own.";
    START_RECORDING: post "/v1/recording/start" RecordBody => RecordingStarted,
        "Record the requests to a file.";
    STOP_RECORDING: post "/v1/recording/stop" () => Recorded, "Complete the file.";
    SAMPLE: post "/v1/sample" SampleBody => Recorded, "Record a short sample.";
    ADD_SPARE: post "/v1/array/add-spare" MemberBody => Status, "Add a spare.";
    RE_ADD: post "/v1/array/re-add" MemberBody => Status,
        "Re-add a member, and resync the writes that it missed.";
    REPLACE: post "/v1/array/replace" MemberBody => Status, "Replace a member by a device.";
    GROW: post "/v1/array/grow" GrowBody => Status, "Reshape the array to more members.";
    FAIL: post "/v1/array/fail" MemberBody => Status, "Fail a member.";
    REMOVE: post "/v1/array/remove" MemberBody => Status, "Remove a spare or a failed member.";
    DROP_COPY: post "/v1/array/drop-copy" MemberBody => Status, "Remove a copy.";
    SET_JOURNAL: post "/v1/array/set-journal" JournalBody => Status,
        "Make a device the stripe journal, or change when it is used.";
    DROP_JOURNAL: post "/v1/array/drop-journal" OfCoreBody => Status,
        "Remove the stripe journal.";
    SCRUB: post "/v1/array/scrub" OfCoreBody => Status, "Check all stripes in the background.";
    PAUSE: post "/v1/array/pause" PauseBody => Status, "Pause background work.";
    RESUME: post "/v1/array/resume" PauseBody => Status, "Resume background work.";
    RATE: post "/v1/array/rate" RateBody => Status, "Set the rates of background work.";
}

/// The metrics as text, which is no JSON.
pub const METRICS_PATH: &str = "/metrics";
/// The text format of Prometheus.
pub const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The OpenAPI document of all operations.
///
/// **Source**: OpenAPI 3.1, whose schemas are those of JSON Schema 2020-12.
pub fn document() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut document = Document { schemas: settings.into_generator(), paths: Map::new() };
    add_all(&mut document);
    document.add_metrics();
    let Document { mut schemas, paths } = document;
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Headpond control API",
            "version": crate::answers::SCHEMA.to_string(),
            "description": "HTTP over the control socket of a served volume.",
        },
        "paths": paths,
        "components": { "schemas": schemas.take_definitions(true) },
    })
}

struct Document {
    schemas: SchemaGenerator,
    paths: Map<String, Value>,
}

impl Document {
    fn add_metrics(&mut self) {
        let refusal = self.schemas.subschema_for::<Versioned<Refusal>>();
        let told = json!({
            "summary": "Metrics, as docs/metrics.md lists them.",
            "responses": {
                "200": {
                    "description": "Done.",
                    "content": { METRICS_TYPE: { "schema": { "type": "string" } } },
                },
                "default": {
                    "description": "Not done, and why.",
                    "content": { "application/json": { "schema": refusal } },
                },
            },
        });
        self.paths.insert(METRICS_PATH.to_owned(), json!({ "get": told }));
    }

    fn add<B: JsonSchema + 'static, A: JsonSchema>(&mut self, operation: &Operation<B, A>) {
        let content = |schema| json!({ "application/json": { "schema": schema } });
        let answer = content(self.schemas.subschema_for::<Versioned<A>>());
        let refusal = content(self.schemas.subschema_for::<Versioned<Refusal>>());
        let mut told = json!({
            "summary": operation.summary,
            "responses": {
                "200": { "description": "Done.", "content": answer },
                "default": { "description": "Not done, and why.", "content": refusal },
            },
        });
        if !operation.is_look {
            // Answered as any refusal is.
            let text = "Not permitted: the peer is neither root nor the user that runs the daemon.";
            told["responses"]["403"] = told["responses"]["default"].clone();
            told["responses"]["403"]["description"] = text.into();
        }
        if TypeId::of::<B>() != TypeId::of::<()>() {
            let body = content(self.schemas.subschema_for::<B>());
            told["requestBody"] = json!({ "required": true, "content": body });
        }
        let verb = if operation.is_look { "get" } else { "post" };
        self.paths.insert(operation.path.to_owned(), json!({ verb: told }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// `UPDATE_OPENAPI=1` writes it.
    #[test]
    fn the_document_in_the_tree_is_that_of_the_operations() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
        let text = serde_json::to_string_pretty(&document()).unwrap() + "\n";
        if std::env::var_os("UPDATE_OPENAPI").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == text, "an answer or a request has changed: see docs/openapi.json");
    }

    #[test]
    fn keys_are_in_snake_case_and_each_reference_leads_somewhere() {
        fn check(document: &Value, at: &Value) {
            match at {
                Value::Object(fields) => {
                    for key in fields
                        .get("properties")
                        .and_then(Value::as_object)
                        .into_iter()
                        .flat_map(Map::keys)
                    {
                        let is_snake =
                            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
                        assert!(key.chars().all(is_snake), "{key}");
                    }
                    if let Some(Value::String(reference)) = fields.get("$ref") {
                        let found = document.pointer(reference.trim_start_matches('#'));
                        assert!(found.is_some(), "{reference}");
                    }
                    fields.values().for_each(|value| check(document, value));
                }
                Value::Array(values) => values.iter().for_each(|value| check(document, value)),
                _ => {}
            }
        }
        let document = document();
        check(&document, &document);
        assert!(document["paths"].as_object().unwrap().len() > 20);
    }
}
