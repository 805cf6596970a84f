//! What a scrub has found, while it goes on and afterwards.

use headpond_block::{DeviceName, UtcTime};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Findings that are listed one by one.
const FINDINGS_MAX: usize = 256;

/// Findings of a scrub so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ScrubReport {
    pub stripes: u64,
    /// Unreadable strips that were rewritten.
    pub rewritten: u64,
    /// Mismatched sectors that were repaired.
    pub corrected_sectors: u64,
    /// Those of them that were located by a checksum, of the integrity region or of a cache.
    pub located_by_checksum: u64,
    /// Mismatched sectors that could not be located.
    pub unexplained_sectors: u64,
    /// Stripes with a strip that can neither be read nor reconstructed.
    pub unreadable_stripes: u64,
    /// The first of them on the array.
    pub findings: Vec<Finding>,
}

/// A finding that a scrub could not repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// First byte of the stripe, on the array.
    pub stripe_start: u64,
    pub stripe_bytes: u64,
    pub what: Trouble,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Trouble {
    /// Data and redundancy do not match, and it is unknown which is wrong.
    Unexplained,
    /// It cannot be read.
    Unreadable,
}

/// The newest scrub of an array: one that goes on, or the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LastScrub {
    pub state: ScrubState,
    pub began_at: UtcTime,
    /// Of a complete one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<UtcTime>,
    /// Without interruptions.
    pub took_s: u64,
    /// What it could not repair was acknowledged.
    #[serde(default)]
    pub is_cleared: bool,
    #[serde(flatten)]
    pub report: ScrubReport,
    /// Of each member with findings.
    #[serde(default)]
    pub members: Vec<MemberScrub>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    Running,
    /// It goes on later where it was.
    Interrupted,
    Complete,
}

/// Findings of a scrub on one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct MemberScrub {
    pub uuid: Uuid,
    pub device: String,
    /// Mismatched sectors that were repaired on it.
    pub repaired_sectors: u64,
    /// Unreadable strips that were rewritten on it.
    pub rewritten_strips: u64,
    /// Mismatched sectors of stripes that it has a part of, where the wrong member is unknown.
    pub unexplained_sectors: u64,
}

impl LastScrub {
    pub(crate) fn beginning(at: UtcTime) -> LastScrub {
        LastScrub {
            state: ScrubState::Running,
            began_at: at,
            ended_at: None,
            took_s: 0,
            is_cleared: false,
            report: ScrubReport::default(),
            members: Vec::new(),
        }
    }

    /// Whether it found what it could not repair, and that was not acknowledged.
    pub fn is_unsound(&self) -> bool {
        let ScrubReport { unexplained_sectors, unreadable_stripes, .. } = self.report;
        !self.is_cleared && unexplained_sectors + unreadable_stripes > 0
    }

    /// The findings on a member.
    pub(crate) fn member(&mut self, uuid: Uuid, device: &DeviceName) -> &mut MemberScrub {
        let at = self.members.iter().position(|it| it.uuid == uuid);
        let at = at.unwrap_or_else(|| {
            let device = device.to_string();
            self.members.push(MemberScrub { uuid, device, ..MemberScrub::default() });
            self.members.len() - 1
        });
        &mut self.members[at]
    }

    /// One more finding.
    pub(crate) fn note(&mut self, finding: Finding) {
        match finding.what {
            Trouble::Unexplained => self.report.unexplained_sectors += 1,
            Trouble::Unreadable => self.report.unreadable_stripes += 1,
        }
        let findings = &mut self.report.findings;
        if findings.len() < FINDINGS_MAX && findings.last() != Some(&finding) {
            findings.push(finding);
        }
    }
}
