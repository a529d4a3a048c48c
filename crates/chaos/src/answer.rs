//! What goes over a link, as far as it can be told from its bytes: which answers say that something was changed. To swallow any other
//! proves nothing.

use rand::RngExt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// While no COMMIT is answered nothing is stored by a lone statement: that takes a connection which has answered before. So of so many
/// answers to a COMMIT one is swallowed, and all others.
const COMMITS: u32 = 8;

/// Something that is changed by a request.
struct Change {
    /// How many bytes stand before what tells the request from others, and that.
    before: usize,
    asked: &'static [u8],
    /// Whether an answer says that the change is made.
    is_done: fn(&[u8]) -> bool,
    /// Of so many answers one is swallowed.
    one_of: u32,
}

impl Change {
    const fn new(before: usize, asked: &'static [u8], is_done: fn(&[u8]) -> bool) -> Change {
        Change { before, asked, is_done, one_of: 1 }
    }

    const fn one_of(self, one_of: u32) -> Change {
        Change { one_of, ..self }
    }
}

const CHANGES: [Change; 8] = [
    Change::new(0, b"POST /v1/tasks ", |said| has(said, b"HTTP/1.1 201")),
    Change::new(0, REPORT, |said| has(said, b"\"accepted\"")),
    Change::new(0, b"POST /v1/worker/claim ", |said| has(said, b"\"exec_id\"")),
    // PostgreSQL: COMMIT, and a prepared statement that is a transaction by itself.
    Change::new(0, b"Q\0\0\0\x0bCOMMIT\0", |said| has(said, b"COMMIT\0Z\0\0\0\x05I")).one_of(COMMITS),
    Change::new(0, b"B", |said| said.ends_with(ALONE) && (has_inserted(said) || has_begun(said))),
    // MariaDB, where the length of a request comes first: COMMIT, one task that is stored alone, and several in one text that commits.
    Change::new(3, b"\0\x03COMMIT", is_committed).one_of(COMMITS),
    Change::new(3, b"\0\x03INSERT INTO task ", is_committed),
    Change::new(3, b"\0\x03SET @taskwheel_lets_wait = 1, autocommit = 0; ", is_committed),
];
const REPORT: &[u8] = b"POST /v1/worker/report ";
/// How the body of a request goes on that came in pieces. One byte could be the length of a request to MariaDB.
const BODY: &[u8] = b"{\"";
/// PostgreSQL: the portal is closed, and there is no transaction.
const ALONE: &[u8] = b"\x003\0\0\0\x04Z\0\0\0\x05I";

fn has_inserted(said: &[u8]) -> bool {
    has(said, b"INSERT 0 ") && !has(said, b"INSERT 0 0\0")
}

/// Whether a task was stored and begun by one statement. That answers two numbers and an empty text, which no other does.
fn has_begun(said: &[u8]) -> bool {
    has(said, b"D\0\0\0\x22\0\x03\0\0\0\x08") && has(said, b"\0\0\0\0C\0\0\0\x0dSELECT 1\0")
}

/// MariaDB: the last statement went well, there is no transaction, and there are no warnings.
fn is_committed(said: &[u8]) -> bool {
    said.ends_with(b"\x02\0\0\0")
}

/// What was last asked on a connection: the place of a change, counted from one.
#[derive(Default)]
pub(crate) struct Asked(AtomicUsize);

impl Asked {
    /// Hears what a client says.
    pub(crate) fn hear(&self, said: &[u8]) {
        if !said.starts_with(BODY) {
            let is_asked =
                |change: &Change| said.get(change.before..).is_some_and(|said| said.starts_with(change.asked));
            let place = CHANGES.iter().position(is_asked);
            self.0.store(place.map_or(0, |place| place + 1), Ordering::Relaxed);
        }
    }

    /// Whether an answer is to be swallowed: it says that the change was made that was asked for.
    pub(crate) fn is_swallowed(&self, said: &[u8]) -> bool {
        self.done(said).is_some_and(|change| rand::rng().random_ratio(1, change.one_of))
    }

