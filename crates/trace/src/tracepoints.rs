//! The kernel's block tracepoints, as `trace` and `trace_pipe` of ftrace, `trace-cmd report` and
//! `perf script` print them.
//!
//! One event a line: who, perhaps `[cpu]` and flags, `seconds.fraction:`, `block_rq_issue:` (perf:
//! `block:block_rq_issue:`), then what the event adds, which begins with `major,minor RWBS`. Events
//! of other subsystems, remarks and call chains may stand between.
//!
//! **Source**: Linux `include/trace/events/block.h`, `kernel/trace/trace_output.c`;
//! perf-script(1).

use crate::blkparse::{
    Fields, bracketed, completion_error, number, parse_category, parse_device, parse_range,
};
use crate::event::{Action, BlockEvent, SECTOR_BYTES};
use crate::event_lines::{EventText, Line};
use crate::lines::Columns;

pub(crate) const TRACEPOINTS: EventText = EventText {
    format: "block tracepoints",
    expected: "`process [cpu] seconds.fraction: block_rq_issue: major,minor RWBS ...`",
    parse: parse_line,
};

/// An address of a call chain has at least so many digits.
const ADDRESS_DIGITS_MIN: usize = 8;

/// Parses one line without its end.
pub(crate) fn parse_line(line: &[u8]) -> Line<'_> {
    let mut fields = Fields { rest: line };
    let Some(first) = fields.next() else {
        return Line::Remark;
    };
    if is_remark(first) {
        return Line::Remark;
    }
    let Some(parts) = parts(line) else {
        return Line::Damaged;
    };
    match action(parts.name) {
        Some(action) => event(&parts, action).unwrap_or(Line::Damaged),
        None => Line::Passing,
    }
}

/// Comments, what ftrace has lost, the head of `trace-cmd report`, and call chains.
fn is_remark(first: &[u8]) -> bool {
    let is_address =
        first.len() >= ADDRESS_DIGITS_MIN && first.iter().all(|byte| byte.is_ascii_hexdigit());
    is_address || first.starts_with(b"#") || first.starts_with(b"CPU:") || {
        first.starts_with(b"cpus=") || first == b"version"
    }
}

/// One line of an event.
struct Parts<'a> {
    /// What stands before the time.
    before: &'a [u8],
    time_ns: u64,
    /// The event's, without perf's `block:`.
    name: &'a [u8],
    rest: &'a [u8],
}

fn parts(line: &[u8]) -> Option<Parts<'_>> {
    let mut fields = Fields { rest: line };
    let mut at = 0;
    loop {
        let field = fields.next()?;
        if let Some(time_ns) = field.strip_suffix(b":").and_then(time) {
            let name = fields.next()?.strip_suffix(b":")?;
            let name = name.strip_prefix(b"block:").unwrap_or(name);
            return Some(Parts { before: &line[..at], time_ns, name, rest: fields.rest });
        }
        at = line.len() - fields.rest.len();
    }
}

fn time(field: &[u8]) -> Option<u64> {
    let mut columns = Columns::<b' '>::of(field);
    let time_ns = columns.pointed(9)?;
    columns.is_over().then_some(time_ns)
}

/// `None` for events that say nothing of a request's way.
fn action(name: &[u8]) -> Option<Action> {
    Some(match name {
        b"block_bio_queue" => Action::Queue,
        b"block_bio_backmerge" => Action::BackMerge,
        b"block_bio_frontmerge" => Action::FrontMerge,
        b"block_rq_requeue" => Action::Requeue,
        b"block_rq_issue" => Action::Issue,
        b"block_rq_complete" | b"block_bio_complete" => Action::Complete,
        b"block_split" => Action::Split,
        b"block_bio_remap" | b"block_rq_remap" => Action::Remap,
        _ => return None,
    })
}

fn event<'a>(parts: &Parts<'a>, action: Action) -> Option<Line<'a>> {
    let Parts { before, time_ns, rest, .. } = *parts;
    let mut fields = Fields { rest };
    let device = parse_device(fields.next()?)?;
    let category = parse_category(fields.next()?)?;
    let (sector, sectors, tail) = parse_range(without_command(fields));
    let bytes = u32::try_from(sectors.checked_mul(SECTOR_BYTES)?).ok()?;
    let Issuer { mut name, pid, cpu } = issuer(before);
    let mut error = 0;
    if action == Action::Complete {
        error = bracketed(tail.rest).and_then(completion_error).unwrap_or(0);
        name = None;
    }
    let event = BlockEvent { time_ns, sector, bytes, pid, device, cpu, category, action, error };
    event.is_possible().then_some(Line::Event(event, name))
}

/// Requests have their command in parentheses, and before it perhaps its bytes.
fn without_command(fields: Fields<'_>) -> Fields<'_> {
    let mut after = fields;
    let mut first = after.next();
    if first.is_some_and(|field| number(field).is_some()) {
        first = after.next();
    }
    match first {
        Some(field) if field.starts_with(b"(") => {
            let close = memchr::memchr(b')', fields.rest);
            Fields { rest: close.map_or(after.rest, |at| &fields.rest[at + 1..]) }
        }
        _ => fields,
    }
}

#[derive(Default)]
struct Issuer<'a> {
    name: Option<&'a [u8]>,
    pid: u32,
    cpu: u32,
}

