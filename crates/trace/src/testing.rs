//! A small trace in every format, made here.

use crate::blktrace::testing::{ByteOrder, Raw, encode};
use crate::format::TraceFormat;
use crate::record::{Op, TraceRecord};
use crate::recording::RecordingWriter;

/// Two requests, at least, in `format`.
pub(crate) fn sample(format: TraceFormat) -> Vec<u8> {
    match format {
        TraceFormat::Blktrace => blktrace(),
        TraceFormat::Recording => recording(),
        TraceFormat::Vscsi1 => [vscsi1(1, 0x2a), vscsi1(2, 0x28)].concat(),
        TraceFormat::Vscsi2 => [vscsi2(1, 0x2a), vscsi2(2, 0x28)].concat(),
        TraceFormat::OracleGeneral => {
            [oracle(5, 8, 2), oracle(6, 16, -1), oracle(6, 8, -1)].concat()
        }
        TraceFormat::Octf => octf(),
        text => text_sample(text).as_bytes().to_vec(),
    }
}

fn text_sample(format: TraceFormat) -> &'static str {
    match format {
        TraceFormat::BlkparseText => {
            "254,0 0 1 0.000000042 161 Q WS 63240 + 8 [fio]\n\
             254,0 0 2 0.000000050 161 D WS 63240 + 8 [fio]\n\
             254,0 0 3 0.000000090 0 C WS 63240 + 8 [0]\n"
        }
        TraceFormat::Tracepoints => {
            "# tracer: nop\n\n\
             fio-161 [000] d..1. 1.000042: block_bio_queue: 254,0 WS 63240 + 8 [fio]\n\
             fio-161 [000] d..1. 1.000050: block_rq_issue: 254,0 WS 4096 () 63240 + 8 [fio]\n\
             <idle>-0 [001] d.h1. 1.000090: block_rq_complete: 254,0 WS () 63240 + 8 [0]\n\
             fio-161 [000] d..1. 1.000142: block_bio_queue: 254,0 R 8 + 8 [fio]\n"
        }
        TraceFormat::Biosnoop => {
            "TIME(s)     COMM           PID    DISK    T SECTOR     BYTES   LAT(ms)\n\
             0.000004    app            100    sda     W 2048       4096       0.74\n\
             0.000178    app            100    sda     R 4096       8192       0.61\n"
        }
        TraceFormat::FioLatency => {
            "3, 2500000, 0, 4096, 249856, 0\n4, 30000, 1, 4096, 3104768, 0\n"
        }
        TraceFormat::FioIolog => {
            "fio version 3 iolog\n0 /dev/a add\n5 /dev/a write 4096 512\n9 /dev/a read 0 4096\n"
        }
        TraceFormat::MsrCambridge => {
            "128166372003061629,hm,0,Read,383496192,32768,113736\n\
             128166372003061639,hm,1,Write,2822144,4096,11\n"
        }
        TraceFormat::MsrWindow => "0.000 0 200626176 16777216 0\n223.412 1 3159347200 36864 1\n",
        TraceFormat::Alibaba => {
            "419,W,8792731648,16384,1577808000000046\n725,R,59110326272,360448,1577808000000049\n"
        }
        TraceFormat::Tencent => "1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1627\n",
        TraceFormat::Spc => "0,20941264,8192,W,0.551706\n1,20939840,8192,R,0.554041\n",
        TraceFormat::Systor17 => {
            "Timestamp,Response,IOType,LUN,Offset,Size\n\
             1455592996.073262000,0.000161,R,1,47240,4096\n1455592996.073270000,,W,0,4096,512\n"
        }
        TraceFormat::VscsiCsv => {
            "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633899,28,6656,40409911\n"
        }
        TraceFormat::Blkreplay => {
            "Copyright somebody, 2012; nobody else\n\nSome prose.\n\
             start ; sector; length ; op ;  replay_delay=0 ; replay_duration=0\n   \
             0.000000000 ;    481999264 ;   16 ; R ; 0.0 ; 0.0\n   \
             0.000023289 ;    481999280 ;   8 ; W ; 0.000001 ; 0.000500\n"
        }
        TraceFormat::Disksim => "0.000000 0 312 16 0\n15.290 1 7301 3 1\n",
        TraceFormat::DisksimValidation => {
            "W Hit   11392096  12   1686.00000  40961.00000\nR Miss 7563004   4  14368.5 28778.0\n"
        }
        TraceFormat::Mqsim => "938513000 4 264719034 16 0\n938828000 3 197570570 32 1\n",
        TraceFormat::Arc => "230027 8 0 0\n1842745 64 0 1\n",
        other => panic!("{other:?} is no text"),
    }
}