    /// The change that was asked for, if an answer says that it was made.
    fn done(&self, said: &[u8]) -> Option<&'static Change> {
        let change = self.0.load(Ordering::Relaxed).checked_sub(1).and_then(|place| CHANGES.get(place))?;
        (change.is_done)(said).then_some(change)
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
        all.done(answer).is_some()
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
        assert!(is_done(&[b"\x07\0\0\0\x03COMMIT"], b"\x07\0\0\x01\0\0\0\x02\0\0\0"));
        assert!(!is_done(&[b"\x07\0\0\0\x03COMMIT"], b"\x09\0\0\x01\xff\0\0"));
        assert!(!is_done(&[b"\x06\0\0\0\x03BEGIN"], b"\x07\0\0\x01\0\0\0\x02\0\0\0"));
    }

    /// How the driver asks for a prepared statement, and what it is answered: recorded from sqlx 0.9 and PostgreSQL 15.
    const BIND: &[u8] = b"B\0\0\x02?\0sqlx_s_4\0\0\x01\0\x01\0\x13";
    const INSERTED: &[u8] =
        b"2\0\0\0\x04D\0\0\0\x12\0\x01\0\0\0\x08\0\0\0\0\0\0\0\x02C\0\0\0\x0fINSERT 0 1\x003\0\0\0\x04Z\0\0\0\x05I";
    const BEGUN: &[u8] = b"2\0\0\0\x04D\0\0\0\"\0\x03\0\0\0\x08\0\0\0\0\0\0\0\x06\0\0\0\x08\0\0\0\0\0\0\0\x02\0\0\0\0\
C\0\0\0\rSELECT 1\x003\0\0\0\x04Z\0\0\0\x05I";
    const COUNTED: &[u8] =
        b"2\0\0\0\x04D\0\0\0\x12\0\x01\0\0\0\x08\0\0\0\0\0\0\0\x01C\0\0\0\rSELECT 1\x003\0\0\0\x04Z\0\0\0\x05I";

    /// The same answer within a transaction.
    fn within(answer: &[u8]) -> Vec<u8> {
        [&answer[..answer.len() - 1], b"T"].concat()
    }

    #[test]
    fn a_lone_statement_of_postgres_that_stores_is_told_from_others() {
        for answer in [INSERTED, BEGUN] {
            assert!(is_done(&[BIND], answer));
            assert!(!is_done(&[BIND], &within(answer)), "its transaction is not over");
            assert!(!is_done(&[b"Q\0\0\0\x0bSELECT\0"], answer));
        }
        assert!(is_done(&[BIND], b"2\0\0\0\x04C\0\0\0\x0fINSERT 0 9\x003\0\0\0\x04Z\0\0\0\x05I"));
        assert!(
            !is_done(&[BIND], b"2\0\0\0\x04C\0\0\0\x0fINSERT 0 0\x003\0\0\0\x04Z\0\0\0\x05I"),
            "nothing was stored"
        );
        assert!(!is_done(&[BIND], b"2\0\0\0\x04C\0\0\0\rSELECT 0\x003\0\0\0\x04Z\0\0\0\x05I"), "nothing was begun");
        assert!(!is_done(&[BIND], b"2\0\0\0\x04C\0\0\0\rUPDATE 0\x003\0\0\0\x04Z\0\0\0\x05I"));
        assert!(!is_done(&[BIND], COUNTED));
        assert!(!is_done(
            &[BIND],
            b"2\0\0\0\x04D\0\0\0\n\0\x01\xff\xff\xff\xffC\0\0\0\rSELECT 1\x003\0\0\0\x04Z\0\0\0\x05I"
        ));
    }

    /// Recorded from sqlx 0.9 and MariaDB 10.11.
    #[test]
    fn a_lone_statement_of_mariadb_that_stores_is_told_from_others() {
        let one: &[u8] =
            b"\x97\0\0\0\x03INSERT INTO task (type, task_key, run_at, created_at, token_id) VALUES ('rare',";
        assert!(is_done(&[one], b"\x07\0\0\x01\0\x01\x02\x02\0\0\0"));
        assert!(!is_done(&[one], b"\x07\0\0\x01\0\x01\x01\x03\0\0\0"), "its transaction is not over");
        assert!(!is_done(&[one], b"\x09\0\0\x01\xff\0\0"));
        let several: &[u8] =
            b"\x96\x02\0\0\x03SET @taskwheel_lets_wait = 1, autocommit = 0; INSERT INTO task (type, task_key,";
        let stored: &[u8] =
            b"\x07\0\0\x01\0\0\0\x08\0\0\0.\0\0\x02\0\x05\r\t\0\0\0&Records: 5  Duplicates: 0  Warnings: 0\
.\0\0\x03\0\x05\0\t\0\0\0&Records: 5  Duplicates: 0  Warnings: 0";
        let committed: &[u8] = b"\x07\0\0\x04\0\0\0\x02\0\0\0";
        assert!(!is_done(&[several], stored), "it is not committed");
        assert!(is_done(&[several], committed), "it may come by itself");
        assert!(is_done(&[several], &[stored, committed].concat()));
        // One that looks up something, of which an answer ends in the same way: 123 bytes are a brace.
        assert!(!is_done(&[one, b"{\0\0\0\x03SELECT id FROM task"], committed));
    }
}
