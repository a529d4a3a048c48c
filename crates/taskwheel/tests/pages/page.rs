//! A page of the documentation, and the fenced blocks in it.

use std::path::Path;
use std::process::Command;

/// A fenced block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
}

/// The text of a page, by its path in the repository.
pub(crate) fn page(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The part of a page from one text to the next.
pub(crate) fn part<'p>(page: &'p str, from: &str, to: &str) -> &'p str {
    let (_, rest) = page.split_once(from).unwrap_or_else(|| panic!("the page has no {from}"));
    let (part, _) = rest.split_once(to).unwrap_or_else(|| panic!("the page has no {to} after {from}"));
    part
}

/// The fenced blocks of a page, in order.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(language), None) => open = Some(Block { language: language.to_owned(), text: String::new() }),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.text.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block is not closed: {open:?}");
    blocks
}

/// The texts of the blocks in a language.
pub(crate) fn texts(page: &str, language: &str) -> Vec<String> {
    blocks(page).into_iter().filter(|block| block.language == language).map(|block| block.text).collect()
}

/// Fails with a clear word when a program that a page uses is not on this machine.
pub(crate) fn require(program: &str) {
    let version = Command::new(program).arg("--version").output();
    let is_there = version.is_ok_and(|output| output.status.success());
    assert!(is_there, "this test runs {program}, as the page does: install it");
}
