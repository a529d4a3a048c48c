//! What goes over a link, as far as it can be told from its bytes: which answers say that something was changed. To swallow any other
//! proves nothing.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How a request that changes something begins, and what its answer has in it when the change is made.
const CHANGES: [(&[u8], &[u8]); 6] = [
    (b"POST /v1/tasks ", b"HTTP/1.1 201"),
    (REPORT, b"\"accepted\""),
    (b"POST /v1/worker/claim ", b"\"exec_id\""),
    // PostgreSQL: COMMIT, and an INSERT after which there is no transaction, so that it was one.
    (b"Q\0\0\0\x0bCOMMIT\0", b"COMMIT\0Z\0\0\0\x05I"),
    (b"B", b"INSERT 0 1\0Z\0\0\0\x05I"),
    // MariaDB: COMMIT, and its OK.
    (b"\x07\0\0\0\x03COMMIT", b"\0\0\x01\0"),
];
const REPORT: &[u8] = b"POST /v1/worker/report ";
/// How the body of a request goes on that came in pieces.
const BODY: &[u8] = b"{";

/// What was last asked on a connection: the place of a change, counted from one.
#[derive(Default)]
pub(crate) struct Asked(AtomicUsize);

impl Asked {
    /// Hears what a client says.
    pub(crate) fn hear(&self, said: &[u8]) {
        if !said.starts_with(BODY) {
            let place = CHANGES.iter().position(|(asked, _)| said.starts_with(asked));
            self.0.store(place.map_or(0, |place| place + 1), Ordering::Relaxed);
        }
    }

    /// Whether an answer says that the change was made that was asked for.
    pub(crate) fn is_done(&self, said: &[u8]) -> bool {
        let change = self.0.load(Ordering::Relaxed).checked_sub(1).and_then(|place| CHANGES.get(place));
        change.is_some_and(|(_, done)| has(said, done))
    }
}

/// Whether this is all of a worker's word on an execution.
pub(crate) fn is_report(said: &[u8]) -> bool {
    said.starts_with(REPORT) && said.ends_with(b"}")
}

/// Whether this is the answer to one that was read, whatever came of it.
pub(crate) fn is_of_report(said: &[u8]) -> bool {
    said.starts_with(b"HTTP/1.1 200") && has(said, b"\"state\"")
}

fn has(said: &[u8], words: &[u8]) -> bool {
    said.windows(words.len()).any(|window| window == words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is_done(asked: &[&[u8]], answer: &[u8]) -> bool {
        let all = Asked::default();
        asked.iter().for_each(|said| all.hear(said));
        all.is_done(answer)
    }

    #[test]
    fn an_answer_to_a_change_is_told_from_others() {
        let submit: &[u8] = b"POST /v1/tasks HTTP/1.1\r\nhost: h\r\n\r\n";
        assert!(is_done(&[submit, b"{\"type\":\"work\"}"], b"HTTP/1.1 201 Created\r\n"));
        assert!(!is_done(&[submit], b"HTTP/1.1 503 Service Unavailable\r\n"));
        assert!(!is_done(&[submit, b"GET /v1/tasks HTTP/1.1\r\n"], b"HTTP/1.1 201 Created\r\n"));
        let claim: &[u8] = b"POST /v1/worker/claim HTTP/1.1\r\n\r\n{}";
        assert!(is_done(&[claim], b"HTTP/1.1 200 OK\r\n\r\n{\"tasks\":[{\"exec_id\":\"e\"}]}"));
        assert!(!is_done(&[claim], b"HTTP/1.1 200 OK\r\n\r\n{\"tasks\":[]}"));
    }

    #[test]
    fn a_commit_is_told_from_other_statements() {
        assert!(is_done(&[b"Q\0\0\0\x0bCOMMIT\0"], b"C\0\0\0\x0bCOMMIT\0Z\0\0\0\x05I"));
        assert!(!is_done(&[b"Q\0\0\0\x0bCOMMIT\0"], b"C\0\0\0\x0dROLLBACK\0Z\0\0\0\x05I"));
        assert!(is_done(&[b"B\0\0\0\x10"], b"C\0\0\0\x0fINSERT 0 1\0Z\0\0\0\x05I"));
        assert!(!is_done(&[b"B\0\0\0\x10"], b"C\0\0\0\x0fINSERT 0 1\0Z\0\0\0\x05T"));
        assert!(is_done(&[b"\x07\0\0\0\x03COMMIT"], b"\x07\0\0\x01\0\0\0\x02\0\0\0"));
        assert!(!is_done(&[b"\x07\0\0\0\x03COMMIT"], b"\x09\0\0\x01\xff\0\0"));
        assert!(!is_done(&[b"\x06\0\0\0\x03BEGIN"], b"\x07\0\0\x01\0\0\0\x02\0\0\0"));
    }
}
