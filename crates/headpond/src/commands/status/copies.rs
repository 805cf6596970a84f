//! The cache mirror in `headpond status`.

use super::array::print_array_live;
use crate::telling::word;
use headpond_api::answers::CacheAnswer;
use headpond_raid::superblock::RoleState;
use headpond_report::size;
use headpond_volume::MirrorStatus;

/// The devices of a cache mirror, and their deviations.
pub fn print_copies(cache: &CacheAnswer) {
    match cache.live.as_ref().map(|live| &live.mirror) {
        Some(Some(mirror)) => {
            println!("            {}", tell_copies(mirror));
            print_array_live(&mirror.array);
        }
        None if cache.devices.len() > 1 => {
            println!("            copies: {}", cache.devices.join(", "));
        }
        _ => {}
    }
}

fn tell_copies(mirror: &MirrorStatus) -> String {
    let members = &mirror.array.members;
    let active = members.iter().filter(|member| member.state == RoleState::Active);
    let names: Vec<&str> = active.filter_map(|member| member.device.as_deref()).collect();
    let risk = match mirror.at_risk_bytes {
        0 => "losing one of them loses no data".to_owned(),
        bytes => format!("losing the last one loses {} of dirty data", size(bytes)),
    };
    let (all, state) = (members.len(), word(mirror.array.health));
    format!("{} of {all} copies in use, {state}: {}; {risk}", names.len(), names.join(", "))
}
