//! What is advised beside what is there now: dirty data over time, and how long requests take.

use crate::advice::Course;
use headpond_report::{Axis, Chart, Line, Lines, Unit};

/// One for each that there is something to show of.
pub(super) fn all(courses: &[Course]) -> Vec<Chart> {
    [dirty(courses), took(courses)].into_iter().flatten().collect()
}

/// Their place among all keeps their colour the same in both.
fn lines<'a>(courses: &'a [Course], points: impl Fn(&'a Course) -> &'a [(f64, f64)]) -> Vec<Line> {
    let line = |(colour, course): (usize, &'a Course)| {
        let points = points(course);
        (points.len() > 1).then(|| Line::new(course.name, colour, points.to_vec()))
    };
    courses.iter().enumerate().filter_map(line).collect()
}

fn dirty(courses: &[Course]) -> Option<Chart> {
    let series = lines(courses, |course| &course.dirty);
    let last = |line: &Line| line.points.last().map_or(0.0, |point| point.0);
    let end = series.iter().map(last).reduce(f64::max)?;
    let advised = courses.iter().rfind(|course| course.dirty.len() > 1)?;
    let drawn = Lines {
        title: "Dirty ratio over time".to_owned(),
        note: "seconds of the replay: the warm-up first, then the round that counts; of what may be dirty"
            .to_owned(),
        across: Axis::linear(0.0, end, Unit::Number),
        up: Axis::linear(0.0, 1.0, Unit::Share),
        series,
        marks: vec![(advised.measured_from_s.min(end), "measured from here".to_owned())],
        level: None,
        are_steps: false,
    };
    Some(drawn.draw())
}

fn took(courses: &[Course]) -> Option<Chart> {
    let series = lines(courses, |course| &course.took);
    let places = || series.iter().flat_map(|line| line.points.iter().map(|point| point.0 * 1e3));
    let (low, high) = (places().reduce(f64::min)?, places().reduce(f64::max)?);
    let in_nanos = |line: Line| Line {
        points: line.points.iter().map(|&(us, share)| (us * 1e3, share)).collect(),
        ..line
    };
    let drawn = Lines {
        title: "How long requests take".to_owned(),
        note: "the share of reads and writes that were answered within so much time".to_owned(),
        across: Axis::logarithmic(low.max(1.0), high.max(low * 2.0), Unit::Nanos),
        up: Axis::linear(0.0, 1.0, Unit::Share),
        series: series.into_iter().map(in_nanos).collect(),
        marks: Vec::new(),
        level: None,
        are_steps: true,
    };
    Some(drawn.draw())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(name: &'static str, dirty: &[(f64, f64)], took: &[(f64, f64)]) -> Course {
        Course { name, dirty: dirty.to_vec(), measured_from_s: 2.0, took: took.to_vec() }
    }

    #[test]
    fn the_array_alone_has_nothing_dirty_and_both_have_times() {
        let took = [(100.0, 0.5), (9000.0, 1.0)];
        let courses = [
            course("no cache", &[], &took),
            course("as advised", &[(1.0, 0.2), (3.0, 0.9)], &took),
        ];
        let charts = all(&courses);
        assert_eq!(charts.len(), 2);
        let names = |chart: &Chart| -> Vec<String> {
            chart.legend.iter().map(|entry| entry.name.clone()).collect()
        };
        assert_eq!(names(&charts[0]), ["as advised"]);
        assert_eq!(names(&charts[1]), ["no cache", "as advised"]);
        assert!(charts[0].svg.contains("measured from here"));
        assert_eq!(charts[0].legend[0].colour, charts[1].legend[1].colour);
    }

    #[test]
    fn of_nothing_there_is_no_chart() {
        assert!(all(&[course("no cache", &[], &[(1.0, 1.0)])]).is_empty() && all(&[]).is_empty());
    }
}
