//! What striping makes of members that differ, and what a plain stripe of them would lose.
//!
//! Of an array without redundancy each member gets its share of what is asked, as its weight says;
//! the array is as fast as the member that is the first to have enough. That is exact for many
//! requests in flight over the whole array, and says nothing of one at a time, which takes as long
//! as the member does that it meets.

use headpond_raid::{LayoutError, Striping, Weights};
use serde::Serialize;

/// One member of an array that is looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Different {
    pub name: String,
    /// For data.
    pub room_bytes: u64,
    /// Where they are known.
    pub sequential_read_mb_per_s: Option<f64>,
    pub random_read_iops: Option<f64>,
}

/// What one way of striping makes of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outlook {
    pub striping: &'static str,
    /// One for each member.
    pub weights: Weights,
    pub capacity_bytes: u64,
    pub sequential_read_mb_per_s: Option<f64>,
    pub random_read_iops: Option<f64>,
}

/// Plain striping first, then by capacity, and where all speeds are known by speed.
///
/// # Errors
/// Where there are more members than can have weights, or none.
pub fn outlooks(members: &[Different], strip_bytes: u32) -> Result<Vec<Outlook>, LayoutError> {
    let rows = rows(members, strip_bytes);
    let plain = Weights::new(vec![1; members.len()])?;
    let capacity = Striping::Capacity.weights(&rows)?.unwrap_or_else(|| plain.clone());
    let speeds: Option<Vec<f64>> =
        members.iter().map(|member| member.sequential_read_mb_per_s).collect();
    let speed = speeds.map(|speeds| Weights::by_speed(&speeds)).transpose()?;
    let mut all = vec![
        outlook("plain", plain, members, strip_bytes),
        outlook("capacity", capacity, members, strip_bytes),
    ];
    all.extend(speed.map(|weights| outlook("speed", weights, members, strip_bytes)));
    Ok(all)
}

/// What these weights make of the members.
///
/// # Panics
/// Where there is not one for each.
pub fn outlook(
    striping: &'static str,
    weights: Weights,
    members: &[Different],
    strip_bytes: u32,
) -> Outlook {
    assert_eq!(weights.as_slice().len(), members.len(), "a weight for each member");
    let strips = weights.rounds(&rows(members, strip_bytes)) * weights.total();
    let together = |of: fn(&Different) -> Option<f64>| {
        let of_all = members.iter().zip(weights.as_slice()).map(|(member, weight)| {
            Some(of(member)? * weights.total() as f64 / f64::from(*weight))
        });
        of_all.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::min)
    };
    Outlook {
        striping,
        capacity_bytes: strips * u64::from(strip_bytes),
        sequential_read_mb_per_s: together(|member| member.sequential_read_mb_per_s),
        random_read_iops: together(|member| member.random_read_iops),
        weights,
    }
}

fn rows(members: &[Different], strip_bytes: u32) -> Vec<u64> {
    members.iter().map(|member| member.room_bytes / u64::from(strip_bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(room_bytes: u64, mb_per_s: f64, iops: f64) -> Different {
        Different {
            name: "drive".into(),
            room_bytes,
            sequential_read_mb_per_s: Some(mb_per_s),
            random_read_iops: Some(iops),
        }
    }

    #[test]
    fn a_plain_stripe_is_as_large_and_as_fast_as_its_smallest_and_slowest_member_everywhere() {
        let members = [member(3 << 40, 3000.0, 90_000.0), member(1 << 40, 1000.0, 60_000.0)];
        let all = outlooks(&members, 64 << 10).unwrap();
        let of = |index: usize| {
            let it: &Outlook = &all[index];
            let speeds = it.sequential_read_mb_per_s.zip(it.random_read_iops).unwrap();
            (it.striping, it.weights.to_string(), it.capacity_bytes >> 40, speeds)
        };
        assert_eq!(of(0), ("plain", "1:1".into(), 2, (2000.0, 120_000.0)));
        assert_eq!(of(1), ("capacity", "3:1".into(), 4, (4000.0, 120_000.0)));
        assert_eq!(of(2), ("speed", "3:1".into(), 4, (4000.0, 120_000.0)));
    }

    /// Large members are not faster for it: what a large one has to do more, it does no sooner.
    #[test]
    fn weights_by_capacity_cost_speed_where_all_are_equally_fast() {
        let members = [member(3 << 40, 1000.0, 1e5), member(1 << 40, 1000.0, 1e5)];
        let all = outlooks(&members, 64 << 10).unwrap();
        let speed = |index: usize| all[index].sequential_read_mb_per_s.unwrap();
        assert!((speed(0), speed(2)) == (2000.0, 2000.0) && (1333.0..1334.0).contains(&speed(1)));
        assert_eq!(all[2].weights.to_string(), "1:1");
    }

    #[test]
    fn what_is_not_known_of_one_is_not_said_of_all() {
        let unknown = Different { sequential_read_mb_per_s: None, ..member(1 << 40, 0.0, 1e5) };
        let all = outlooks(&[member(1 << 40, 1000.0, 1e5), unknown], 64 << 10).unwrap();
        assert_eq!(all.len(), 2, "no weights by speed");
        assert_eq!(all[0].sequential_read_mb_per_s, None);
        assert_eq!(all[0].random_read_iops, Some(2e5));
    }
}
