//! P+Q of 8 x 64 KiB by every kernel of this processor, beside memcpy of the same bytes.
//!
//! Rates count data bytes: 512 KiB a turn, for memcpy as for parity. Every round measures memcpy
//! and all kernels one after the other, so that a noisy moment hits both; each figure is the
//! median.

use std::hint::black_box;
use std::time::Instant;

use headpond_raid::parity::{Kernel, active, available, coefficient};

const STRIP_BYTES: usize = 64 << 10;
const DATA_STRIPS: usize = 8;
const TURNS: usize = 100;
const ROUNDS: usize = 41;

/// One measured line: its name, and its rate in each round.
struct Row<'a> {
    name: String,
    turn: Box<dyn FnMut() + 'a>,
    rates: Vec<f64>,
}

fn main() {
    let data: Vec<Vec<u8>> = (0..DATA_STRIPS).map(strip).collect();
    let mut rows = vec![memcpy(&data)];
    rows.extend(available().into_iter().flat_map(|kernel| kernel_rows(kernel, &data)));
    for _ in 0..ROUNDS {
        for row in &mut rows {
            row.rates.push(rate(&mut row.turn));
        }
    }
    let limit = rows[0].median();
    for row in &mut rows {
        let rate = row.median();
        println!("{:<28} {rate:>8.1} GB/s   {:>5.2} of memcpy", row.name, rate / limit);
    }
    let name = format!("pq 8x64k {}", active().name());
    let ours = rows.iter_mut().find(|row| row.name == name).expect("measured").median();
    println!(r#"{{"name":"parity pq 8x64k","unit":"GB/s","ours":{ours:.2},"limit":{limit:.2}}}"#);
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

fn memcpy(data: &[Vec<u8>]) -> Row<'_> {
    let mut copies = vec![vec![0_u8; STRIP_BYTES]; DATA_STRIPS];
    Row::new("memcpy 8x64k".to_owned(), move || {
        for (copy, strip) in copies.iter_mut().zip(data) {
            copy.copy_from_slice(black_box(strip));
        }
        black_box(&copies);
    })
}

fn kernel_rows<'a>(kernel: &'static Kernel, data: &'a [Vec<u8>]) -> [Row<'a>; 3] {
    let parity = || (vec![0_u8; STRIP_BYTES], vec![0_u8; STRIP_BYTES]);
    let strips: Vec<Option<&[u8]>> = data.iter().map(|strip| Some(&strip[..])).collect();
    let sources: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let name = kernel.name();
    let (mut p, mut q) = parity();
    let (mut sum, _) = parity();
    let (mut old_p, mut old_q) = parity();
    [
        Row::new(format!("pq 8x64k {name}"), move || {
            kernel.pq(&mut p, &mut q, black_box(&strips));
        }),
        Row::new(format!("p 8x64k {name}"), move || kernel.add(&mut sum, black_box(&sources))),
        // The arithmetic of a read-modify-write of each strip in turn.
        Row::new(format!("patch pq 8x64k {name}"), move || {
            for (k, strip) in (0..).zip(data) {
                kernel.add(&mut old_p, &[strip]);
                kernel.add_multiple(&mut old_q, coefficient(k), strip);
            }
        }),
    ]
}

fn strip(k: usize) -> Vec<u8> {
    (0..STRIP_BYTES).map(|i| (i * 31 + k * 7) as u8).collect()
}

/// Data bytes a nanosecond.
fn rate(turn: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    (0..TURNS).for_each(|_| turn());
    let bytes = (DATA_STRIPS * STRIP_BYTES * TURNS) as f64;
    bytes / start.elapsed().as_nanos() as f64
}
