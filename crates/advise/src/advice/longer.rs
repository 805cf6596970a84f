//! A longer replay of what is about to be advised. The search replays until a cache has the state
//! that the workload leaves it in; requests that are served meanwhile, and no more once it is full,
//! show only when it goes on.
//!
//! Looked at are the mean responses of each kind and size: where one of them is many times what it
//! was, the advice is not kept up, whatever the sum over all requests says.

use super::warnings::name_of;
use crate::search::{Judge, JudgeError, Question, Tried, Twist};
use headpond_report::micros;
use headpond_whatif::KindShare;

/// Responses that are so many times as long are not those of the same machine. What differs by less
/// is chance: a round more of a full cache is not like the one before it.
const TIMES: f64 = 4.0;
/// Shorter ones are nobody's concern, whatever they were before.
const LONG_US: f64 = 100_000.0;

/// What a longer replay tells against it; nothing where it goes on as it began.
///
/// # Errors
/// Where it cannot be tried.
pub(super) fn look(
    chosen: &Tried,
    requests: usize,
    judge: &mut dyn Judge,
) -> Result<Vec<String>, JudgeError> {
    let candidate = chosen.candidate.clone();
    let longer = judge.judge(&[Question { candidate, requests, twist: Twist::Longer }])?;
    Ok(against(&chosen.trial.kinds, &longer[0].kinds))
}

fn against(short: &[KindShare], longer: &[KindShare]) -> Vec<String> {
    let warning = |before: &KindShare| {
        let is_it = |it: &&KindShare| (it.kind, it.bytes) == (before.kind, before.bytes);
        let after = longer.iter().find(is_it)?;
        let is_worse = after.mean_us > LONG_US && after.mean_us > before.mean_us * TIMES;
        is_worse.then(|| {
            format!(
                "{} are answered after {} on average where the replay goes on for longer, and not \
                 after {}: what is advised does not keep that up",
                name_of(before.kind, before.bytes),
                micros(after.mean_us),
                micros(before.mean_us)
            )
        })
    };
    short.iter().filter_map(warning).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_whatif::Kind;

    #[test]
    fn a_kind_that_waits_many_times_as_long_is_named_and_no_other() {
        let share = |kind, bytes, mean_us| KindShare { kind, bytes, requests: 100, mean_us };
        let short = [
            share(Kind::Write, 4096, 9_000.0),
            share(Kind::Write, 2 << 20, 40_000.0),
            share(Kind::Read, 4096, 100.0),
        ];
        let longer = [
            share(Kind::Write, 4096, 59_900_000.0),
            share(Kind::Write, 2 << 20, 110_000.0),
            share(Kind::Read, 4096, 90_000.0),
        ];
        let [warning] = &against(&short, &longer)[..] else { panic!("one of them") };
        assert!(
            warning.starts_with("writes of 4 KiB and more are answered after 59.9 s"),
            "{warning}"
        );
        assert_eq!(against(&short, &short), Vec::<String>::new());
    }
}
