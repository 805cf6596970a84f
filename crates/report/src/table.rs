//! Tables, as plain text and as HTML.
//!
//! **Invariants**: every row has as many cells as the head. Text fits [`columns`]: long cells of
//! words and long heads take several lines, and then the columns stand in blocks below each other,
//! each with the first column.

use super::escape;
use super::width::{columns, letters, wrap};

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

/// Spaces between columns.
const GAP: usize = 2;
/// Columns of words are not narrower than this for the sake of others.
const WORDS_MIN: usize = 16;

/// On a page, longer cells are words whatever their column has: figures do not wrap.
const LINE_LETTERS_MAX: usize = 28;

/// Part of a line that the first column has before others are put beside it.
const NAMES_PERCENT: usize = 45;

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
        self.render_within(columns())
    }

    fn render_within(&self, room: usize) -> String {
        let blocks = self.blocks(room);
        let blocks = blocks.iter().map(|block| self.block(block, room));
        blocks.collect::<Vec<_>>().join("\n")
    }

    /// The columns that stand side by side: all of them, where they fit.
    fn blocks(&self, room: usize) -> Vec<Vec<usize>> {
        let mut blocks: Vec<Vec<usize>> = Vec::new();
        let mut used = 0;
        for column in 0..self.columns.len() {
            let width = self.least(column, room);
            match blocks.last_mut() {
                Some(block) if used + GAP + width <= room => {
                    block.push(column);
                    used += GAP + width;
                }
                None => {
                    blocks.push(vec![column]);
                    used = width;
                }
                Some(_) => {
                    blocks.push(vec![0, column]);
                    used = self.least(0, room) + GAP + width;
                }
            }
        }
        blocks
    }

    fn block(&self, block: &[usize], room: usize) -> String {
        let widths = self.widths(block, room);
        let head: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let mut out = self.lines(&head, block, &widths);
        let dashes: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
        out += &(dashes.join("  ") + "\n");
        out.extend(self.rows.iter().map(|cells| self.lines(cells, block, &widths)));
        out
    }

    /// The widths of a block's columns: the widest are narrowed until all of them fit.
    fn widths(&self, block: &[usize], room: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = block.iter().map(|&column| self.width(column)).collect();
        let least: Vec<usize> = block.iter().map(|&column| self.least(column, room)).collect();
        while widths.iter().sum::<usize>() + GAP * (block.len() - 1) > room {
            let can_shrink = (0..block.len()).filter(|&index| widths[index] > least[index]);
            let Some(widest) = can_shrink.max_by_key(|&index| widths[index]) else { break };
            widths[widest] -= 1;
        }
        widths
    }

    /// The least width of a column: words are whole, and figures are in one line.
    fn least(&self, column: usize, room: usize) -> usize {
        let longest = |text: &String| text.split(' ').map(letters).max().unwrap_or(0);
        let (name, align) = &self.columns[column];
        let cells = self.rows.iter().map(|row| &row[column]);
        let cells = cells.map(|cell| match align {
            Align::Left => longest(cell).max(letters(cell).min(WORDS_MIN)),
            Align::Right => letters(cell),
        });
        let least = cells.chain([longest(name)]).max().unwrap_or(0);
        // The first column names the rows, which are to be read at a glance.
        let named = if column == 0 { self.width(0).min(room * NAMES_PERCENT / 100) } else { 0 };
        // A lone column may have all of a line.
        least.max(named).min(room)
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
            let is_long = letters(words) > LINE_LETTERS_MAX;
            let class = if is_long { Align::Left.class() } else { align.class() };
            let words = escape(words);
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

    /// A row of a block, in as many lines as its longest cell takes.
    fn lines(&self, cells: &[String], block: &[usize], widths: &[usize]) -> String {
        let pieces = |(&column, &width): (&usize, &usize)| -> Vec<String> {
            match letters(&cells[column]) <= width {
                true => vec![cells[column].clone()],
                false => wrap(&cells[column], width),
            }
        };
        let pieces: Vec<Vec<String>> = block.iter().zip(widths).map(pieces).collect();
        let height = pieces.iter().map(Vec::len).max().unwrap_or(0);
        let mut out = String::new();
        for line in 0..height {
            let cells = pieces.iter().map(|lines| lines.get(line).map_or("", String::as_str));
            let columns = cells.zip(block).zip(widths);
            let aligned = columns.map(|((cell, &column), &width)| match self.columns[column].1 {
                Align::Left => format!("{cell:<width$}"),
                Align::Right => format!("{cell:>width$}"),
            });
            out += aligned.collect::<Vec<_>>().join("  ").trim_end();
            out.push('\n');
        }
        out
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
    fn words_and_heads_take_several_lines_where_the_table_would_be_too_wide() {
        let columns = ["name", "what it is about", "requests a second"];
        let row = ["a", "something that needs many words", "1,200"].map(str::to_owned);
        let table = Table::of(&columns, 2, [row]);
        let expected = "\
            name  what it is about   requests\n\
            \x20                        a second\n\
            ----  ----------------  ---------\n\
            a     something that        1,200\n\
            \x20     needs many words\n";
        assert_eq!(table.render_within(33), expected);
    }

    #[test]
    fn columns_that_do_not_fit_stand_below_with_the_names_of_the_rows() {
        let columns = ["name", "first", "second", "third"];
        let row = ["row", "1000", "2000", "3000"].map(str::to_owned);
        let text = Table::of(&columns, 1, [row]).render_within(20);
        let expected = "name  first  second\n----  -----  ------\nrow    1000    2000\n\n\
                        name  third\n----  -----\nrow    3000\n";
        assert_eq!(text, expected);
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
        let long = ["a", "1.07x with mode=write-back cleaning=stripe"].map(str::to_owned);
        let html = Table::of(&["", "n"], 1, [long]).draw();
        assert!(html.contains("<td class=\"words\" data-name=\"n\">1.07x with"), "{html}");
        let unnamed = Table::of(&["", ""], 1, [["a", "1"].map(str::to_owned)]).draw();
        assert!(!unnamed.contains("<thead>") && unnamed.contains("<td>1</td>"), "{unnamed}");
    }
}
