//! Why a model file describes nothing.

/// What is wrong with the figures of a model; which file and line they stand in is the catalogue's
/// to say.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("drive model: {0}")]
    Syntax(#[from] toml::de::Error),
    #[error("drive model: {field} {reason}")]
    Invalid { field: &'static str, reason: &'static str },
}

pub(crate) fn require(
    holds: bool,
    field: &'static str,
    reason: &'static str,
) -> Result<(), ModelError> {
    if holds { Ok(()) } else { Err(ModelError::Invalid { field, reason }) }
}

/// # Errors
/// Names the first of `figures` that is no number of `range`.
pub(crate) fn require_all(
    figures: &[(&'static str, f64)],
    range: std::ops::RangeInclusive<f64>,
    reason: &'static str,
) -> Result<(), ModelError> {
    figures.iter().try_for_each(|(field, found)| require(range.contains(found), field, reason))
}
