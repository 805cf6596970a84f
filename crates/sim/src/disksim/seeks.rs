//! `dm_mech_g1`: rotation, head switch and the seek curve.

use super::coasting;
use super::document::Reader;
use super::error::{ImportError, Location, Note};
use super::fields::Fields;
use super::remarks;
use super::syntax::Block;
use crate::hdd::SeekParameters;
use std::io::ErrorKind;

const FIRST_TEN: &str = "First ten seek times";
const HPL: &str = "HPL seek equation values";
const CURVE_FILE: &str = "Full seek curve";
const SINGLE: &str = "Single cylinder seek time";
const AVERAGE: &str = "Average seek time";
const FULL: &str = "Full strobe seek time";

/// Points of a measured curve that lie as far below both neighbours are errors of measurement.
const OUTLIER_BELOW: f64 = 0.75;

/// The next cylinder and the full stroke where the files do not say: round figures of data sheets
/// of 3.5-inch drives of the nineties, whose seeks are said to take 9 ms on average.
const TYPICAL_MS: (f64, f64) = (1.5, 18.0);

const POINTS_MAX: usize = 100_000;

pub(super) struct Mechanics {
    pub rpm: u32,
    pub head_switch_ms: f64,
    pub seek: SeekParameters,
    pub notes: Vec<Note>,
}

/// The arm and spindle of a drive.
pub(super) struct Arm<'a, 'b, 'r> {
    pub block: &'a Block,
    pub cylinders: u32,
    pub reader: &'b mut Reader<'r>,
    pub notes: Vec<Note>,
}

impl Arm<'_, '_, '_> {
    /// # Errors
    /// Where a figure is missing or makes no sense.
    pub(super) fn mechanics(mut self) -> Result<Mechanics, ImportError> {
        let block = self.block;
        if block.kind != "dm_mech_g1" {
            let what = format!("{} is not known here, only dm_mech_g1 is", block.kind);
            return Err(ImportError::field(&block.at, "Mechanical Model", what));
        }
        let fields = Fields::new(block);
        let (access, value) = fields.word("Access time type")?;
        if access != "trackSwitchPlusRotation" {
            let what = format!("{access} is not modelled, only trackSwitchPlusRotation is");
            return Err(ImportError::field(&value.at, "Access time type", what));
        }
        let seek = self.seek(&fields)?;
        let head_switch_ms = fields.time("Head switch time")?;
        let rpm = fields.integer("Rotation speed (in rpms)", 100, 100_000)? as u32;
        for key in ["Percent error in rpms"] {
            if fields.number_or(key, 0.0)? != 0.0 {
                self.note(&block.at, format!("{key} is not modelled"));
            }
        }
        // They describe curves of other types, and stand in files of any type.
        let known = [FIRST_TEN, HPL, CURVE_FILE, SINGLE, AVERAGE, FULL, "Constant seek time"];
        let unknown = fields.unknown(&[known.as_slice(), &["Constant access time"]].concat());
        self.notes.extend(unknown);
        Ok(Mechanics { rpm, head_switch_ms, seek, notes: self.notes })
    }

    fn note(&mut self, at: &Location, text: impl Into<String>) {
        self.notes.push(Note { at: at.clone(), text: text.into() });
    }

    fn seek(&mut self, fields: &Fields<'_>) -> Result<SeekParameters, ImportError> {
        let (kind, value) = fields.word("Seek type")?;
        let mut seek = SeekParameters {
            single_cylinder_ms: 0.0,
            average_ms: 0.0,
            full_stroke_ms: 0.0,
            write_settle_ms: fields.number_or("Add. write settling delay", 0.0)?,
            curve: Vec::new(),
        };
        match kind {
            "constant" => seek.curve = vec![(1, fields.time("Constant seek time")?)],
            "linear" => seek.curve = self.three_lines(fields)?,
            "curve" => {
                seek.single_cylinder_ms = fields.time(SINGLE)?;
                seek.average_ms = fields.time(AVERAGE)?;
                seek.full_stroke_ms = fields.time(FULL)?;
            }
            "hpl" => seek.curve = self.equation(fields, &fields.numbers(HPL)?)?,
            "hplplus10" => {
                let beyond = self.equation(fields, &fields.numbers(HPL)?)?;
                seek.curve = with_first(&fields.numbers(FIRST_TEN)?, beyond);
            }
            "extracted" => seek.curve = self.extracted(fields)?,
            _ => {
                let what = format!("{kind} is not known");
                return Err(ImportError::field(&value.at, "Seek type", what));
            }
        }
        Ok(seek)
    }

    /// Lines from one cylinder to the mean at a third of the stroke, and on to the full stroke.
    fn three_lines(&self, fields: &Fields<'_>) -> Result<Vec<(u32, f64)>, ImportError> {
        let points = [
            (1, fields.time(SINGLE)?),
            (self.cylinders / 3, fields.time(AVERAGE)?),
            (self.cylinders, fields.time(FULL)?),
        ];
        let mut curve: Vec<(u32, f64)> = Vec::new();
        for (distance, ms) in points {
            if curve.last().is_none_or(|last| last.0 < distance) {
                curve.push((distance, ms));
            }
        }
        Ok(curve)
    }

    /// The equation of Ruemmler and Wilkes: a root up to the first value, a line beyond.
    fn equation(&self, fields: &Fields<'_>, v: &[f64]) -> Result<Vec<(u32, f64)>, ImportError> {
        let &[division, root_start, root, line_start, line, single] = v else {
            let at = &fields.block.at;
            let what = format!("has {} values instead of 6", v.len());
            return Err(ImportError::field(at, HPL, what));
        };
        let ms = |distance: u32| match f64::from(distance) {
            1.0 if single != -1.0 => single,
            d if d < division => root_start + root * d.sqrt(),
            d => line_start + line * d,
        };
        let mut distances: Vec<u32> = coasting::distances(self.cylinders).collect();
        let division = division.clamp(1.0, f64::from(self.cylinders)) as u32;
        distances.extend([division.saturating_sub(1).max(1), division]);
        distances.sort_unstable();
        distances.dedup();
        Ok(distances.into_iter().map(|distance| (distance, ms(distance))).collect())
    }

    fn extracted(&mut self, fields: &Fields<'_>) -> Result<Vec<(u32, f64)>, ImportError> {
        let (file, value) = fields.word(CURVE_FILE)?;
        match self.reader.text(file) {
            Ok(text) => {
                let points = points(file, &text)?;
                Ok(self.without_outliers(file, points))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.without_curve(fields, file, &value.at)
            }
            Err(source) => {
                Err(ImportError::Sourced { at: value.at.clone(), file: file.to_owned(), source })
            }
        }
    }

    fn without_outliers(&mut self, file: &str, points: Vec<Point>) -> Vec<(u32, f64)> {
        let is_outlier = |index: usize| {
            let below = |other: usize| points[index].ms < OUTLIER_BELOW * points[other].ms;
            index > 0 && index + 1 < points.len() && below(index - 1) && below(index + 1)
        };
        let (outliers, sound): (Vec<usize>, Vec<usize>) =
            (0..points.len()).partition(|&index| is_outlier(index));
        for &index in &outliers {
            let Point { line, cylinders, ms } = points[index];
            let at = Location { file: file.into(), line };
            let text = format!("{ms} ms over {cylinders} cylinders is far below its neighbours");
            self.note(&at, format!("{text}, left out"));
        }
        sound.into_iter().map(|index| (points[index].cylinders, points[index].ms)).collect()
    }

    /// The curve is missing: what else the files say of it, comments included.
    fn without_curve(
        &mut self,
        fields: &Fields<'_>,
        file: &str,
        at: &Location,
    ) -> Result<Vec<(u32, f64)>, ImportError> {
        let comments = &self.reader.comments;
        let first = remarks::numbers(comments, self.block, FIRST_TEN);
        let shortest = match (&first, fields.optional(SINGLE)) {
            (Some((first, _)), _) => first.clone(),
            (None, Some(_)) => vec![fields.time(SINGLE)?],
            (None, None) => Vec::new(),
        };
        let full_ms = fields.time_or(FULL, 0.0)?;
        if let Some(curve) = coasting::curve(&shortest, full_ms, self.cylinders) {
            let source = match first {
                Some(_) => "the first ten seek times in a comment",
                None => "the single cylinder seek time",
            };
            let text = format!(
                "{file} is missing: the seek curve is drawn through {source} and the full stroke"
            );
            self.note(at, text);
            return Ok(curve);
        }
        let (single_ms, stroke_ms) = TYPICAL_MS;
        let Some(curve) = coasting::curve(&[single_ms], stroke_ms, self.cylinders) else {
            let what = format!("{file} is missing, and nothing else tells how long seeks take");
            return Err(ImportError::field(at, CURVE_FILE, what));
        };
        let text = format!(
            "{file} is missing, and nothing else tells how long seeks take (a full stroke of \
             {full_ms} ms cannot be): ASSUMED as on some 3.5-inch drive of the time, {single_ms} \
             ms to the next cylinder and {stroke_ms} ms over all; put the file beside this one"
        );
        self.note(at, text);
        Ok(curve)
    }
}

