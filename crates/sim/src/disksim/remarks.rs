//! Figures that stand in comments.
//!
//! The files made by DIXtrac name the measured seek curve as a file of its own, and keep figures of
//! the older formats as comments beside it. Where the curve is missing, they are what is known.

use super::error::Location;
use super::lexer::Comment;
use super::syntax::Block;

/// Numbers of a list `KEY = [ ... ]` in comments within a block, and where they stand.
pub(super) fn numbers(
    comments: &[Comment],
    block: &Block,
    key: &str,
) -> Option<(Vec<f64>, Location)> {
    let within = |comment: &&Comment| {
        comment.at.file == block.at.file
            && (block.at.line..=block.last_line).contains(&comment.at.line)
    };
    let mut lines = comments.iter().filter(within);
    let first = lines.find(|comment| comment.text.trim_start().starts_with(key))?;
    let mut text = first.text.clone();
    for line in lines {
        if text.contains(']') {
            break;
        }
        text.push_str(&line.text);
    }
    let list = text.split_once('[')?.1.split_once(']')?.0;
    let words = list.split([',', ' ', '\t']).filter(|word| !word.is_empty());
    let numbers: Option<Vec<f64>> = words.map(|word| word.parse().ok()).collect();
    Some((numbers.filter(|numbers| !numbers.is_empty())?, first.at.clone()))
}
