//! What the newest scrub of an array could not repair, until it is cleared.

use super::{Alert, AlertKind, Risk};
use headpond_block::SECTOR_BYTES;
use headpond_raid::{ArrayStatus, LastScrub};

/// The condition of an array whose newest scrub has such findings; `core` names it where there are
/// several.
pub(crate) fn of_scrub(volume: &str, core: Option<&str>, array: &ArrayStatus) -> Option<Alert> {
    let scrub = array.last_scrub.as_ref().filter(|scrub| scrub.is_unsound())?;
    let (report, place) = (&scrub.report, core.map_or_else(String::new, |it| format!("/{it}")));
    let first = report.findings.first();
    let first = first.map(|it| format!(", the first at byte {}", it.stripe_start));
    let cause = format!(
        "the scrub of array {} of {} found {} inconsistent sectors and {} unreadable stripes{}{}",
        array.name,
        scrub.began_at,
        report.unexplained_sectors,
        report.unreadable_stripes,
        first.unwrap_or_default(),
        suspects(scrub)
    );
    let what = format!("data of {volume}{place} there: which data is correct is unknown");
    Some(Alert {
        kind: AlertKind::ScrubFindings,
        cause,
        at_risk: Risk { blocks: 0, bytes: report.unexplained_sectors * SECTOR_BYTES, what },
        action: format!(
            "restore it from a backup (`headpond status {volume} --json` lists the places); \
             `headpond clear {volume}` clears this alert"
        ),
    })
}

/// The members one of which is wrong.
fn suspects(scrub: &LastScrub) -> String {
    let suspects = scrub.members.iter().filter(|member| member.unexplained_sectors > 0);
    let suspects: Vec<&str> = suspects.map(|member| &*member.device).collect();
    match suspects.is_empty() {
        true => String::new(),
        false => format!("; {} do not agree", suspects.join(", ")),
    }
}
