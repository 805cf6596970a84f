//! One catalogue of everything that is modelled: what comes with the program, and files of users.
//!
//! A model file is TOML. Its `kind` says what it describes; everything else belongs to that kind.
//!
//! **Not here**: reading files. A caller that has read one hands over its text and what to call it
//! in errors.

mod builtin;
mod error;

pub use error::{CatalogueError, Fault};

use crate::controller::ControllerModel;
use crate::hdd::HddModel;
use crate::kind::Kind;
use crate::network::NetworkModel;
use crate::remote::RemoteModel;
use crate::ssd::SsdModel;
use builtin::BUILTIN;
use serde::Deserialize;
use std::rc::Rc;

/// A model of any kind, ready for use; shared by all devices of it.
#[derive(Clone, Debug)]
pub enum Model {
    Hdd(Rc<HddModel>),
    Ssd(Rc<SsdModel>),
    Controller(Rc<ControllerModel>),
    Network(Rc<NetworkModel>),
    Remote(Rc<RemoteModel>),
}

/// As much of a model file as every kind has.
#[derive(Deserialize)]
struct Head {
    kind: Kind,
}

impl Model {
    /// Reads a model file, which errors call `file`.
    ///
    /// # Errors
    /// Names file, line and field, what is wrong with it, and what is allowed.
    pub fn parse(file: &str, text: &str) -> Result<Self, CatalogueError> {
        Self::of_text(text).map_err(|error| CatalogueError::in_file(file, text, error))
    }

    /// A model that comes with the program.
    ///
    /// # Errors
    /// Where there is none of that name.
    pub fn builtin(name: &str) -> Result<Self, CatalogueError> {
        Self::parse(name, builtin_text(name)?)
    }

    fn of_text(text: &str) -> Result<Self, crate::error::ModelError> {
        let head: Head = toml::from_str(text)?;
        Ok(match head.kind {
            Kind::Hdd => Self::Hdd(Rc::new(HddModel::parse(text)?)),
            Kind::Ssd => Self::Ssd(Rc::new(SsdModel::parse(text)?)),
            Kind::Controller => Self::Controller(Rc::new(ControllerModel::parse(text)?)),
            Kind::Network => Self::Network(Rc::new(NetworkModel::parse(text)?)),
            Kind::Remote => Self::Remote(Rc::new(RemoteModel::parse(text)?)),
        })
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Hdd(_) => Kind::Hdd,
            Self::Ssd(_) => Kind::Ssd,
            Self::Controller(_) => Kind::Controller,
            Self::Network(_) => Kind::Network,
            Self::Remote(_) => Kind::Remote,
        }
    }

    pub fn name(&self) -> &str {
        match self {
            Self::Hdd(model) => &model.parameters().name,
            Self::Ssd(model) => &model.parameters().name,
            Self::Controller(model) => &model.name,
            Self::Network(model) => &model.name,
            Self::Remote(model) => &model.parameters().name,
        }
    }

    pub fn description(&self) -> &str {
        match self {
            Self::Hdd(model) => &model.parameters().description,
            Self::Ssd(model) => &model.parameters().description,
            Self::Controller(model) => &model.description,
            Self::Network(model) => &model.description,
            Self::Remote(model) => &model.parameters().description,
        }
    }

    /// The error of one who needs another kind of model.
    pub fn is_not(&self, wanted: &'static str) -> CatalogueError {
        CatalogueError::WrongKind { name: self.name().to_owned(), kind: self.kind(), wanted }
    }

    /// Whether it says that it has a volatile cache, so that hosts send it flushes.
    pub fn reports_a_cache(&self) -> bool {
        match self {
            Self::Hdd(model) => model.parameters().write_cache.enabled,
            Self::Ssd(model) => model.reports_a_cache(),
            Self::Controller(model) => model.reports_a_cache(),
            Self::Network(_) => false,
            Self::Remote(model) => model.reports_a_cache(),
        }
    }

    /// Bytes that it stores, where it stores any.
    pub fn capacity_bytes(&self) -> Option<u64> {
        match self {
            Self::Hdd(model) => Some(model.size_bytes()),
            Self::Ssd(model) => Some(model.size_bytes()),
            Self::Remote(model) => Some(model.size_bytes()),
            Self::Controller(_) | Self::Network(_) => None,
        }
    }
}

impl HddModel {
    /// A disk that comes with the program.
    ///
    /// # Errors
    /// Where there is no disk of that name.
    pub fn builtin(name: &str) -> Result<Self, CatalogueError> {
        let Model::Hdd(model) = Model::builtin(name)? else {
            return Err(Model::builtin(name)?.is_not("a disk (hdd)"));
        };
        Ok(Rc::unwrap_or_clone(model))
    }
}

/// The data file of a model that comes with the program, with the source of every number.
///
/// # Errors
/// Where there is none of that name.
pub fn builtin_text(name: &str) -> Result<&'static str, CatalogueError> {
    match BUILTIN.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => Ok(text),
        None => {
            let known = builtin_names().collect::<Vec<_>>().join(", ");
            Err(CatalogueError::Unknown { name: name.to_owned(), known })
        }
    }
}

pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    BUILTIN.iter().map(|(name, _)| *name)
}

/// Whether a word where a model is asked for names a file of the user's own, and no builtin one.
pub fn is_file(word: &str) -> bool {
    word.contains('/') || word.ends_with(".toml")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_builtin_model_is_sound_and_bears_its_name() {
        for name in builtin_names() {
            let model = Model::builtin(name).unwrap();
            assert_eq!(model.name(), name);
            assert!(!is_file(name) && !model.description().is_empty());
        }
    }

    #[test]
    fn a_mistake_is_named_by_file_line_and_field_with_what_is_allowed() {
        let text = builtin_text("hdd-7k2-4t").unwrap();
        let line = |needle: &str| {
            let at = text.lines().position(|line| line.starts_with(needle)).unwrap();
            format!("mine.toml: line {}: ", at + 1)
        };
        for (from, to, says) in [
            ("heads = 10 ", "heads = 0 ", "geometry.heads = 0 is not between 1 and 64"),
            ("rpm = 7200 ", "rpm = 72 ", "geometry.rpm = 72 is not between 100 and 100,000"),
            ("queue_depth = 32", "queue_depth = 0", "interface.queue_depth = 0 is not between 1"),
        ] {
            let error = Model::parse("mine.toml", &text.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with(&(line(from) + says)), "{error}");
        }
        let error = text.replace("read_ahead_kib = 2048", "read_ahead_kib = -1");
        let error = Model::parse("mine.toml", &error).unwrap_err().to_string();
        assert!(
            error.starts_with(&(line("[read_buffer]") + "[read_buffer] has a size")),
            "{error}"
        );
        for (from, to, says) in [
            ("heads = 10 ", "haeds = 10 ", "unknown field `haeds`, expected one of"),
            ("rpm = 7200 ", "rpm = \"fast\" ", "invalid type: string \"fast\", expected u32"),
            ("kind = \"hdd\"", "kind = \"tape\"", "unknown variant `tape`"),
            ("kind = \"hdd\"", "", "missing field `kind`"),
        ] {
            let error = Model::parse("mine.toml", &text.replace(from, to)).unwrap_err().to_string();
            assert!(error.starts_with("mine.toml: ") && error.contains(says), "{error}");
            assert!(error.contains("line ") || to.is_empty(), "{error}");
        }
        let error = Model::builtin("nothing").unwrap_err().to_string();
        assert!(error.contains("hdd-7k2-4t") && error.contains(".toml"), "{error}");
    }
}
