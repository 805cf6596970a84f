//! Plans that come with the program, each for a question that people ask. They run on models as
//! they are, and on real targets that the user names.

/// One of them.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! plans {
    ($($name:literal),* $(,)?) => {
        &[$(Builtin { name: $name, text: include_str!(concat!("builtin/", $name, ".toml")) }),*]
    };
}

/// All of them.
pub const ALL: &[Builtin] = plans![
    "write-policy",
    "write-policy-raid5",
    "sync-write",
    "array",
    "sequential-map",
    "cache-limits",
    "steady-read-write",
    "mixed",
    "lustre",
    "snia-iops",
];

/// The text of a plan.
pub fn text(name: &str) -> Option<&'static str> {
    ALL.iter().find(|plan| plan.name == name).map(|plan| plan.text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Kind, Plan};

    #[test]
    fn every_plan_is_called_what_its_file_is_and_runs_on_models() {
        for builtin in ALL {
            let plan = Plan::parse(builtin.text)
                .unwrap_or_else(|error| panic!("{}: {error}", builtin.name));
            assert_eq!(plan.name, builtin.name);
            assert!(!plan.question.is_empty() && !plan.questions.is_empty(), "{}", plan.name);
            assert!(plan.targets.iter().all(|target| target.kind() == Kind::Machine));
            assert!(plan.rounds_on_models.is_some(), "{}: minutes of models take long", plan.name);
        }
    }
}