/// Replaces the shortest distances by what was measured over them.
fn with_first(first: &[f64], curve: Vec<(u32, f64)>) -> Vec<(u32, f64)> {
    let measured = first.iter().zip(1..).map(|(&ms, distance)| (distance, ms));
    let beyond = curve.into_iter().filter(|(distance, _)| *distance as usize > first.len());
    measured.chain(beyond).collect()
}

#[derive(Clone, Copy)]
struct Point {
    line: u32,
    cylinders: u32,
    ms: f64,
}

/// A file of a measured curve: lines `cylinders, ms`, perhaps with a deviation behind.
fn points(file: &str, text: &str) -> Result<Vec<Point>, ImportError> {
    let mut points: Vec<Point> = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let is_heading = line == 1 && !text.starts_with(|c: char| c.is_ascii_digit() || c == ' ');
        if text.trim().is_empty() || is_heading {
            continue;
        }
        let at = Location { file: file.into(), line };
        let mut words = text.split(',').map(str::trim);
        let cylinders = words.next().and_then(|word| word.parse::<u32>().ok());
        let ms = words.next().and_then(|word| word.parse::<f64>().ok());
        let (Some(cylinders), Some(ms)) = (cylinders, ms) else {
            return Err(ImportError::field(&at, CURVE_FILE, "is no line `cylinders, ms`"));
        };
        let rises = cylinders > 0 && points.last().is_none_or(|last| last.cylinders < cylinders);
        if !rises || !(0.0..=10_000.0).contains(&ms) || points.len() >= POINTS_MAX {
            let what = "does not rise in cylinders, or has a time that is none";
            return Err(ImportError::field(&at, CURVE_FILE, what));
        }
        points.push(Point { line, cylinders, ms });
    }
    match points.is_empty() {
        true => {
            let at = Location { file: file.into(), line: 1 };
            Err(ImportError::field(&at, CURVE_FILE, "has no point"))
        }
        false => Ok(points),
    }
}
