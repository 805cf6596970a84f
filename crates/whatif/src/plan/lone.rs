//! How long a small request takes with nothing else in flight.
//!
//! First every drive that is to be read is read, and the slowest counts; then everything is
//! written.
//!
//! - *The slowest of k*: where one takes *m* in the mean with a deviation of *s*, it takes
//!   m + sqrt(3) s (k - 1) / (k + 1). That is exact for times that are spread evenly, and 2 to 8 %
//!   of *s* short for those of a normal distribution with two to twelve.
//! - *Writes* that a drive's cache answers take the electronics. Without such a cache, the place
//!   that was read has just passed under the heads of the last drive, so that what goes back to
//!   where it was read takes one turn; what goes elsewhere seeks first.
//! - *Reads behind writes*: what a cache has answered is on its way to the medium when the next
//!   request comes, which meets it on *w* of *n* drives. It takes what is left of a turn, R for the
//!   drive that was read last and R/2 in the mean for the others: R (k + 1) / 2k of all.
//!
//! **Source**: H. A. David, H. N. Nagaraja, "Order Statistics", 3rd edition, 2003, section 2.2 (the
//! largest of k even times); P. Chen and others, ACM Computing Surveys 26(2), 1994, section 3.2 (a
//! small write waits for a whole turn between reading and writing).

use super::accesses::Accesses;
use super::drive::DriveFigures;

/// In ms, of a request among others of `usual` accesses that came before it, on so many drives.
pub(super) fn request_ms(
    drive: &DriveFigures,
    members: usize,
    request: &Accesses,
    usual: &Accesses,
) -> f64 {
    reading_ms(drive, members, request, usual) + writing_ms(drive, request)
}

fn reading_ms(drive: &DriveFigures, members: usize, request: &Accesses, usual: &Accesses) -> f64 {
    if request.reads == 0.0 {
        return 0.0;
    }
    let (mut mean, mut variance) = (drive.lone_read_ms, drive.lone_read_deviation_ms.powi(2));
    if drive.answers_from_its_cache() && drive.revolution_ms > 0.0 {
        let chance = |writes: f64| writes / members as f64;
        let back = drive.revolution_ms * (usual.reads + 1.0) / (2.0 * usual.reads.max(1.0));
        let (returns, others) = (chance(usual.returns), chance(usual.writes - usual.returns));
        let waited = returns * back + others * drive.lone_read_ms;
        let squared = returns * back.powi(2) + others * drive.lone_read_ms.powi(2);
        mean += waited;
        variance += squared - waited.powi(2);
    }
    slowest(request.reads, mean, variance.sqrt())
}

fn writing_ms(drive: &DriveFigures, request: &Accesses) -> f64 {
    let elsewhere = request.writes - request.returns;
    if request.writes == 0.0 {
        0.0
    } else if drive.answers_from_its_cache() {
        drive.lone_write_ms()
    } else if elsewhere == 0.0 {
        drive.revolution_ms
    } else {
        let turn = if request.returns > 0.0 { drive.revolution_ms } else { 0.0 };
        slowest(elsewhere, drive.lone_write_ms(), drive.lone_read_deviation_ms).max(turn)
    }
}

/// The mean of the slowest of so many.
fn slowest(count: f64, mean_ms: f64, deviation_ms: f64) -> f64 {
    assert!(count >= 1.0, "of nothing nobody is the slowest");
    mean_ms + 3f64.sqrt() * deviation_ms * (count - 1.0) / (count + 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(strips: f64) -> Accesses {
        Accesses { reads: strips, writes: strips, returns: strips }
    }

    #[test]
    fn the_slowest_of_evenly_spread_times_is_where_order_statistics_say() {
        // Of 0 to 1: mean 1/2, deviation 1/sqrt(12), the largest of k at k / (k + 1).
        for count in 1..=12 {
            let count = f64::from(count);
            let found = slowest(count, 0.5, 12f64.sqrt().recip());
            assert!((found - count / (count + 1.0)).abs() < 1e-9, "{count}: {found}");
        }
    }

    #[test]
    fn without_a_write_cache_a_patch_waits_a_turn_for_what_it_has_read() {
        let cached = DriveFigures::find("hdd-14t").unwrap();
        let bare = DriveFigures { lone_write_ms: Some(12.5), ..cached.clone() };
        let write = patched(3.0);
        let took = request_ms(&bare, 12, &write, &write);
        let reads = bare.lone_read_ms + 3f64.sqrt() * bare.lone_read_deviation_ms / 2.0;
        assert!((took - reads - bare.revolution_ms).abs() < 1e-9, "{took}");
        // With one the write is answered at once, and the next read meets it.
        let took = request_ms(&cached, 12, &write, &write);
        assert!(took > reads + 1.0 && took < reads + bare.revolution_ms / 2.0, "{took} {reads}");
        let more = request_ms(&cached, 1000, &write, &write);
        assert!(more < took && more > reads, "on many drives it hardly ever does: {more}");
    }

    #[test]
    fn what_was_not_read_before_is_sought_for() {
        let drive = DriveFigures::find("hdd-14t").unwrap();
        let bare = DriveFigures { lone_write_ms: Some(12.5), ..drive };
        let anew = Accesses { returns: 0.0, ..patched(2.0) };
        let (anew, back) = (writing_ms(&bare, &anew), writing_ms(&bare, &patched(2.0)));
        assert!(anew > 12.5 && back == bare.revolution_ms, "{anew} {back}");
        assert_eq!(writing_ms(&bare, &Accesses { reads: 1.0, ..Accesses::default() }), 0.0);
    }
}