fn blktrace() -> Vec<u8> {
    let at = |time_ns, action| Raw { time_ns, action, ..Raw::queue_write() };
    let events = [at(5, 1), at(9, 7), at(30, 8)];
    events.iter().flat_map(|raw| encode(raw, 7, ByteOrder::Little)).collect()
}

fn recording() -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), 0).unwrap();
    writer.push(TraceRecord::new(0, Op::Read, 4096, 4096)).unwrap();
    writer.push(TraceRecord::new(7, Op::Write, 0, 512)).unwrap();
    writer.finish().unwrap()
}

pub(crate) fn vscsi1(number: u32, command: u16) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(number.to_le_bytes());
    record.extend(4096u32.to_le_bytes());
    record.extend(1u32.to_le_bytes());
    record.extend(command.to_le_bytes());
    record.extend(0x0100u16.to_le_bytes());
    record.extend((u64::from(number) * 8).to_le_bytes());
    record.extend((u64::from(number) * 1000).to_le_bytes());
    record
}

pub(crate) fn vscsi2(number: u32, command: u16) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(command.to_le_bytes());
    record.extend(0x0200u16.to_le_bytes());
    record.extend(number.to_le_bytes());
    record.extend(4096u32.to_le_bytes());
    record.extend(1u32.to_le_bytes());
    record.extend((u64::from(number) * 8).to_le_bytes());
    record.extend((u64::from(number) * 1000).to_le_bytes());
    record.extend(250u64.to_le_bytes());
    record
}

pub(crate) fn oracle(seconds: u32, object: u64, next: i64) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(seconds.to_le_bytes());
    record.extend(object.to_le_bytes());
    record.extend(4096u32.to_le_bytes());
    record.extend(next.to_le_bytes());
    record
}

/// One queue: its device, a write that is flushed through, its completion.
fn octf() -> Vec<u8> {
    let io = [
        number(1, 1000),
        number(2, 8),
        number(4, 259 << 20),
        number(5, 2),
        number(7, 1),
        number(9, 77),
    ];
    let completion = [number(1, 1000), number(2, 8), number(4, 259 << 20), number(5, 77)];
    [octf_device(), octf_event(100, 2, &io.concat()), octf_event(400, 5, &completion.concat())]
        .concat()
}

pub(crate) fn octf_device() -> Vec<u8> {
    octf_event(50, 3, &[number(1, 259 << 20), bytes(2, b"nvme0n1"), number(3, 1 << 21)].concat())
}

/// A message with its length.
pub(crate) fn octf_event(time_ns: u64, kind: u8, body: &[u8]) -> Vec<u8> {
    let header = [number(1, 1), number(2, time_ns)].concat();
    let message = [bytes(1, &header), bytes(kind, body)].concat();
    [varint(message.len() as u64), message].concat()
}

pub(crate) fn number(field: u8, value: u64) -> Vec<u8> {
    [vec![field << 3], varint(value)].concat()
}

pub(crate) fn bytes(field: u8, value: &[u8]) -> Vec<u8> {
    [vec![field << 3 | 2], varint(value.len() as u64), value.to_vec()].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    out
}
