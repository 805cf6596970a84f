//! Tables, as plain text and as HTML.
//!
//! **Invariants**: every row has as many cells as the head; columns of text are as wide as their
//! widest cell.

use super::escape;

/// On which side of its column a cell stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

impl Align {
    fn class(self) -> &'static str {
        match self {
            Self::Left => " class=\"words\"",
            Self::Right => "",
        }
    }
}

/// Rows under a head.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        let columns = columns.into_iter().map(|(name, align)| (name.to_owned(), align)).collect();
        Self { columns, rows: Vec::new() }
    }

    /// A table whose first `words` columns are words, and the others figures.
    pub fn of<Row: IntoIterator<Item = String>>(
        columns: &[&str],
        words: usize,
        rows: impl IntoIterator<Item = Row>,
    ) -> Self {
        let align = |index: usize| if index < words { Align::Left } else { Align::Right };
        let columns = columns.iter().enumerate().map(|(index, name)| (*name, align(index)));
        let mut table = Self::new(columns);
        rows.into_iter().for_each(|row| _ = table.row(row));
        table
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it has another number of cells than the head.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) -> &mut Self {
        let cells: Vec<String> = cells.into_iter().collect();
        assert_eq!(cells.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(cells);
        self
    }

    /// True without rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table, two spaces between columns, a line of dashes under the head.
    pub fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.columns.len()).map(|column| self.width(column)).collect();
        let head: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let dashes: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        let lines = [&head, &dashes].into_iter().chain(&self.rows);
        let mut out = String::new();
        for cells in lines {
            out.push_str(self.line(cells, &widths).trim_end());
            out.push('\n');
        }
        out
    }

    /// The table as HTML; its first column names the rows. Without names there is no head.
    pub fn draw(&self) -> String {
        let head = |(name, align): &(String, Align)| match name.is_empty() {
            true => "<td></td>".to_owned(),
            false => format!("<th scope=\"col\"{}>{}</th>", align.class(), escape(name)),
        };
        let head: String = self.columns.iter().map(head).collect();
        let head = match self.columns.iter().all(|(name, _)| name.is_empty()) {
            true => String::new(),
            false => format!("<thead><tr>{head}</tr></thead>\n"),
        };
        let rows: String = self.rows.iter().map(|cells| self.drawn(cells)).collect();
        format!("<div class=\"scroll\"><table>\n{head}<tbody>\n{rows}</tbody></table></div>\n")
    }

    fn drawn(&self, cells: &[String]) -> String {
        let cell = |(index, (words, (name, align))): (usize, (&String, &(String, Align)))| {
            let (class, words) = (align.class(), escape(words));
            match (index, name.is_empty()) {
                (0, _) => format!("<th scope=\"row\">{words}</th>"),
                (_, true) => format!("<td{class}>{words}</td>"),
                _ => format!("<td{class} data-name=\"{}\">{words}</td>", escape(name)),
            }
        };
        let cells: String = cells.iter().zip(&self.columns).enumerate().map(cell).collect();
        format!("<tr>{cells}</tr>\n")
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| &row[column]);
        cells.chain([&self.columns[column].0]).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    fn line(&self, cells: &[String], widths: &[usize]) -> String {
        let columns = cells.iter().zip(&self.columns).zip(widths);
        let aligned = columns.map(|((cell, (_, align)), &width)| match align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        aligned.collect::<Vec<_>>().join("  ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new([("name", Align::Left), ("n", Align::Right)]);
        table.row(["a".to_owned(), "10".to_owned()]).row(["long name".to_owned(), "7".to_owned()]);
        assert_eq!(table.render(), "name        n\n---------  --\na          10\nlong name   7\n");
    }

    #[test]
    fn drawn_it_names_rows_and_cells_and_words_of_users_are_escaped() {
        let row = ["<b>", "a & b", "7"].map(str::to_owned);
        let html = Table::of(&["", "\"what\"", "n"], 2, [row]).draw();
        let head = "<tr><td></td><th scope=\"col\" class=\"words\">&quot;what&quot;</th>\
                    <th scope=\"col\">n</th></tr>";
        let body = "<tr><th scope=\"row\">&lt;b&gt;</th>\
                    <td class=\"words\" data-name=\"&quot;what&quot;\">a &amp; b</td>\
                    <td data-name=\"n\">7</td></tr>";
        assert!(html.contains(head) && html.contains(body), "{html}");
        let unnamed = Table::of(&["", ""], 1, [["a", "1"].map(str::to_owned)]).draw();
        assert!(!unnamed.contains("<thead>") && unnamed.contains("<td>1</td>"), "{unnamed}");
    }
}
