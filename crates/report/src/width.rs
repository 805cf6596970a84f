//! Text in lines that fit: folded between words, never cut.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Columns where nothing else is known: of a file, or of a pipe.
const COLUMNS: usize = 100;
/// Narrower, a table has no room for its columns.
const COLUMNS_MIN: usize = 40;
/// Labels of lines end before this column.
const LABEL_MAX: usize = 32;

static CHOSEN: AtomicUsize = AtomicUsize::new(COLUMNS);

/// Columns of text.
pub fn columns() -> usize {
    CHOSEN.load(Ordering::Relaxed)
}

/// Text is for a terminal of this width.
pub fn set_columns(columns: usize) {
    CHOSEN.store(columns.max(COLUMNS_MIN), Ordering::Relaxed);
}

/// The text with long lines folded between words, the rest indented below their beginning. A
/// command goes on after a backslash. A word that is too long has a line of its own.
pub fn fold(text: &str, columns: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match line.strip_suffix('\n') {
            Some(line) => out += &(fold_line(line, columns, hang_of(line)) + "\n"),
            None => out += &fold_line(line, columns, hang_of(line)),
        }
    }
    out
}

/// A cell of a table in several lines.
pub(crate) fn wrap(cell: &str, columns: usize) -> Vec<String> {
    fold_line(cell, columns, 0).lines().map(str::to_owned).collect()
}

fn fold_line(line: &str, columns: usize, hang: usize) -> String {
    if letters(line) <= columns {
        return line.to_owned();
    }
    let is_command = line.trim_start().starts_with("headpond ");
    let (room, end) = if is_command { (columns - 2, " \\\n") } else { (columns, "\n") };
    let hang = hang.min(columns / 2);
    let mut out = String::new();
    let (mut used, mut has_word) = (0, false);
    for (space, word) in words(line) {
        let (gap, width) = (letters(space), letters(word));
        if has_word && used + gap + width > room {
            out.push_str(end);
            out.push_str(&" ".repeat(hang));
            used = hang;
        } else {
            out.push_str(space);
            used += gap;
        }
        out.push_str(word);
        used += width;
        has_word = true;
    }
    out
}

/// The column below which a line goes on: that of its text, behind a label or the sign of a list.
fn hang_of(line: &str) -> usize {
    let mut hang = None;
    let mut spaces = 0;
    for (column, letter) in line.chars().enumerate().take(LABEL_MAX) {
        match letter {
            ' ' => spaces += 1,
            _ => {
                if spaces > 1 {
                    hang = Some(column);
                }
                spaces = 0;
            }
        }
    }
    let hang = hang.unwrap_or(2);
    match line.get(hang..).is_some_and(|rest| rest.starts_with("- ")) {
        true => hang + 2,
        false => hang,
    }
}

/// Words with the spaces before them; a picture between bars is one.
fn words(line: &str) -> Vec<(&str, &str)> {
    let mut words = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let (space, after) = rest.split_at(rest.len() - rest.trim_start_matches(' ').len());
        let picture = after.strip_prefix('|').and_then(|inside| inside.find('|'));
        let end = picture.map_or(0, |end| end + 2);
        let end = after[end..].find(' ').map_or(after.len(), |space| end + space);
        let (word, left) = after.split_at(end);
        words.push((space, word));
        rest = left;
    }
    words
}

pub(crate) fn letters(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_goes_on_below_its_text() {
        assert_eq!(fold("one two three", 8), "one two\n  three");
        let labelled = "  alert     full: the cache is full of dirty data";
        let folded = "  alert     full: the\n            cache is full\n            of dirty data";
        assert_eq!(fold(labelled, 26), folded);
        assert_eq!(fold("  - one two three\n\nfour\n", 12), "  - one two\n    three\n\nfour\n");
        assert_eq!(fold("short\n", 100), "short\n");
    }

    #[test]
    fn a_command_that_is_folded_can_still_be_given() {
        let folded = fold("  headpond set hv0 mode=write-back eviction=lru", 36);
        assert_eq!(folded, "  headpond set hv0 mode=write-back \\\n  eviction=lru");
    }

    #[test]
    fn words_and_pictures_are_whole() {
        assert_eq!(fold("a /dev/disk/by-id/long b", 10), "a\n  /dev/disk/by-id/long\n  b");
        assert_eq!(fold("name  |▁  █ ▁|  60 s", 14), "name  |▁  █ ▁|\n       60 s");
    }
}
