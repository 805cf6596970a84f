//! What an array costs by itself: 4 KiB requests on members that do nothing, one thread, depth 32.
//!
//! Members answer at once, or, as hardware does, later: then an operation is watched, and what it
//! reads lands in memory of the array's own. The limit of a row is the bare member.

use std::future::poll_fn;
use std::hint::black_box;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use headpond_block::devices::NullDevice;
use headpond_block::devices::RamDevice;
use headpond_block::sync::join_all;
use headpond_block::{
    BlockDevice, Buffer, Executor, Geometry, Order, Request, Runtime, Submission, VirtualClock,
};
use headpond_raid::{
    AssembleOptions, Contents, CreateOptions, Deadlines, Integrity, Intent, JournalOptions,
    JournalWhen, Level, Occupied, Striping, Tuning, assemble, create, create_journal,
};
use uuid::Uuid;

const DEPTH: u64 = 32;
const TURNS: u64 = 20_000;

/// A label in memory, and nothing behind it.
struct LabelledNull {
    label: RamDevice,
    data: NullDevice,
    answers: Answers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answers {
    AtOnce,
    Later,
}

impl BlockDevice for LabelledNull {
    fn name(&self) -> &headpond_block::DeviceName {
        self.data.name()
    }

    fn geometry(&self) -> &headpond_block::Geometry {
        self.data.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if request.range.end() <= self.label.geometry().size_bytes {
            return self.label.submit(request);
        }
        // A null read fills memory with zeros; a member of a benchmark does not even do that.
        match self.answers {
            Answers::AtOnce => Submission::ready(Ok(())),
            Answers::Later => Submission::pending(async {
                let mut polled = false;
                poll_fn(|context| {
                    if std::mem::replace(&mut polled, true) {
                        return Poll::Ready(());
                    }
                    context.waker().wake_by_ref();
                    Poll::Pending
                })
                .await;
                Ok(())
            }),
        }
    }
}

fn main() {
    let executor = Executor::new(Box::new(VirtualClock::default()), Order::Fifo);
    executor.block_on(measure(&executor.runtime())).expect("nothing waits");
}

async fn measure(runtime: &Runtime) {
    let cases = [
        (Answers::AtOnce, Some(Deadlines::default())),
        (Answers::Later, None),
        (Answers::Later, Some(Deadlines::default())),
    ];
    for (answers, deadlines) in cases {
        let with = if deadlines.is_some() { "with" } else { "without" };
        println!("members that answer {answers:?}, {with} deadlines");
        measure_arrays(runtime, answers, deadlines).await;
    }
}

async fn measure_arrays(runtime: &Runtime, answers: Answers, deadlines: Option<Deadlines>) {
    let bare: Rc<dyn BlockDevice> = member(0, answers);
    let limit = row("bare", &*bare, 0.0, Kind::Read).await;
    for (level, count, groups) in
        [(Level::Raid0, 4, 1), (Level::Raid10, 4, 2), (Level::Raid6, 10, 1), (Level::Raid60, 40, 4)]
    {
        let members: Vec<Rc<dyn BlockDevice>> =
            (0..count).map(|index| member(index, answers)).collect();
        create(&members, &options(level, groups)).await.expect("created");
        let tuning = Tuning { deadlines, ..Tuning::default() };
        let how = AssembleOptions { tuning, ..AssembleOptions::default() };
        let assembled = assemble(runtime, members, how).await.expect("assembled");
        for kind in [Kind::Read, Kind::Write] {
            let name = format!("{level} {kind:?} 4k");
            let nanos = row(&name, &assembled.array, limit, kind).await;
            if deadlines.is_some() {
                report(&format!("{name}, null members, {answers:?}"), nanos, limit);
            }
        }
    }
    measure_degraded(runtime, answers, limit).await;
}

fn options(level: Level, groups: usize) -> CreateOptions {
    CreateOptions {
        name: "bench".into(),
        uuid: Uuid::from_u128(1),
        level,
        groups,
        declustered: None,
        striping: Striping::Plain,
        strip_bytes: 64 << 10,
        contents: Contents::Zeros,
        intent: Intent::None,
        integrity: Integrity::None,
        occupied: Occupied::Refuse,
        owner: None,
        journal: None,
    }
}

/// RAID 6 without one of ten members, with and without a stripe journal in memory.
async fn measure_degraded(runtime: &Runtime, answers: Answers, limit: f64) {
    for uuid in [None, Some(Uuid::from_u128(2))] {
        let members: Vec<Rc<dyn BlockDevice>> =
            (0..10).map(|index| member(index, answers)).collect();
        let journal = uuid.map(|uuid| JournalOptions { uuid, when: JournalWhen::Always });
        let options = CreateOptions { journal, ..options(Level::Raid6, 1) };
        let record = create(&members, &options).await.expect("created");
        let ring = RamDevice::with_geometry("journal", Geometry::of_size(64 << 20));
        let journal: Option<Rc<dyn BlockDevice>> = uuid.map(|_| Rc::new(ring) as Rc<_>);
        if let Some(journal) = &journal {
            create_journal(&**journal, &record, Occupied::Refuse).await.expect("created");
        }
        let how = AssembleOptions {
            journals: journal.into_iter().collect(),
            ..AssembleOptions::default()
        };
        let assembled = assemble(runtime, members[1..].to_vec(), how).await.expect("assembled");
        let with = if uuid.is_some() { "with" } else { "without" };
        let name = format!("RAID 6 degraded, {with} journal Write 4k");
        row(&name, &assembled.array, limit, Kind::Write).await;
    }
}

fn member(index: usize, answers: Answers) -> Rc<dyn BlockDevice> {
    let name = format!("n{index}");
    let label = RamDevice::new(name.as_str(), 1 << 20);
    Rc::new(LabelledNull { label, data: NullDevice::new(name.as_str(), 4 << 40), answers })
}

/// The row as `make bench` reads it, where more is better.
fn report(name: &str, nanos: f64, limit: f64) {
    let [ours, limit] = [nanos, limit].map(|nanos| 1e6 / nanos);
    println!(r#"{{"name":"{name}","unit":"k/s","ours":{ours:.0},"limit":{limit:.0}}}"#);
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Read,
    Write,
}

/// Nanoseconds a request, the median of five rounds.
async fn row(name: &str, device: &dyn BlockDevice, limit: f64, kind: Kind) -> f64 {
    let memory = Buffer::zeroed(4096);
    let mut rounds = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        for turn in 0..TURNS / DEPTH {
            let mut waiting = Vec::new();
            for index in 0..DEPTH {
                let offset = (turn * DEPTH + index) * 7_654_321 % (1 << 38) * 4096 % (1 << 40);
                let offset = offset + (2 << 20);
                let request = match kind {
                    Kind::Read => Request::read(offset, &memory),
                    Kind::Write => Request::write(offset, &memory),
                };
                match black_box(device.submit(request)).now_or() {
                    Ok(outcome) => outcome.expect("done"),
                    Err(pending) => waiting.push(pending),
                }
            }
            join_all(waiting).await.into_iter().for_each(|outcome| outcome.expect("done"));
        }
        rounds.push(start.elapsed().as_nanos() as f64 / TURNS as f64);
    }
    rounds.sort_by(f64::total_cmp);
    let nanos = rounds[2];
    println!("{name:<22} {nanos:>8.0} ns/op   {:>8.0} over the bare member", nanos - limit);
    nanos
}
