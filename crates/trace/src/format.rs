//! The formats by name, and what each of them lacks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceFormat {
    Blktrace,
    BlkparseText,
    FioIolog,
    Recording,
    MsrCambridge,
    MsrWindow,
    Alibaba,
    Tencent,
    Spc,
    Systor17,
    Vscsi1,
    Vscsi2,
    VscsiCsv,
    Blkreplay,
    Disksim,
    DisksimValidation,
    Mqsim,
    Arc,
    OracleGeneral,
    Octf,
    Tracepoints,
    Biosnoop,
    FioLatency,
}

bitflags::bitflags! {
    /// What a trace lacks of its requests.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Lacks: u32 {
        /// All requests are read as reads.
        const OPERATIONS = 1 << 0;
        /// All requests are at time 0, in their order.
        const TIMES = 1 << 1;
    }
}

/// No format has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownFormat(String);

impl TraceFormat {
    pub const ALL: [TraceFormat; 23] = [
        TraceFormat::Blktrace,
        TraceFormat::BlkparseText,
        TraceFormat::FioIolog,
        TraceFormat::Recording,
        TraceFormat::MsrCambridge,
        TraceFormat::MsrWindow,
        TraceFormat::Alibaba,
        TraceFormat::Tencent,
        TraceFormat::Spc,
        TraceFormat::Systor17,
        TraceFormat::Vscsi1,
        TraceFormat::Vscsi2,
        TraceFormat::VscsiCsv,
        TraceFormat::Blkreplay,
        TraceFormat::Disksim,
        TraceFormat::DisksimValidation,
        TraceFormat::Mqsim,
        TraceFormat::Arc,
        TraceFormat::OracleGeneral,
        TraceFormat::Octf,
        TraceFormat::Tracepoints,
        TraceFormat::Biosnoop,
        TraceFormat::FioLatency,
    ];

    /// The word a command line takes.
    pub fn name(self) -> &'static str {
        match self {
            TraceFormat::Blktrace => "blktrace",
            TraceFormat::BlkparseText => "blkparse-text",
            TraceFormat::FioIolog => "fio-iolog",
            TraceFormat::Recording => "recording",
            TraceFormat::MsrCambridge => "msr-cambridge",
            TraceFormat::MsrWindow => "msr-window",
            TraceFormat::Alibaba => "alibaba",
            TraceFormat::Tencent => "tencent",
            TraceFormat::Spc => "spc",
            TraceFormat::Systor17 => "systor17",
            TraceFormat::Vscsi1 => "vscsi1",
            TraceFormat::Vscsi2 => "vscsi2",
            TraceFormat::VscsiCsv => "vscsi-csv",
            TraceFormat::Blkreplay => "blkreplay",
            TraceFormat::Disksim => "disksim",
            TraceFormat::DisksimValidation => "disksim-validation",
            TraceFormat::Mqsim => "mqsim",
            TraceFormat::Arc => "arc",
            TraceFormat::OracleGeneral => "oracle-general",
            TraceFormat::Octf => "octf",
            TraceFormat::Tracepoints => "tracepoints",
            TraceFormat::Biosnoop => "biosnoop",
            TraceFormat::FioLatency => "fio-latency",
        }
    }

    /// The name for messages.
    pub fn words(self) -> &'static str {
        match self {
            TraceFormat::Blktrace => "blktrace",
            TraceFormat::BlkparseText => "blkparse text",
            TraceFormat::FioIolog => "fio iolog",
            TraceFormat::Recording => "Headpond recording",
            TraceFormat::MsrCambridge => "MSR Cambridge CSV",
            TraceFormat::MsrWindow => "MSR window",
            TraceFormat::Alibaba => "Alibaba CSV",
            TraceFormat::Tencent => "Tencent CBS CSV",
            TraceFormat::Spc => "SPC",
            TraceFormat::Systor17 => "SYSTOR '17 CSV",
            TraceFormat::Vscsi1 => "VSCSI v1",
            TraceFormat::Vscsi2 => "VSCSI v2",
            TraceFormat::VscsiCsv => "VSCSI CSV",
            TraceFormat::Blkreplay => "blkreplay",
            TraceFormat::Disksim => "DiskSim ASCII",
            TraceFormat::DisksimValidation => "DiskSim validation",
            TraceFormat::Mqsim => "MQSim",
            TraceFormat::Arc => "ARC .lis",
            TraceFormat::OracleGeneral => "oracleGeneral",
            TraceFormat::Octf => "OCTF",
            TraceFormat::Tracepoints => "block tracepoints",
            TraceFormat::Biosnoop => "biosnoop",
            TraceFormat::FioLatency => "fio latency log",
        }
    }

    /// True where one trace may be several files.
    pub(crate) fn has_sets(self) -> bool {
        matches!(self, TraceFormat::Blktrace | TraceFormat::Octf)
    }

    /// What traces of this format lack, also after conversion to a recording.
    pub fn lacks(self) -> Lacks {
        match self {
            TraceFormat::OracleGeneral => Lacks::OPERATIONS,
            TraceFormat::Arc => Lacks::OPERATIONS | Lacks::TIMES,
            _ => Lacks::empty(),
        }
    }
}

impl Lacks {
    /// What is missing, for a sentence.
    pub fn words(self) -> &'static str {
        match (self.contains(Lacks::OPERATIONS), self.contains(Lacks::TIMES)) {
            (true, true) => "neither operations nor times",
            (true, false) => "no operations",
            (false, true) => "no times",
            (false, false) => "nothing less than requests",
        }
    }
}

impl FromStr for TraceFormat {
    type Err = UnknownFormat;

    fn from_str(word: &str) -> Result<Self, UnknownFormat> {
        let known = Self::ALL.into_iter().find(|format| format.name() == word);
        known.ok_or_else(|| UnknownFormat(word.to_owned()))
    }
}

impl fmt::Display for UnknownFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = TraceFormat::ALL.map(TraceFormat::name).join(", ");
        write!(f, "unknown trace format {}; known: {names}", self.0)
    }
}

impl std::error::Error for UnknownFormat {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_one_name_everywhere() {
        for format in TraceFormat::ALL {
            assert_eq!(format.name().parse(), Ok(format));
            let json = serde_json::to_string(&format).unwrap();
            assert_eq!(json, format!("\"{}\"", format.name()));
        }
        let unknown = "csv".parse::<TraceFormat>().unwrap_err().to_string();
        assert!(unknown.contains("msr-cambridge"), "{unknown}");
    }
}
