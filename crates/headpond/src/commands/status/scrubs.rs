//! The newest scrub of an array and of a cache in `headpond status`.

use headpond_raid::{LastScrub, MemberScrub, ScrubReport, ScrubState};
use headpond_report::{count, duration};
use headpond_volume::CacheScrub;

/// The newest scrub in one line, and one for each member with findings.
pub fn tell_scrub(scrub: Option<&LastScrub>) -> Vec<String> {
    let Some(scrub) = scrub else { return vec!["never scrubbed".into()] };
    let LastScrub { state, began_at, ended_at, took_s, report, .. } = scrub;
    let took = seconds(*took_s);
    let when = match (state, ended_at) {
        (ScrubState::Running, _) => format!("scrub since {began_at}, {took} so far"),
        (ScrubState::Complete, Some(ended_at)) => {
            format!("last scrub {began_at} to {ended_at}, {took}")
        }
        _ => format!("scrub since {began_at}, interrupted after {took}"),
    };
    let mut lines = vec![format!("{when}: {}", tell_findings(report))];
    lines.extend(scrub.members.iter().map(tell_member));
    if scrub.is_cleared && report.unexplained_sectors + report.unreadable_stripes > 0 {
        lines.push("  what was not repaired is acknowledged".into());
    }
    lines
}

fn tell_findings(report: &ScrubReport) -> String {
    let told = counted(&[
        (report.corrected_sectors, "sectors repaired"),
        (report.rewritten, "unreadable strips rewritten"),
        (report.unexplained_sectors, "sectors unexplained"),
        (report.unreadable_stripes, "stripes unreadable"),
    ]);
    if told.is_empty() { "nothing to repair".into() } else { told }
}

fn tell_member(member: &MemberScrub) -> String {
    let told = counted(&[
        (member.repaired_sectors, "sectors repaired"),
        (member.rewritten_strips, "unreadable strips rewritten"),
        (member.unexplained_sectors, "sectors that may be wrong on it"),
    ]);
    format!("  {}: {told}", member.device)
}

fn counted(figures: &[(u64, &str)]) -> String {
    let told = figures.iter().filter(|(figure, _)| *figure > 0);
    let told = told.map(|(figure, what)| format!("{} {what}", count(*figure)));
    told.collect::<Vec<_>>().join(", ")
}

fn seconds(took_s: u64) -> String {
    if took_s == 0 { "less than 1 s".into() } else { duration(took_s * 1_000_000_000) }
}

pub fn tell_cache_scrub(scrub: &CacheScrub) -> String {
    let CacheScrub { began_at, took_s, blocks, dropped_blocks, lost_blocks, .. } = scrub;
    format!(
        "last scrub {began_at}, {}: of {} blocks {} dropped, {} lost",
        seconds(*took_s),
        count(*blocks),
        count(*dropped_blocks),
        count(*lost_blocks)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_volume::UtcTime;

    #[test]
    fn a_scrub_says_when_it_was_and_which_member_was_repaired() {
        let member = MemberScrub {
            device: "/srv/m1.img".into(),
            repaired_sectors: 96_194,
            ..MemberScrub::default()
        };
        let scrub = LastScrub {
            state: ScrubState::Complete,
            began_at: UtcTime::from_unix_s(0),
            ended_at: Some(UtcTime::from_unix_s(90)),
            took_s: 80,
            is_cleared: false,
            report: ScrubReport { corrected_sectors: 96_194, ..ScrubReport::default() },
            members: vec![member],
        };
        let told = tell_scrub(Some(&scrub));
        assert!(told[0].starts_with("last scrub 1970-01-01 00:00:00 UTC to 1970-01-01 00:01:30"));
        assert!(told[0].ends_with(": 96,194 sectors repaired"), "{told:?}");
        assert_eq!(told[1], "  /srv/m1.img: 96,194 sectors repaired");
        let cut = LastScrub { state: ScrubState::Interrupted, ended_at: None, ..scrub };
        assert!(tell_scrub(Some(&cut))[0].contains("interrupted after"));
        assert_eq!(tell_scrub(None), ["never scrubbed"]);
    }
}
