//! The output of a command, in bounded memory and in a form that the server takes.

use serde_json::Value;
use serde_json::value::RawValue;
use taskwheel_model::limits::RESULT_BYTES_MAX;
use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest end of stderr. The server takes 8 KB for the whole error.
const ERROR_BYTES_MAX: usize = 4 * 1024;
/// So much more is kept than is shown: a character that was torn at the end is cut off whole.
const TORN_BYTES_MAX: usize = 4;
const READ_BYTES: usize = 16 * 1024;

/// The start or the end of what was read.
pub(super) struct Capture {
    bytes: Vec<u8>,
    keeps: Keeps,
}

/// What a command printed, as the result of its task.
pub(super) struct Printed {
    /// Nothing where it printed nothing.
    pub(super) result: Option<Box<RawValue>>,
    /// It was longer than the server takes, and this is its start.
    pub(super) is_cut: bool,
}

enum Keeps {
    Start,
    End,
}

impl Capture {
    /// For stdout: its start is the result.
    pub(super) fn of_stdout() -> Capture {
        Capture { bytes: Vec::new(), keeps: Keeps::Start }
    }

    /// For stderr: its end says what went wrong.
    pub(super) fn of_stderr() -> Capture {
        Capture { bytes: Vec::new(), keeps: Keeps::End }
    }

    /// Reads to the end. When it is dropped before, what was read until then is there.
    pub(super) async fn fill(&mut self, source: Option<impl AsyncRead + Unpin>) {
        let Some(mut source) = source else { return };
        let mut buffer = vec![0; READ_BYTES];
        // A pipe that breaks ends like one that is closed.
        while let Ok(count @ 1..) = source.read(&mut buffer).await {
            self.take(&buffer[..count]);
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        match self.keeps {
            Keeps::Start => self.bytes.truncate(RESULT_BYTES_MAX + TORN_BYTES_MAX),
            Keeps::End => {
                let excess = self.bytes.len().saturating_sub(ERROR_BYTES_MAX + TORN_BYTES_MAX);
                self.bytes.drain(..excess);
            }
        }
    }

    /// What was read as a result: JSON where it is JSON, else its start as a JSON string. Nothing is no result.
    pub(super) fn into_result(self) -> Printed {
        let text = String::from_utf8_lossy(&self.bytes);
        let text = text.trim_end_matches(['\n', '\r']);
        if text.is_empty() {
            return Printed { result: None, is_cut: false };
        }
        // Parsed whole, since JSON with half a surrogate pair would be refused later.
        let is_json = text.len() <= RESULT_BYTES_MAX && serde_json::from_str::<Value>(text).is_ok();
        let (json, is_cut) = if is_json { (text.to_owned(), false) } else { json_string(text, RESULT_BYTES_MAX) };
        Printed { result: RawValue::from_string(json).ok(), is_cut }
    }

    /// What was read as a text for an error: its end.
    pub(super) fn into_error(self) -> String {
        // The database cannot store NUL.
        let text = String::from_utf8_lossy(&self.bytes).replace('\0', "\u{fffd}");
        let text = text.trim_end();
        let start = text.ceil_char_boundary(text.len().saturating_sub(ERROR_BYTES_MAX));
        text[start..].to_owned()
    }
}

/// A text as a JSON string of at most so many bytes, and whether that is its start alone.
fn json_string(text: &str, bytes_max: usize) -> (String, bool) {
    let mut end = text.floor_char_boundary(bytes_max);
    loop {
        let json = Value::from(&text[..end]).to_string();
        if json.len() <= bytes_max {
            return (json, end < text.len());
        }
        // Escapes and quotes made it longer. It shrinks by a byte at least, so this ends.
        end = text.floor_char_boundary(end * bytes_max / json.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(stdout: &[u8]) -> Printed {
        let mut capture = Capture::of_stdout();
        stdout.chunks(READ_BYTES).for_each(|chunk| capture.take(chunk));
        capture.into_result()
    }

    fn result(stdout: &[u8]) -> Option<String> {
        printed(stdout).result.map(|result| result.get().to_owned())
    }

    fn error(stderr: &[u8]) -> String {
        let mut capture = Capture::of_stderr();
        stderr.chunks(READ_BYTES).for_each(|chunk| capture.take(chunk));
        capture.into_error()
    }

    #[test]
    fn json_stays_as_it_was_written() {
        assert_eq!(result(b"{\"n\": 1.0}\n").as_deref(), Some("{\"n\": 1.0}"));
        assert_eq!(result(b"12345678901234567890123").as_deref(), Some("12345678901234567890123"));
    }

    #[test]
    fn other_output_becomes_a_string() {
        assert_eq!(result(b"sent 3 mails\n").as_deref(), Some("\"sent 3 mails\""));
        assert_eq!(result(b"\xff\n").as_deref(), Some("\"\u{fffd}\""));
        assert_eq!(result(br#""\ud800""#).as_deref(), Some(r#""\"\\ud800\"""#), "half a surrogate pair is no JSON");
        assert_eq!(result(b"\n"), None);
    }

    #[test]
    fn a_long_result_is_cut_between_characters() {
        for letter in ["a", "é", "€", "😀", "\n.", "\"", "\u{1}"] {
            let json = result(letter.repeat(RESULT_BYTES_MAX).as_bytes()).unwrap();
            assert!(json.len() <= RESULT_BYTES_MAX && json.len() > RESULT_BYTES_MAX - 16, "{letter:?}: {}", json.len());
            let text: String = serde_json::from_str(&json).unwrap();
            assert!(!text.contains('\u{fffd}'), "{letter:?}");
        }
    }

    #[test]
    fn what_is_cut_is_known_as_such() {
        let is_cut = |length: usize| printed("a".repeat(length).as_bytes()).is_cut;
        assert!(!is_cut(RESULT_BYTES_MAX - 2), "it fits with its quotes");
        assert!(is_cut(RESULT_BYTES_MAX - 1) && is_cut(2 * RESULT_BYTES_MAX));
        let json = format!("[{}]", " ".repeat(RESULT_BYTES_MAX - 2));
        assert!(!printed(json.as_bytes()).is_cut);
        assert!(printed(format!("{json} ").as_bytes()).is_cut, "JSON that is too long is cut as a text");
    }

    #[test]
    fn a_long_error_keeps_its_end_between_characters() {
        for letter in ["a", "é", "€", "😀"] {
            let text = error(format!("{}end\n", letter.repeat(READ_BYTES)).as_bytes());
            assert!(text.len() <= ERROR_BYTES_MAX && text.len() > ERROR_BYTES_MAX - 4, "{letter:?}: {}", text.len());
            assert!(text.ends_with("end") && !text.contains('\u{fffd}'), "{letter:?}");
        }
        assert!(error(&[0; READ_BYTES]).len() <= ERROR_BYTES_MAX);
    }
}
