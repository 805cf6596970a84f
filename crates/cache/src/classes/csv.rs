//! Open CAS's file of classes, read and written.
//!
//! **Source**: Open CAS Linux, administrator's guide, "IO Class Configuration File Fields".

use super::error::{ClassError, ConditionError, FilePosition};
use super::{Class, ClassId, Classes, Condition, Occupancy, Priority, Rule};
use std::fmt;

/// The first line of such a file.
pub const CSV_HEADER: &str = "IO class id,IO class name,Eviction priority,Allocation";

/// Longest rule that Open CAS takes.
const RULE_LEN_MAX: usize = 1024;

/// What to do with conditions that a block device cannot know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    Refuse,
    /// They never hold; the answer names their rules.
    NeverHolds,
}

/// A rule with conditions that a block device cannot know, and that never hold here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknowableRule {
    pub place: FilePosition,
    pub id: ClassId,
    /// As the file has it.
    pub text: String,
    /// What those conditions ask for.
    pub words: Vec<&'static str>,
    /// Whether it holds for some requests all the same.
    pub can_hold: bool,
}

impl fmt::Display for UnknowableRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, id, text, words, can_hold } = self;
        let effect = match can_hold {
            true => "matches fewer requests than written",
            false => "matches no request",
        };
        let words = words.join(", ");
        write!(f, "{place}: class {id}, {text:?}, {effect}: a block device does not know {words}")
    }
}

/// Whether a text is meant to be such a file, be it one whose header is missing.
pub fn is_csv(text: &str) -> bool {
    let first = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let head = first.get(..11);
    let is_row = first.split_once(',').is_some_and(|(id, _)| id.trim().parse::<u64>().is_ok());
    is_row || head.is_some_and(|head| head.eq_ignore_ascii_case(&CSV_HEADER[..11]))
}

impl Classes {
    /// Reads Open CAS's file. Answers the rules with conditions that cannot be known, too.
    ///
    /// # Errors
    /// The line and the word that is wrong, and what is allowed there.
    pub fn from_csv(
        text: &str,
        unknown: Unknown,
    ) -> Result<(Self, Vec<UnknowableRule>), ClassError> {
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(csv::Trim::All)
            .from_reader(text.as_bytes());
        let (mut classes, mut unknowable) = (Vec::<Class>::new(), Vec::new());
        let mut is_first = true;
        for record in reader.records() {
            let record = record.map_err(|error| ClassError::Syntax(error.to_string()))?;
            let place = FilePosition { line: record.position().map_or(0, |at| at.line()) as usize };
            if std::mem::take(&mut is_first) {
                check_header(&record, place)?;
                continue;
            }
            let (class, words) = read_class(&record, place, unknown)?;
            if classes.iter().any(|other| other.id == class.id) {
                return Err(ClassError::Repeated { place, id: class.id.get() });
            }
            if !words.is_empty() {
                let can_hold = class.rule.as_ref().is_some_and(Rule::can_hold);
                let (id, text) = (class.id, class.name.clone());
                unknowable.push(UnknowableRule { place, id, text, words, can_hold });
            }
            classes.push(class);
        }
        if is_first {
            check_header(&csv::StringRecord::new(), FilePosition { line: 1 })?;
        }
        if !classes.iter().any(|class| class.id == ClassId::UNCLASSIFIED) {
            return Err(ClassError::NoUnclassified);
        }
        Ok((Self::from_unsorted(classes), unknowable))
    }

    /// The file that Open CAS would read.
    pub fn to_csv(&self) -> String {
        let mut text = format!("{CSV_HEADER}\n");
        for class in self.iter() {
            let name = class.rule.as_ref().map_or("unclassified".into(), Rule::to_string);
            let priority = match class.priority {
                Priority::Pinned => String::new(),
                Priority::Level(level) => level.to_string(),
            };
            text += &format!("{},{name},{priority},{}\n", class.id, class.occupancy);
        }
        text
    }
}

fn check_header(record: &csv::StringRecord, place: FilePosition) -> Result<(), ClassError> {
    let same = |(a, b): (&str, &str)| a.eq_ignore_ascii_case(b);
    if record.len() == 4 && record.iter().zip(CSV_HEADER.split(',')).all(same) {
        return Ok(());
    }
    let found = record.iter().collect::<Vec<_>>().join(",");
    Err(ClassError::Header { place, expected: CSV_HEADER, found })
}

/// The class of a line, and what its rule asks for that cannot be known.
fn read_class(
    record: &csv::StringRecord,
    place: FilePosition,
    unknown: Unknown,
) -> Result<(Class, Vec<&'static str>), ClassError> {
    let fields: Vec<&str> = record.iter().collect();
    let [id, name, priority, allocation] = fields[..] else {
        return Err(ClassError::Fields { place, found: fields.len() });
    };
    let id_error = || ClassError::Id { place, word: id.into() };
    let id = number(id).and_then(ClassId::new).ok_or_else(id_error)?;
    if name.len() > RULE_LEN_MAX {
        return Err(ClassError::Length { place, found: name.len(), max: RULE_LEN_MAX });
    }
    let (rule, words) = match id {
        // Whatever it is called, nothing is asked of it.
        ClassId::UNCLASSIFIED => (None, Vec::new()),
        _ if name.is_empty() => return Err(ClassError::NoRule { place, id: id.get() }),
        _ => read_rule(name, place, unknown).map(|(rule, words)| (Some(rule), words))?,
    };
    let priority = match priority {
        "" => Priority::Pinned,
        word => {
            let error =
                || ClassError::Priority { place, word: word.into(), pinned: "an empty field" };
            let level = number(word).and_then(|level| u8::try_from(level).ok());
            Priority::Level(level.ok_or_else(error)?)
        }
    };
    let error = || ClassError::Occupancy { place, word: allocation.into() };
    let occupancy = share(allocation).ok_or_else(error)?;
    Ok((Class { id, name: name.into(), rule, priority, occupancy }, words))
}

fn read_rule(
    name: &str,
    place: FilePosition,
    unknown: Unknown,
) -> Result<(Rule, Vec<&'static str>), ClassError> {
    let mut words = Vec::new();
    let parse = |text: &str| match Condition::parse(text) {
        Err(ConditionError::KernelOnly { word }) if unknown == Unknown::NeverHolds => {
            if !words.contains(&word) {
                words.push(word);
            }
            Ok(Condition::Never)
        }
        parsed => parsed,
    };
    let rule = Rule::parse_with(name, parse);
    Ok((rule.map_err(|source| ClassError::Condition { place, source })?, words))
}

fn number(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// 0.00 to 1.00; older files say 0 and 1, or no and yes. Hundredths count, what is finer does not.
fn share(text: &str) -> Option<Occupancy> {
    match text.to_ascii_lowercase().as_str() {
        "yes" => return Some(Occupancy::ALL),
        "no" => return Some(Occupancy::NONE),
        _ => {}
    }
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(whole) || !is_plain(part) || whole.len() > 3 || part.len() > 9 {
        return None;
    }
    let hundredths = format!("{part:0<2}")[..2].parse::<u64>().ok()?;
    let is_finer = part.bytes().skip(2).any(|byte| byte != b'0');
    let percent = whole.parse::<u64>().ok()? * 100 + hundredths;
    Occupancy::percent(percent).filter(|_| percent < 100 || !is_finer)
}
