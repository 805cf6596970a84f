//! A plan that cannot be carried out.

/// What is wrong with a plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("the plan cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    #[error("{field}: {cause}; {way_out}")]
    Field { field: String, cause: String, way_out: String },
}

impl PlanError {
    pub(crate) fn field(
        field: impl Into<String>,
        cause: impl Into<String>,
        way_out: impl Into<String>,
    ) -> Self {
        Self::Field { field: field.into(), cause: cause.into(), way_out: way_out.into() }
    }
}
