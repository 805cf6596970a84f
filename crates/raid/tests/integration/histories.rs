//! Lives in which members are away or fail and the power goes, judged by what was acknowledged.
//!
//! Any two sets of members that suffice for a start have one in common, so that each start can know
//! of everything that was acknowledged before it; and it must then return it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::support::machine::{Devices, Machine, attempt};
use crate::support::{STRIP, read};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::{BlockDevice, Buffer, Request, RequestFlags, RequestKind, Runtime};
use headpond_raid::{Array, AssembleError, Level};
use headpond_sim::{Ended, Random};

/// What each strip of data may hold, by its number: the value acknowledged last, and those of
/// writes that were not.
#[derive(Default)]
struct Allowed(BTreeMap<u64, Vec<u64>>);

/// How lives began.
#[derive(Debug, Default)]
struct Tally {
    healthy: u32,
    degraded: u32,
    refused: u32,
    diverged: u32,
}

/// What befalls one life.
struct Fate {
    present: Vec<usize>,
    /// Place in `present` of a member that fails, and after how many operations of a kind.
    failing: Option<(usize, RequestKind, u64)>,
    cut_after: Option<u64>,
    writes: u64,
    stops: bool,
}

impl Fate {
    fn draw(random: &mut Random, members: usize) -> Fate {
        let mut present: Vec<usize> = (0..members).collect();
        random.shuffle(&mut present);
        // Not more away than the level bears.
        let away = if random.one_in(2) { 0 } else { random.below(members as u64 / 2 + 1) };
        present.truncate(members - away as usize);
        let failing = random.one_in(8).then(|| {
            let kind = *random.pick(&[RequestKind::Write, RequestKind::Flush]);
            (random.below(members as u64) as usize, kind, random.below(12))
        });
        Fate {
            present,
            failing,
            // Most cuts come while it starts.
            cut_after: random.one_in(2).then(|| {
                let operations = *random.pick(&[4, 4, 16]);
                random.below(operations * members as u64)
            }),
            writes: if random.one_in(2) { random.below(6) } else { 0 },
            stops: random.one_in(2),
        }
    }

    fn befall(&self, mut devices: Devices, runtime: &Runtime) -> Devices {
        for (place, device) in devices.iter_mut().enumerate() {
            let control = FaultControl::default();
            if let Some((failing, kind, after)) = self.failing
                && failing == place
            {
                control.add(FaultRule { after, ..FaultRule::on(kind, Fault::Media) });
            }
            *device = Rc::new(FaultDevice::new(device.clone(), control, runtime.clone()));
        }
        devices
    }
}

/// One life: what is read must be allowed; what is then written is allowed from then on.
async fn live(
    devices: Devices,
    fate: &Fate,
    allowed: &RefCell<Allowed>,
    random: &mut Random,
    context: &str,
) -> Result<bool, AssembleError> {
    let assembled = attempt(devices).await?;
    let (array, is_healthy) = (assembled.array, assembled.missing.is_empty());
    let strips: Vec<u64> = allowed.borrow().0.keys().copied().collect();
    for strip in strips {
        // A member may fail just now, so that nothing can be read any more: no wrong answer.
        let Ok(bytes) = read(&array, strip * u64::from(STRIP), 512).await else { continue };
        let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        let values = allowed.borrow_mut().0.insert(strip, vec![found]).unwrap();
        assert!(values.contains(&found), "{context}: strip {strip} holds {found} of {values:?}");
    }
    for _ in 0..fate.writes {
        write_some(&array, allowed, random).await;
    }
    if fate.stops {
        // Where too much has failed it is not shut down cleanly, and may say so.
        let _ = array.stop().await;
    }
    Ok(is_healthy)
}

async fn write_some(array: &Array, allowed: &RefCell<Allowed>, random: &mut Random) {
    let strips = array.geometry().size_bytes / u64::from(STRIP);
    let (strip, value) = (random.below(strips), random.number());
    allowed.borrow_mut().0.entry(strip).or_insert_with(|| vec![0]).push(value);
    let data = Buffer::from_slice(&value.to_le_bytes().repeat(64));
    let request = Request::write(strip * u64::from(STRIP), data).with_flags(RequestFlags::FUA);
    if array.submit(request).await.is_ok() {
        allowed.borrow_mut().0.insert(strip, vec![value]);
    }
}

fn lives(seed: u64, level: Level, members: usize, tally: &mut Tally) {
    let machine = Machine::with_array(members, level);
    let allowed = RefCell::new(Allowed::default());
    let mut random = Random::new(seed);
    let mut all_came = true;
    for number in 0..5 {
        let fate = Fate::draw(&mut random, members);
        all_came &= fate.present.len() == members;
        let context = format!("{level:?}, seed {seed}, life {number}");
        fate.cut_after.inspect(|after| machine.power.cut_after(*after));
        let mut random = random.fork();
        let ended = machine.live(seed + number, &fate.present, async |devices, runtime| {
            live(fate.befall(devices, &runtime), &fate, &allowed, &mut random, &context).await
        });
        match ended {
            Ended::Finished(Ok(true)) => tally.healthy += 1,
            Ended::Finished(Ok(false)) => tally.degraded += 1,
            Ended::Finished(Err(AssembleError::Diverged { .. })) => {
                assert!(!all_came, "{context}: a single history is taken for two");
                tally.diverged += 1;
            }
            Ended::Finished(Err(_)) => tally.refused += 1,
            Ended::Cut => {}
        }
    }
}

#[test]
fn after_any_losses_and_cuts_an_array_that_starts_has_its_durable_data() {
    let mut tally = Tally::default();
    for seed in 0..10000 {
        lives(seed, Level::Raid5, 3, &mut tally);
        lives(seed, Level::Raid6, 5, &mut tally);
    }
    let Tally { healthy, degraded, refused, diverged } = tally;
    let tally = [healthy, degraded, refused, diverged];
    assert!(healthy > 5000 && degraded > 4000 && refused > 3000 && diverged > 0, "{tally:?}");
}
