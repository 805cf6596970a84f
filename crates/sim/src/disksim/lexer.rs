//! From characters to marks and texts.
//!
//! Names of parameters hold blanks, brackets and dots, so a text is whatever stands between marks
//! on one line. Comments are kept aside: files carry figures in them.

use super::error::{ImportError, Location};
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// One of `= , { } [ ]`.
    Mark(char),
    /// Blanks at its ends are gone, and those within are single.
    Text(String),
}

#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub token: Token,
    pub at: Location,
}

/// The text behind a `#`.
#[derive(Clone, Debug)]
pub(super) struct Comment {
    pub at: Location,
    pub text: String,
}

/// # Errors
/// Where a quoted text does not end on its line.
pub(super) fn tokens(
    file: &Arc<str>,
    text: &str,
) -> Result<(Vec<Placed>, Vec<Comment>), ImportError> {
    let (mut placed, mut comments) = (Vec::new(), Vec::new());
    for (index, line) in text.lines().enumerate() {
        let at = Location { file: file.clone(), line: index as u32 + 1 };
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let taken = match first {
                '#' => {
                    comments.push(Comment { at: at.clone(), text: rest[1..].to_owned() });
                    rest.len()
                }
                '=' | ',' | '{' | '}' | '[' | ']' => {
                    placed.push(Placed { token: Token::Mark(first), at: at.clone() });
                    1
                }
                '"' => {
                    let Some(length) = rest[1..].find('"') else {
                        let what = "a quoted text does not end on its line".to_owned();
                        return Err(ImportError::Syntax { at, what });
                    };
                    let token = Token::Text(rest[1..=length].to_owned());
                    placed.push(Placed { token, at: at.clone() });
                    length + 2
                }
                _ => {
                    let length = rest.find(['=', ',', '{', '}', '[', ']', '#', '"']);
                    let length = length.unwrap_or(rest.len());
                    let words: Vec<&str> = rest[..length].split_whitespace().collect();
                    if !words.is_empty() {
                        placed.push(Placed { token: Token::Text(words.join(" ")), at: at.clone() });
                    }
                    length
                }
            };
            rest = &rest[taken..];
        }
    }
    Ok((placed, comments))
}
