//! How long the cache device lasts: what is written to it at the pace of the trace, against what
//! its maker says may be.

use crate::search::Expected;
use crate::signature::Signature;
use crate::situation::Situation;
use headpond_report::size;
use headpond_whatif::Endurance;
use serde::Serialize;

/// Drive writes a day that a data-centre drive is made for: more is warned of where the rating is
/// not known.
const WRITES_PER_DAY_MAX: f64 = 1.0;
/// Longer than that says no more than that it lasts.
const YEARS_SHOWN_MAX: f64 = 100.0;
const DAY_NS: f64 = 86_400e9;

/// The wear of the cache device under the replayed load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Wear {
    /// Written to it, if the trace goes on as it was.
    pub bytes_per_day: f64,
    /// Of the whole device.
    pub drive_writes_per_day: f64,
    /// As specified.
    pub endurance: Option<Endurance>,
    pub rated_bytes: Option<f64>,
    pub warranty_years: Option<f64>,
    /// Until as much is written as may be.
    pub years: Option<f64>,
}

impl Wear {
    /// None where nothing wears out, or the trace does not tell how long it took.
    pub fn of(signature: &Signature, situation: &Situation, expected: &Expected) -> Option<Self> {
        let requests_per_day = requests_per_day(signature)?;
        let drive_bytes = drive_bytes(situation)?;
        let bytes_per_day = expected.cache_bytes_per_request * requests_per_day;
        let endurance = situation.stack.cache.as_ref()?.endurance;
        let years = endurance.filter(|_| bytes_per_day > 0.0);
        Some(Self {
            bytes_per_day,
            drive_writes_per_day: bytes_per_day / drive_bytes as f64,
            endurance,
            rated_bytes: endurance.map(|it| it.bytes(drive_bytes)),
            warranty_years: endurance.map(Endurance::warranty_years),
            years: years.map(|it| it.years(drive_bytes, bytes_per_day)),
        })
    }

    /// Whether it is worn out before its warranty ends.
    pub fn is_short(&self) -> bool {
        self.years.zip(self.warranty_years).is_some_and(|(years, warranty)| years < warranty)
    }

    /// One line of the answer, where the rating is known.
    pub fn told(&self) -> Option<String> {
        let (endurance, warranty) = self.endurance.zip(self.warranty_years)?;
        let lasts = match self.years {
            Some(years) if years <= YEARS_SHOWN_MAX => format!("lasts {years:.1} years"),
            _ => format!("lasts more than {YEARS_SHOWN_MAX} years"),
        };
        Some(format!(
            "The cache device {lasts} at this load: {} a day are written to it, of a rating of \
             {endurance} (warranty {warranty} years)",
            size(self.bytes_per_day as u64)
        ))
    }

    /// What to say against it.
    pub(crate) fn warning(&self) -> Option<String> {
        let per_day = size(self.bytes_per_day as u64);
        match (self.years, self.warranty_years) {
            (Some(years), Some(warranty)) => self.is_short().then(|| {
                let needed = self.bytes_per_day * 365.0 * warranty / 1e12;
                format!(
                    "at the pace of the trace the cache device is worn out in {years:.1} years, \
                     before its warranty of {warranty} years ends ({per_day} a day): take one that \
                     is rated for {needed:.0}TB ({:.1}DWPD), or ask for --goal endurance",
                    self.drive_writes_per_day
                )
            }),
            _ => (self.endurance.is_none() && self.drive_writes_per_day > WRITES_PER_DAY_MAX).then(
                || {
                    format!(
                        "at the pace of the trace the cache device is written {:.1} times over a \
                         day ({per_day} a day): specify what it is made for (--cache-endurance), \
                         or ask for --goal endurance",
                        self.drive_writes_per_day
                    )
                },
            ),
        }
    }
}

/// What may be written for each request, so that the cache device lasts as long as its warranty.
pub(crate) fn lasting_bytes_per_request(
    signature: &Signature,
    situation: &Situation,
) -> Option<f64> {
    let endurance = situation.stack.cache.as_ref()?.endurance?;
    let per_day = endurance.bytes_per_day(drive_bytes(situation)?);
    Some(per_day / requests_per_day(signature)?)
}

