//! The numbers that stand for states and shapes.

use crate::superblock::{ArrayRecord, RecordedParity, RecordedState, RoleState};

pub(super) fn rotation(array: &ArrayRecord) -> u8 {
    match array.declustering {
        Some(_) => 2,
        None => u8::from(array.level.parity() > 0),
    }
}

pub(super) fn state_code(state: RecordedState) -> u8 {
    match state {
        RecordedState::Creating => 1,
        RecordedState::Clean => 2,
        RecordedState::Dirty => 3,
        RecordedState::DirtyLogged => 4,
    }
}

pub(super) fn parity_code(parity: RecordedParity) -> u8 {
    match parity {
        RecordedParity::Valid => 1,
        RecordedParity::NotInitialised => 2,
    }
}

pub(super) fn role_code(state: RoleState) -> u8 {
    match state {
        RoleState::Active => 1,
        RoleState::Failed => 2,
        RoleState::Missing => 3,
    }
}
