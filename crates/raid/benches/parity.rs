//! P, P+Q and recoveries by every kernel of this processor, beside memcpy of the same bytes and
//! Intel's ISA-L where it is installed (`libisal.so.2`; Debian: libisal2).
//!
//! Rates count data bytes, for memcpy as for parity. Every round measures memcpy and all kernels
//! one after the other, so that a noisy moment hits both; each figure is the median.

#[path = "parity/isal.rs"]
mod isal;

use std::hint::black_box;
use std::time::Instant;

use headpond_block::Buffer;
use headpond_raid::parity::{Kernel, active, available, coefficient};
use isal::IsaL;

/// Data strips, and the bytes of each.
#[derive(Clone, Copy)]
struct Shape {
    strips: usize,
    bytes: usize,
    name: &'static str,
}

const SHAPES: [Shape; 3] = [
    Shape { strips: 8, bytes: 64 << 10, name: "8x64k" },
    Shape { strips: 10, bytes: 8 << 10, name: "10x8k" },
    Shape { strips: 10, bytes: 1 << 20, name: "10x1m" },
];
/// Data bytes measured at a time.
const ROUND_BYTES: usize = 50 << 20;
const ROUNDS: usize = 41;

/// One measured line: its name, and its rate in each round.
struct Row<'a> {
    name: String,
    turn: Box<dyn FnMut() + 'a>,
    rates: Vec<f64>,
}

fn main() {
    let isal = IsaL::load();
    if isal.is_none() {
        println!("SKIPPED beside ISA-L: libisal.so.2 is not installed");
    }
    SHAPES.into_iter().for_each(|shape| measure(shape, isal.as_ref()));
}

fn measure(shape: Shape, isal: Option<&IsaL>) {
    let memory: Vec<Buffer> = (0..shape.strips).map(|k| strip(shape, k)).collect();
    // SAFETY: nothing writes to the strips while they are measured.
    let data: Vec<&[u8]> = memory.iter().map(|strip| unsafe { strip.as_slice() }).collect();
    let mut rows = vec![memcpy(shape, &data)];
    rows.extend(available().into_iter().flat_map(|kernel| kernel_rows(shape, kernel, &data)));
    rows.extend(isal.into_iter().flat_map(|isal| isal_rows(shape, isal, &data)));
    let turns = ROUND_BYTES / (shape.strips * shape.bytes);
    for _ in 0..ROUNDS {
        for row in &mut rows {
            let start = Instant::now();
            (0..turns).for_each(|_| (row.turn)());
            let bytes = (shape.strips * shape.bytes * turns) as f64;
            row.rates.push(bytes / start.elapsed().as_nanos() as f64);
        }
    }
    report(shape, rows);
}

fn report(shape: Shape, mut rows: Vec<Row<'_>>) {
    let rates: Vec<(String, f64)> =
        rows.iter_mut().map(|row| (row.name.clone(), row.median())).collect();
    let find = |name: &str| rates.iter().find(|row| row.0 == name).map(|row| row.1);
    let limit = rates[0].1;
    for (name, rate) in &rates {
        let work = name.rsplit_once(' ').map_or("", |(work, _)| work);
        let rival =
            find(&format!("{work} isa-l")).map(|rival| format!("{:.2} of ISA-L", rate / rival));
        let rival = rival.unwrap_or_default();
        println!("{name:<30} {rate:>8.1} GB/s   {:>5.2} of memcpy   {rival}", rate / limit);
    }
    for work in ["p", "pq"] {
        let (work, name) = (format!("{work} {}", shape.name), active().name());
        let ours = find(&format!("{work} {name}")).expect("measured");
        let rival = find(&format!("{work} isa-l"));
        let rival = rival.map(|rival| format!(r#","rival":{rival:.2}"#)).unwrap_or_default();
        println!(
            r#"{{"name":"parity {work}","unit":"GB/s","ours":{ours:.2},"limit":{limit:.2}{rival}}}"#
        );
    }
}

impl<'a> Row<'a> {
    fn new(name: String, turn: impl FnMut() + 'a) -> Row<'a> {
        Row { name, turn: Box::new(turn), rates: Vec::new() }
    }

    fn median(&mut self) -> f64 {
        self.rates.sort_by(f64::total_cmp);
        self.rates[ROUNDS / 2]
    }
}

fn memcpy<'a>(shape: Shape, data: &'a [&'a [u8]]) -> Row<'a> {
    let copies: Vec<Buffer> = data.iter().map(|_| Buffer::zeroed(shape.bytes)).collect();
    Row::new(format!("memcpy {}", shape.name), move || {
        for (copy, strip) in copies.iter().zip(data) {
            copy.copy_from(black_box(strip));
        }
        black_box(&copies);
    })
}

fn kernel_rows<'a>(shape: Shape, kernel: &'static Kernel, data: &'a [&'a [u8]]) -> [Row<'a>; 5] {
    let strips: Vec<Option<&[u8]>> = data.iter().map(|strip| Some(*strip)).collect();
    let name = |work: &str| format!("{work} {} {}", shape.name, kernel.name());
    let memory = [(); 8].map(|()| Buffer::zeroed(shape.bytes));
    // SAFETY: each slice is the only one of its buffer, and lives as long as the row that has it.
    let [p, q, sum, old_p, old_q, lost, two_p, two_q] = memory
        .map(|memory| Box::leak(Box::new(memory)))
        .map(|memory| unsafe { memory.as_mut_slice() });
    let pieces = shape.strips;
    [
        Row::new(name("pq"), move || kernel.pq(p, q, black_box(&strips))),
        Row::new(name("p"), move || kernel.sum(sum, black_box(data))),
        // The arithmetic of a read-modify-write of each strip in turn.
        Row::new(name("patch"), move || {
            for (k, strip) in (0..).zip(data) {
                kernel.add(old_p, &[strip]);
                kernel.add_multiple(old_q, coefficient(k), strip);
            }
        }),
        // What solving costs once the remainders are there, as often as there are strips.
        Row::new(name("solve-one"), move || {
            (0..pieces).for_each(|_| kernel.scale(lost, 0x8e));
        }),
        Row::new(name("solve-two"), move || {
            (0..pieces).for_each(|_| kernel.solve_two(two_p, two_q, 0x8e, 0x47));
        }),
    ]
}

fn isal_rows<'a>(shape: Shape, isal: &'a IsaL, data: &'a [&'a [u8]]) -> [Row<'a>; 2] {
    let [sum, p, q] = [(); 3].map(|()| Buffer::zeroed(shape.bytes));
    [
        Row::new(format!("p {} isa-l", shape.name), move || isal.p(black_box(data), &sum)),
        Row::new(format!("pq {} isa-l", shape.name), move || isal.pq(black_box(data), &p, &q)),
    ]
}

fn strip(shape: Shape, k: usize) -> Buffer {
    let bytes: Vec<u8> = (0..shape.bytes).map(|i| (i * 31 + k * 7) as u8).collect();
    Buffer::from_slice(&bytes)
}
