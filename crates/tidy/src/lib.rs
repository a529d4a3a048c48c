//! Reads the repository for the rules in `tests/tidy.rs`.

use std::fs;
use std::path::{Path, PathBuf};

/// A text file of the repository.
#[derive(Debug)]
pub struct File {
    /// Relative to the root, with `/` between its parts.
    pub path: String,
    /// The whole content.
    pub text: String,
}

impl File {
    /// Is it Rust source?
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The lines that are not comments, with their numbers as an editor shows them.
    pub fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        (1..).zip(self.text.lines()).filter(move |(_, line)| is_code(line))
    }
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All text files that belong to the repository: not what `.gitignore` names, and not `.git`.
///
/// # Panics
/// When the repository cannot be read.
pub fn files() -> Vec<File> {
    let root = root();
    let gitignore = fs::read_to_string(root.join(".gitignore")).expect("the repository has a .gitignore");
    let ignored: Vec<&str> = gitignore.lines().chain(["/.git"]).collect();
    let mut files = Vec::new();
    collect(&root, "", &ignored, &mut files);
    assert!(!files.is_empty(), "no files under {}", root.display());
    files
}

fn collect(root: &Path, folder: &str, ignored: &[&str], files: &mut Vec<File>) {
    for entry in fs::read_dir(root.join(folder)).expect("a folder of the repository is readable") {
        let entry = entry.expect("a folder of the repository is readable");
        let name = entry.file_name().into_string().expect("file names are UTF-8");
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        // A pattern that starts with a slash is a path from the root, another one is a name in any folder.
        let is_ignored =
            |pattern: &&str| pattern.strip_prefix('/').map_or(*pattern == name, |from_root| from_root == path);
        if ignored.iter().any(is_ignored) {
            continue;
        }
        let kind = entry.file_type().expect("a file of the repository has a type");
        if kind.is_dir() {
            collect(root, &path, ignored, files);
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            files.push(File { path, text });
        }
    }
}
