//! What processes write into their logs from some moment on.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

/// A log, and how far it was read.
pub(crate) struct Log {
    path: PathBuf,
    from: u64,
}

impl Log {
    /// What comes from now on.
    pub(crate) fn from_now(path: PathBuf) -> Log {
        let from = path.metadata().map_or(0, |file| file.len());
        Log { path, from }
    }

    /// Whether one of these words came since the last look.
    pub(crate) fn says(&mut self, words: &[&str]) -> bool {
        let mut more = Vec::new();
        let read = File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.from))?;
            file.read_to_end(&mut more)
        });
        self.from += read.unwrap_or(0) as u64;
        let more = String::from_utf8_lossy(&more);
        words.iter().any(|word| more.contains(word))
    }
}
