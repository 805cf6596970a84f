//! From tokens to blocks: `TYPE NAME { KEY = VALUE, ... }`, nested, with lists and sourced files.

use super::document::Reader;
use super::error::{ImportError, Location};
use super::lexer::{Placed, Token};
use std::collections::VecDeque;

/// Blocks and lists within each other.
const DEPTH_MAX: u32 = 32;

#[derive(Clone, Debug)]
pub(super) struct Block {
    /// `disksim_disk`, `dm_layout_g1_zone`, ...
    pub kind: String,
    pub name: String,
    pub at: Location,
    /// Its last line, in the same file.
    pub last_line: u32,
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub value: Value,
}

#[derive(Clone, Debug)]
pub(super) struct Value {
    pub at: Location,
    pub content: Content,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    Text(String),
    List(Vec<Value>),
    Block(Block),
}

/// One file on its way to blocks.
pub(super) struct Parser<'a, 'r> {
    tokens: VecDeque<Placed>,
    end: Location,
    reader: &'a mut Reader<'r>,
    depth: u32,
}

impl<'a, 'r> Parser<'a, 'r> {
    pub(super) fn new(tokens: Vec<Placed>, start: Location, reader: &'a mut Reader<'r>) -> Self {
        let end = tokens.last().map_or(start, |last| last.at.clone());
        Self { tokens: tokens.into(), end, reader, depth: 0 }
    }

    /// The blocks of the file and of those that it sources.
    pub(super) fn file(&mut self) -> Result<Vec<Block>, ImportError> {
        let mut blocks = Vec::new();
        while let Some(Placed { token, at }) = self.tokens.pop_front() {
            match token {
                Token::Mark(',') => {}
                Token::Mark('[') => self.skip_list(&at)?,
                Token::Mark(mark) => return Err(unexpected(&at, mark)),
                Token::Text(text) => match (sourced(&text), self.is_next('{')) {
                    (Some(file), _) => blocks.extend(self.reader.source(file, &at)?),
                    (None, true) => blocks.push(self.block(&text, at)?),
                    // `instantiate [ disk0 ] as NAME`, `topology ... [ ... ]`: how the parts of
                    // a simulation hang together, which no drive depends on.
                    (None, false) => {}
                },
            }
        }
        Ok(blocks)
    }

    fn is_next(&self, mark: char) -> bool {
        self.tokens.front().is_some_and(|placed| placed.token == Token::Mark(mark))
    }

    /// The next token, inside something that began at `opened`.
    fn next(&mut self, opened: &Location) -> Result<Placed, ImportError> {
        self.tokens.pop_front().ok_or_else(|| ImportError::Syntax {
            at: self.end.clone(),
            what: format!("the file ends inside what began in line {}", opened.line),
        })
    }

    fn descend(&mut self, at: &Location) -> Result<(), ImportError> {
        self.depth += 1;
        match self.depth > DEPTH_MAX {
            true => Err(ImportError::Syntax { at: at.clone(), what: "is nested too deep".into() }),
            false => Ok(()),
        }
    }

    fn block(&mut self, header: &str, at: Location) -> Result<Block, ImportError> {
        self.descend(&at)?;
        let brace = self.tokens.pop_front();
        assert!(brace.is_some_and(|placed| placed.token == Token::Mark('{')), "seen before");
        let (kind, name) = header.split_once(' ').unwrap_or((header, ""));
        let mut entries = Vec::new();
        loop {
            let Placed { token, at: here } = self.next(&at)?;
            match token {
                Token::Mark(',') => {}
                Token::Mark('}') => {
                    self.depth -= 1;
                    let (kind, name) = (kind.to_owned(), name.to_owned());
                    return Ok(Block { kind, name, at, last_line: here.line, entries });
                }
                Token::Mark(mark) => return Err(unexpected(&here, mark)),
                Token::Text(key) => {
                    if !self.is_next('=') {
                        return Err(ImportError::field(&here, &key, "has no = behind it"));
                    }
                    self.tokens.pop_front();
                    let value = self.value(&here)?;
                    entries.push(Entry { key, value });
                }
            }
        }
    }

    fn value(&mut self, opened: &Location) -> Result<Value, ImportError> {
        let Placed { token, at } = self.next(opened)?;
        let content = match token {
            Token::Mark('[') => Content::List(self.list(&at)?),
            Token::Mark(mark) => return Err(unexpected(&at, mark)),
            Token::Text(text) => match (sourced(&text), self.is_next('{')) {
                (Some(file), _) => Content::Block(self.sourced_block(file, &at)?),
                (None, true) => Content::Block(self.block(&text, at.clone())?),
                (None, false) => Content::Text(text),
            },
        };
        Ok(Value { at, content })
    }

    fn sourced_block(&mut self, file: &str, at: &Location) -> Result<Block, ImportError> {
        let mut blocks = self.reader.source(file, at)?;
        match (blocks.pop(), blocks.is_empty()) {
            (Some(block), true) => Ok(block),
            _ => {
                let what = format!("{file} does not hold one block, as a value must");
                Err(ImportError::Syntax { at: at.clone(), what })
            }
        }
    }

    fn list(&mut self, opened: &Location) -> Result<Vec<Value>, ImportError> {
        self.descend(opened)?;
        let mut values = Vec::new();
        loop {
            match self.tokens.front().map(|placed| &placed.token) {
                Some(Token::Mark(',')) => drop(self.tokens.pop_front()),
                Some(Token::Mark(']')) => {
                    self.tokens.pop_front();
                    self.depth -= 1;
                    return Ok(values);
                }
                _ => values.push(self.value(opened)?),
            }
        }
    }

    fn skip_list(&mut self, opened: &Location) -> Result<(), ImportError> {
        let mut depth = 1;
        while depth > 0 {
            match self.next(opened)?.token {
                Token::Mark('[') => depth += 1,
                Token::Mark(']') => depth -= 1,
                _ => {}
            }
        }
        Ok(())
    }
}

fn unexpected(at: &Location, mark: char) -> ImportError {
    ImportError::Syntax { at: at.clone(), what: format!("a {mark} is out of place here") }
}

/// The file of `source FILE`.
fn sourced(text: &str) -> Option<&str> {
    text.strip_prefix("source ").map(str::trim)
}
