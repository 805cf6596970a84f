//! Files of at most 600 lines, functions of at most 70, comments and documents of at most 100
//! columns.
//!
//! **Not here**: the width of code, which rustfmt sees to.
//!
//! **Source**: functions are found by their indentation, which rustfmt guarantees; so the ones
//! inside of macros such as `proptest!` count as well.

use super::Offence;
use super::source::SourceFile;

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 100;

/// What is too long in this file.
pub fn check(source: &SourceFile) -> Vec<Offence> {
    let mut offences = Vec::new();
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        let what = format!("{lines} lines; a file has at most {FILE_LINES_MAX}");
        offences.push(Offence::new(&source.path, what));
    }
    for function in functions(&source.text).filter(|f| f.lines > FUNCTION_LINES_MAX) {
        let what = format!("{} lines; a function has at most {FUNCTION_LINES_MAX}", function.lines);
        offences.push(Offence::new(format!("{}:{}", source.path, function.line), what));
    }
    for (line, columns) in comments(&source.text).filter(|(_, width)| *width > COLUMNS_MAX) {
        let what = format!("{columns} columns; a comment has at most {COLUMNS_MAX}");
        offences.push(Offence::new(format!("{}:{line}", source.path), what));
    }
    offences
}

/// Lines of a document that are too wide; code, tables and addresses may be.
pub fn check_document(document: &SourceFile) -> Vec<Offence> {
    let mut offences = Vec::new();
    let mut is_code = false;
    for (at, line) in document.text.lines().enumerate() {
        let (text, columns) = (line.trim_start(), line.chars().count());
        is_code ^= text.starts_with("```");
        let is_free = is_code || text.starts_with('|') || line.contains("://");
        if columns > COLUMNS_MAX && !is_free {
            let what = format!("{columns} columns; a line has at most {COLUMNS_MAX}");
            offences.push(Offence::new(format!("{}:{}", document.path, at + 1), what));
        }
    }
    offences
}

/// Line number and width of each comment that may be wrapped; a bare address may not.
fn comments(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let lines = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"));
    let wrappable = lines.filter(|(_, line)| !line.contains("://"));
    wrappable.map(|(at, line)| (at + 1, line.chars().count()))
}

struct Function {
    /// Of its `fn`, counted from 1.
    line: usize,
    /// From its `fn` to its closing brace.
    lines: usize,
}

fn functions(text: &str) -> impl Iterator<Item = Function> {
    let lines: Vec<&str> = text.lines().collect();
    let starts: Vec<usize> = (0..lines.len()).filter(|at| starts_function(lines[*at])).collect();
    starts.into_iter().filter_map(move |start| {
        let end = (start..lines.len()).find(|at| ends_function(lines[start], lines[*at]))?;
        Some(Function { line: start + 1, lines: end - start + 1 })
    })
}

fn starts_function(line: &str) -> bool {
    let mut words = line.split_whitespace().skip_while(|word| is_qualifier(word));
    words.next() == Some("fn")
}

fn is_qualifier(word: &str) -> bool {
    word.starts_with("pub") || matches!(word, "const" | "async" | "unsafe" | "extern" | "\"C\"")
}

/// A function ends at the brace that stands below its own first column, a declaration at its `;`.
fn ends_function(start: &str, line: &str) -> bool {
    let text = line.trim();
    if std::ptr::eq(start, line) {
        return text.ends_with('}') || text.ends_with(';');
    }
    let ends = text.starts_with('}') || (text.starts_with(')') && text.ends_with(';'));
    ends && indentation(line) == indentation(start)
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::super::source::samples::file;
    use super::*;

    fn function_of(body_lines: usize) -> String {
        format!(
            "    pub async fn long(\n        &self,\n    ) {{\n{}    }}\n",
            "x();\n".repeat(body_lines)
        )
    }

    #[test]
    fn a_file_of_601_lines_is_too_long() {
        assert_eq!(check(&file("a.rs", &"\n".repeat(600))), []);
        assert_eq!(check(&file("a.rs", &"\n".repeat(601))).len(), 1);
    }

    #[test]
    fn a_function_of_71_lines_is_too_long() {
        assert_eq!(check(&file("a.rs", &function_of(66))), []);
        let offences = check(&file("a.rs", &format!("\n{}", function_of(67))));
        assert_eq!(offences.len(), 1);
        assert_eq!(offences[0].place, "a.rs:2");
    }

    #[test]
    fn a_comment_of_101_columns_is_too_wide() {
        assert_eq!(check(&file("a.rs", &format!("    // {}", "x".repeat(93)))), []);
        assert_eq!(check(&file("a.rs", &format!("    // {}", "x".repeat(94)))).len(), 1);
        assert_eq!(check(&file("a.rs", &format!("// https://{}", "x".repeat(99)))), []);
    }

    #[test]
    fn a_paragraph_of_101_columns_is_too_wide_and_code_and_tables_are_free() {
        let wide = "x".repeat(101);
        let fine = format!("{}\n```\n{wide}\n```\n| {wide} |\nhttps://{wide}\n", &wide[1..]);
        assert_eq!(check_document(&file("a.md", &fine)), []);
        let offences = check_document(&file("a.md", &format!("{fine}- {wide}\n")));
        assert_eq!(offences.len(), 1);
        assert_eq!(offences[0].place, "a.md:7");
    }

    #[test]
    fn a_declaration_does_not_swallow_what_follows() {
        for declaration in ["    fn f(&self);\n", "    fn f(\n        &self,\n    ) -> u8;\n"] {
            let text = format!("{declaration}{}    }}\n", "\n".repeat(100));
            assert_eq!(check(&file("a.rs", &text)), []);
        }
    }

    #[test]
    fn qualifiers_do_not_hide_a_function() {
        assert!(starts_function("    pub(crate) const unsafe extern \"C\" fn f() {"));
        assert!(!starts_function("    let fn_name = 1;"));
        assert!(!starts_function("// fn in a comment"));
    }
}
