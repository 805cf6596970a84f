//! One condition of a rule.

use super::{ClassId, ConditionError};
use headpond_block::Size;
use std::fmt;

/// Conditions that Open CAS looks up in the kernel's own structures: pages, inodes, processes.
pub const KERNEL_CONDITIONS: [&str; 9] = [
    "direct",
    "file_size",
    "file_offset",
    "directory",
    "extension",
    "file_name_prefix",
    "pid",
    "process_name",
    "wlth",
];

/// What is known of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    pub size_bytes: u64,
    /// First 512-byte sector.
    pub lba: u64,
    pub is_write: bool,
    pub is_metadata: bool,
    pub core_id: u32,
}

/// A test of one fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Holds, and no later rule is tried.
    Done,
    Metadata,
    RequestSize(Comparison),
    Lba(Comparison),
    CoreId(Comparison),
    /// The class that the rules before have found.
    IoClass(Comparison),
    IoDirection {
        is_write: bool,
    },
    /// Cannot be known here.
    Never,
}

/// A number and how to compare with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    operator: Operator,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Eq,
    Ne,
    Lt,
    Gt,
    Le,
    Ge,
}

const OPERATORS: [(&str, Operator); 6] = [
    ("eq", Operator::Eq),
    ("ne", Operator::Ne),
    ("lt", Operator::Lt),
    ("gt", Operator::Gt),
    ("le", Operator::Le),
    ("ge", Operator::Ge),
];

impl Condition {
    /// Reads `word`, `word:operand` or `word:operator:operand`.
    ///
    /// # Errors
    /// Which word is wrong, and what is allowed.
    pub fn parse(text: &str) -> Result<Self, ConditionError> {
        let (word, operand) = match text.split_once(':') {
            Some((word, operand)) => (word.trim(), Some(operand.trim())),
            None => (text.trim(), None),
        };
        if let Some(word) = KERNEL_CONDITIONS.into_iter().find(|known| *known == word) {
            return Err(ConditionError::KernelOnly { word });
        }
        let compare = |word| Comparison::parse(word, operand.unwrap_or(""), whole_number);
        let compare_size = |word| Comparison::parse(word, operand.unwrap_or(""), bytes);
        let plain = |word, condition| match operand {
            Some(operand) => Err(ConditionError::Operand { word, operand: operand.into() }),
            None => Ok(condition),
        };
        match word {
            "done" => plain("done", Self::Done),
            "metadata" => plain("metadata", Self::Metadata),
            "never" => plain("never", Self::Never),
            "request_size" => compare_size("request_size").map(Self::RequestSize),
            "lba" => compare("lba").map(Self::Lba),
            "core_id" => compare("core_id").map(Self::CoreId),
            "io_class" => compare("io_class").map(Self::IoClass),
            "io_direction" => direction(operand.unwrap_or("")),
            _ => Err(ConditionError::Unknown { word: word.into() }),
        }
    }

    pub(super) fn holds(&self, facts: &Facts, found: ClassId) -> bool {
        match self {
            Self::Done => true,
            Self::Metadata => facts.is_metadata,
            Self::RequestSize(size) => size.holds(facts.size_bytes),
            Self::Lba(lba) => lba.holds(facts.lba),
            Self::CoreId(core) => core.holds(facts.core_id.into()),
            Self::IoClass(class) => class.holds(found.get().into()),
            Self::IoDirection { is_write } => facts.is_write == *is_write,
            Self::Never => false,
        }
    }
}

/// `read`, `write`, 0 or 1, with or without `eq:` before it.
fn direction(operand: &str) -> Result<Condition, ConditionError> {
    match operand.strip_prefix("eq:").unwrap_or(operand).trim() {
        "read" | "0" => Ok(Condition::IoDirection { is_write: false }),
        "write" | "1" => Ok(Condition::IoDirection { is_write: true }),
        _ => Err(ConditionError::Direction { operand: operand.into() }),
    }
}

impl Comparison {
    fn parse(
        word: &'static str,
        operand: &str,
        read: fn(&str) -> Option<u64>,
    ) -> Result<Self, ConditionError> {
        let (operator, number) = match operand.split_once(':') {
            Some((operator, number)) => (find_operator(word, operator.trim())?, number.trim()),
            None => (Operator::Eq, operand),
        };
        let error = || ConditionError::Number { word, operand: operand.into() };
        Ok(Self { operator, number: read(number).ok_or_else(error)? })
    }

    fn holds(self, value: u64) -> bool {
        match self.operator {
            Operator::Eq => value == self.number,
            Operator::Ne => value != self.number,
            Operator::Lt => value < self.number,
            Operator::Gt => value > self.number,
            Operator::Le => value <= self.number,
            Operator::Ge => value >= self.number,
        }
    }
}

/// Digits alone, as Open CAS takes them.
fn whole_number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// The same, or a number with a unit.
fn bytes(text: &str) -> Option<u64> {
    let begins = text.starts_with(|first: char| first.is_ascii_digit());
    text.parse().ok().filter(|_| begins).map(Size::bytes)
}

fn find_operator(word: &'static str, text: &str) -> Result<Operator, ConditionError> {
    let found = OPERATORS.iter().find(|(name, _)| *name == text);
    let error = || ConditionError::Operator { word, operator: text.into() };
    found.map(|(_, operator)| *operator).ok_or_else(error)
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Metadata => f.write_str("metadata"),
            Self::RequestSize(size) => write!(f, "request_size:{size}"),
            Self::Lba(lba) => write!(f, "lba:{lba}"),
            Self::CoreId(core) => write!(f, "core_id:{core}"),
            Self::IoClass(class) => write!(f, "io_class:{class}"),
            Self::IoDirection { is_write: false } => f.write_str("io_direction:read"),
            Self::IoDirection { is_write: true } => f.write_str("io_direction:write"),
            Self::Never => f.write_str("never"),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = OPERATORS[self.operator as usize];
        write!(f, "{name}:{}", self.number)
    }
}