/// ftrace: `name-pid (group) [cpu] flags`; perf: `name pid/thread [cpu]`. A name may have blanks.
fn issuer(before: &[u8]) -> Issuer<'_> {
    let before = before.trim_ascii();
    let open = memchr::memrchr(b'[', before);
    let cpu = open.and_then(|at| before[at + 1..].split(|&byte| byte == b']').next());
    let cpu = cpu.and_then(number).and_then(|cpu| u32::try_from(cpu).ok());
    let mut who = before[..open.filter(|_| cpu.is_some()).unwrap_or(before.len())].trim_ascii();
    if who.ends_with(b")")
        && let Some(open) = memchr::memrchr(b'(', who)
    {
        who = who[..open].trim_ascii_end();
    }
    let cpu = cpu.unwrap_or(0);
    // With flags and without a CPU nothing here is a number, and the process stays unknown.
    let Some(parted) = who.iter().rposition(|&byte| matches!(byte, b' ' | b'\t' | b'-')) else {
        return Issuer { cpu, ..Issuer::default() };
    };
    let id = who[parted + 1..].split(|&byte| byte == b'/').next().and_then(number);
    match id.and_then(|id| u32::try_from(id).ok()) {
        Some(pid) => Issuer { name: Some(who[..parted].trim_ascii_end()), pid, cpu },
        None => Issuer { cpu, ..Issuer::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Category;

    fn event(line: &str) -> (BlockEvent, Option<&[u8]>) {
        match parse_line(line.as_bytes()) {
            Line::Event(event, name) => (event, name),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn perf_and_ftrace_print_the_same_event() {
        let perf = "   my app   100 [001] 1000.000100:  block:block_rq_issue: 8,0 W 4096 () 2048 + 8 [app]";
        let new_perf = "my app 100/101 [001] 1000.000100: block:block_rq_issue: 8,0 W 4096 () 2048 + 8 be,0,4 [a]";
        let ftrace = "  my app-100   [001] d..2.  1000.000100: block_rq_issue: 8,0 W 4096 () 2048 + 8 [my app]";
        let grouped = "  my app-100   ( 99) [001] .....  1000.000100: block_rq_issue: 8,0 W 4096 () 2048 + 8 [a]";
        for line in [perf, new_perf, ftrace, grouped] {
            let (event, name) = event(line);
            assert_eq!(name, Some(&b"my app"[..]), "{line}");
            assert_eq!((event.pid, event.cpu, event.device), (100, 1, 8 << 20), "{line}");
            assert_eq!((event.time_ns, event.action), (1_000_000_100_000, Action::Issue), "{line}");
            assert_eq!((event.sector, event.bytes, event.category), (2048, 4096, Category::WRITE));
        }
    }

    #[test]
    fn events_of_bios_have_no_command_and_completions_an_error() {
        let (queued, _) = event("a-1 [000] .... 5.25: block_bio_queue: 8,16 RAM 64 + 16 [a]");
        assert_eq!((queued.sector, queued.bytes, queued.action), (64, 8192, Action::Queue));
        let (done, name) =
            event("<idle>-0 [000] ..s. 5.5: block_rq_complete: 8,16 RAM () 64 + 16 [-5]");
        assert_eq!((done.sector, done.error, name), (64, 5, None));
        let (ioprio, _) =
            event("<idle>-0 [000] ..s. 5.5: block_rq_complete: 8,16 R () 64 + 16 none,0,0 [0]");
        assert_eq!((ioprio.sector, ioprio.error), (64, 0));
        let (flush, _) = event("k-9 [000] .... 5.5: block_rq_issue: 8,0 FF 0 () 0 + 0 [k]");
        assert_eq!(flush.op(), Some(crate::Op::Flush));
        let (remap, _) = event("a-1 [000] .... 5.25: block_bio_remap: 8,0 W 2058 + 8 <- (8,1) 10");
        assert_eq!((remap.action, remap.sector, remap.bytes), (Action::Remap, 2058, 4096));
        let (scsi, _) = event("a-1 [000] .... 5.25: block_rq_issue: 8,0 N 36 (12 00 00) 0 + 0 [a]");
        assert_eq!(scsi.op(), None);
    }

    #[test]
    fn other_events_remarks_and_call_chains_pass_and_nonsense_is_damage() {
        let passing = "a-1 [000] .... 5.25: sched_switch: prev_comm=a";
        let plug = "a-1 [000] .... 5.25: block_plug: [a]";
        assert_eq!([passing, plug].map(|line| parse_line(line.as_bytes())), [Line::Passing; 2]);
        let remarks =
            ["", "# tracer: nop", "CPU:1 [LOST 5 EVENTS]", "cpus=2", "\tffffffff8143 submit_bio"];
        for line in remarks {
            assert_eq!(parse_line(line.as_bytes()), Line::Remark, "{line}");
        }
        for line in ["hello", "a-1 [000] 5.25: block_rq_issue: 8,0", "5.25: block_bio_queue:"] {
            assert_eq!(parse_line(line.as_bytes()), Line::Damaged, "{line}");
        }
    }
}