fn requests_per_day(signature: &Signature) -> Option<f64> {
    let is_known = signature.duration_ns > 0 && signature.requests > 0;
    is_known.then(|| signature.requests as f64 / signature.duration_ns as f64 * DAY_NS)
}

/// Of the device that the cache is on, where it wears out; of the cache where the device is not
/// known.
fn drive_bytes(situation: &Situation) -> Option<u64> {
    let cache = situation.stack.cache.as_ref().filter(|_| !situation.cache_is_lost_on_power)?;
    let model = situation.stack.parts().ok().and_then(|parts| parts.cache);
    let bytes = model.and_then(|model| model.capacity_bytes()).unwrap_or(0);
    Some(bytes.max(cache.size.bytes()).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Job, situation};
    use headpond_trace::Op;

    /// A million requests a day.
    fn signature() -> Signature {
        let job = Job { service_ns: 86_400_000, ..Job::new(1, 1001, 4096) };
        Signature::of_records(&job.run(|n| (Op::Write, n * 4096)))
    }

    fn wear(cache: &str, bytes_per_request: f64) -> Option<Wear> {
        let expected = Expected { cache_bytes_per_request: bytes_per_request, ..Expected::NOTHING };
        Wear::of(&signature(), &situation(cache), &expected)
    }

    const CACHE: &str = "size = \"64G\"\nmodel = \"nvme-dc-2t\"\n";

    #[test]
    fn drive_lasts_by_what_is_written_to_it_a_day() {
        let rated = format!("{CACHE}endurance = \"3650TB\"\n");
        let wear = wear(&rated, 1e6).expect("flash wears out");
        assert!((wear.bytes_per_day - 1e12).abs() < 2e9, "{wear:?}");
        assert!((wear.drive_writes_per_day - 0.5).abs() < 0.05, "of the drive: {wear:?}");
        assert!((wear.years.unwrap() - 10.0).abs() < 0.1, "{wear:?}");
        assert!(!wear.is_short() && wear.warning().is_none());
        let told = wear.told().unwrap();
        assert!(told.starts_with("The cache device lasts 10.0 years at this load"), "{told}");
        assert!(told.contains("a rating of 3650TB (warranty 5 years)"), "{told}");
    }

    #[test]
    fn drive_that_is_worn_out_before_its_warranty_is_warned_of() {
        let rated = format!("{CACHE}endurance = \"3650TB\"\n");
        let wear = wear(&rated, 4e6).unwrap();
        assert!(wear.is_short());
        let warning = wear.warning().unwrap();
        assert!(warning.contains("worn out in 2.5 years, before its warranty of 5"), "{warning}");
        assert!(warning.contains("TB (2.") && warning.contains("--goal endurance"), "{warning}");
        let longer = rated.replace("3650TB", "3650TB/2y");
        assert!(!super::tests::wear(&longer, 4e6).unwrap().is_short());
    }

    #[test]
    fn without_a_rating_many_drive_writes_a_day_are_warned_of() {
        let few = wear(CACHE, 1e6).unwrap();
        assert_eq!((few.years, few.told(), few.warning()), (None, None, None));
        let warning = wear(CACHE, 8e6).unwrap().warning().unwrap();
        assert!(warning.contains("--cache-endurance"), "{warning}");
    }

    #[test]
    fn memory_does_not_wear_out() {
        assert_eq!(wear("size = \"64G\"\n", 8e6), None);
    }

    #[test]
    fn what_may_be_written_for_a_request_makes_it_last_its_warranty() {
        let rated = situation(&format!("{CACHE}endurance = \"3650TB\"\n"));
        let most = lasting_bytes_per_request(&signature(), &rated).unwrap();
        assert!((most - 2e6).abs() < 4e3, "{most}");
        let expected = Expected { cache_bytes_per_request: most, ..Expected::NOTHING };
        let years = Wear::of(&signature(), &rated, &expected).unwrap().years.unwrap();
        assert!((years - 5.0).abs() < 1e-6, "{years}");
    }
}
