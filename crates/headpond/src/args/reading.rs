//! Arguments of the commands that read a trace.

use clap::Args;
use headpond_trace::{Damage, Demand, ReadOptions, TraceFormat};

/// How a trace is read.
#[derive(Args)]
pub struct ReadArgs {
    /// The format, if it is not to be detected from the contents: blktrace, blkparse-text,
    /// tracepoints, biosnoop, fio-iolog, fio-latency, recording, msr-cambridge, msr-window,
    /// alibaba, tencent, spc, systor17, vscsi1, vscsi2, vscsi-csv, blkreplay, disksim,
    /// disksim-validation, mqsim, arc, oracle-general, octf.
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    pub format: Option<TraceFormat>,
    /// Skip and count damaged records instead of failing.
    #[arg(long)]
    pub lenient: bool,
}

impl ReadArgs {
    /// Requires a trace with this much information.
    pub fn options(&self, demand: Demand) -> ReadOptions {
        let damage = if self.lenient { Damage::Skip } else { Damage::Fail };
        ReadOptions { damage, demand, format: self.format }
    }
}
