//! The files of one import, read through the caller.

use super::error::{ImportError, Location};
use super::lexer::{Comment, tokens};
use super::syntax::{Block, Parser};
use std::io;

/// Files that source each other, one inside the other.
const SOURCED_MAX: usize = 16;

/// Fetches a file by the name that stands in another, or that the user gave.
pub(super) type Read<'r> = dyn FnMut(&str) -> io::Result<String> + 'r;

pub(super) struct Reader<'r> {
    read: &'r mut Read<'r>,
    /// What is being read, outermost first.
    open: Vec<String>,
    pub comments: Vec<Comment>,
}

impl<'r> Reader<'r> {
    pub(super) fn new(read: &'r mut Read<'r>) -> Self {
        Self { read, open: Vec::new(), comments: Vec::new() }
    }

    /// The blocks of the outermost file.
    pub(super) fn root(&mut self, file: &str) -> Result<Vec<Block>, ImportError> {
        let text = (self.read)(file)
            .map_err(|source| ImportError::Read { file: file.to_owned(), source })?;
        self.parse(file, &text)
    }

    /// The blocks of a file that is named at `at`.
    pub(super) fn source(&mut self, file: &str, at: &Location) -> Result<Vec<Block>, ImportError> {
        if self.open.len() >= SOURCED_MAX || self.open.iter().any(|open| open == file) {
            let what = format!("{file} sources itself, or files source each other too deep");
            return Err(ImportError::Syntax { at: at.clone(), what });
        }
        let text = self.text(file).map_err(|source| ImportError::Sourced {
            at: at.clone(),
            file: file.to_owned(),
            source,
        })?;
        self.parse(file, &text)
    }

    /// A file that is no parameter file.
    pub(super) fn text(&mut self, file: &str) -> io::Result<String> {
        (self.read)(file)
    }

    fn parse(&mut self, file: &str, text: &str) -> Result<Vec<Block>, ImportError> {
        let name = file.into();
        let (tokens, comments) = tokens(&name, text)?;
        self.comments.extend(comments);
        self.open.push(file.to_owned());
        let start = Location { file: name, line: 1 };
        let blocks = Parser::new(tokens, start, self).file();
        self.open.pop();
        blocks
    }
}
