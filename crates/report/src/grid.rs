//! Cells in rows and columns, each with a tone that says at a glance what its figure means.

use super::{Align, Table, escape};

/// What a figure means to the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// From 1 (a little) to 4 (very much).
    Good(u8),
    Even,
    Bad(u8),
    /// Not known.
    Blank,
}

/// A table of such cells.
#[derive(Clone, Debug)]
pub struct Grid {
    /// What the rows and the columns are.
    pub corner: String,
    pub columns: Vec<String>,
    /// A name, and for each column the words and their tone.
    pub rows: Vec<(String, Vec<(String, Tone)>)>,
    /// What the words mean, where they do not say it themselves.
    pub note: String,
}

impl Tone {
    /// Of a factor: twice as good is as far from even as half as good.
    pub fn of_factor(factor: f64, negligible: f64) -> Self {
        let distance = factor.ln().abs();
        let step = match distance {
            _ if !factor.is_finite() || factor <= 0.0 => return Self::Blank,
            _ if distance <= (1.0 + negligible).ln() => return Self::Even,
            _ if distance < 1.25_f64.ln() => 1,
            _ if distance < 2.0_f64.ln() => 2,
            _ if distance < 4.0_f64.ln() => 3,
            _ => 4,
        };
        if factor > 1.0 { Self::Good(step) } else { Self::Bad(step) }
    }

    fn class(self) -> String {
        match self {
            Self::Good(step) => format!("good{}", step.clamp(1, 4)),
            Self::Even => "even".to_owned(),
            Self::Bad(step) => format!("bad{}", step.clamp(1, 4)),
            Self::Blank => "blank".to_owned(),
        }
    }
}

impl Grid {
    /// The cells as plain text, without their tones.
    pub fn render(&self) -> String {
        let columns = self.columns.iter().map(|name| (name.as_str(), Align::Right));
        let corner = (self.corner.as_str(), Align::Left);
        let mut table = Table::new([corner].into_iter().chain(columns));
        for (name, cells) in &self.rows {
            let words = cells.iter().map(|(words, _)| words.clone());
            table.row([name.clone()].into_iter().chain(words));
        }
        match self.note.is_empty() {
            true => table.render(),
            false => format!("{}{}\n", table.render(), self.note),
        }
    }

    /// The cells as HTML.
    pub fn draw(&self) -> String {
        let head: String =
            self.columns.iter().map(|name| format!("<th>{}</th>", escape(name))).collect();
        let cell = |((words, tone), column): (&(String, Tone), &String)| {
            let (class, column, words) = (tone.class(), escape(column), escape(words));
            format!("<td class=\"{class}\" data-name=\"{column}\">{words}</td>")
        };
        let row = |(name, cells): &(String, Vec<(String, Tone)>)| {
            let cells: String = cells.iter().zip(&self.columns).map(cell).collect();
            format!("<tr><th>{}</th>{cells}</tr>\n", escape(name))
        };
        let rows: String = self.rows.iter().map(row).collect();
        let note = match self.note.is_empty() {
            true => String::new(),
            false => format!("<p>{}</p>\n", escape(&self.note)),
        };
        format!(
            "{note}<div class=\"scroll\"><table class=\"grid\">\n<thead><tr><th>{}</th>{head}</tr></thead>\n\
             <tbody>\n{rows}</tbody></table></div>\n",
            escape(&self.corner)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_as_good_is_as_far_from_even_as_half_as_good() {
        assert_eq!(
            (Tone::of_factor(2.5, 0.05), Tone::of_factor(0.4, 0.05)),
            (Tone::Good(3), Tone::Bad(3))
        );
        assert_eq!(Tone::of_factor(1.04, 0.05), Tone::Even);
        assert_eq!(Tone::of_factor(0.0, 0.05), Tone::Blank);
        assert_eq!(Tone::of_factor(f64::NAN, 0.05), Tone::Blank);
    }

    #[test]
    fn words_of_users_are_escaped() {
        let rows = vec![("<b>".into(), vec![("1".into(), Tone::Good(9))])];
        let grid = Grid {
            corner: "a & b".into(),
            columns: vec!["c\"".into()],
            rows,
            note: "d & e".into(),
        };
        let html = grid.draw();
        assert!(html.contains("&lt;b&gt;") && html.contains("a &amp; b"), "{html}");
        assert!(html.contains("<p>d &amp; e</p>"), "{html}");
        assert!(html.contains("class=\"good4\" data-name=\"c&quot;\""), "{html}");
    }
}
