//! Tokens, the log of who changed what, and what a tenant may have.

use crate::Result;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use taskwheel_model::field::{self, FieldError};
use taskwheel_model::{Role, Time, TypeSettings, limits};
use uuid::Uuid;

/// What every token begins with, so that a scanner finds one that was left somewhere.
const PREFIX: &str = "taskwheel_";

/// A token as it is kept: all about it but its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its number.
    pub id: i64,
    /// What it may do.
    pub role: Role,
    /// Whose tasks it is for; `None` is all tenants.
    pub tenant: Option<String>,
    /// The types that a worker may claim; `None` is all.
    pub types: Option<Vec<String>>,
    /// Most calls a second, on each node; `None` is no limit.
    pub rate_per_s: Option<i64>,
    /// When it was made.
    pub created_at: Time,
    /// From when on it is worth nothing; `None` is never.
    pub expires_at: Option<Time>,
    /// When it was last used, to the minute.
    pub last_used_at: Option<Time>,
    /// When it was revoked.
    pub revoked_at: Option<Time>,
}

impl Token {
    /// Whether it is worth anything at a time.
    #[must_use]
    pub fn is_valid(&self, now: Time) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }
}

/// A token as a caller is checked against it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The token.
    pub token: Token,
    /// The hash of its secret.
    pub secret_hash: String,
    /// Whether it is worth anything now, by the database's clock.
    pub is_valid: bool,
}

/// A token to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of a token")]
pub struct NewToken {
    pub role: Role,
    pub tenant: Option<String>,
    pub types: Option<Vec<String>>,
    pub rate_per_s: Option<i64>,
    /// How long it is valid, in milliseconds; `None` is for ever.
    pub expires_ms: Option<i64>,
}

impl NewToken {
    /// Checks every field.
    pub fn validate(&self) -> Result<(), FieldError> {
        match &self.tenant {
            Some(tenant) => field::name("tenant", tenant, limits::NAME_CHARS_MAX)?,
            None if !self.role.may_have_no_tenant() => {
                return Err(FieldError::new("tenant", format!("is needed for a token of the role {}", self.role)));
            }
            None => {}
        }
        if let Some(types) = &self.types {
            if self.role != Role::Worker {
                return Err(FieldError::new("types", "are for workers"));
            }
            if types.is_empty() || types.len() > limits::CLAIM_LANES_MAX {
                let message = format!("must be 1 to {} types", limits::CLAIM_LANES_MAX);
                return Err(FieldError::new("types", message));
            }
            types.iter().try_for_each(|one| field::task_type("types", one))?;
        }
        if let Some(rate) = self.rate_per_s {
            field::range("rate_per_s", rate, 1, 1_000_000)?;
        }
        if self.expires_ms.is_some_and(|ms| !(1..=limits::TIMEOUT_MS_MAX).contains(&ms)) {
            return Err(FieldError::new("expires", "must be between 1 ms and 366 days"));
        }
        Ok(())
    }
}

/// The secret of a token. It is shown once and kept nowhere; the database has its hash.
pub struct Secret(String);

impl Secret {
    /// A secret that nobody can guess: 244 random bits.
    #[must_use]
    pub fn random() -> Secret {
        Secret(format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()))
    }

    /// The token that a caller shows.
    #[must_use]
    pub fn token(&self, id: i64) -> String {
        format!("{PREFIX}{id}_{}", self.0)
    }

    /// Reads a token: its number and its secret.
    #[must_use]
    pub fn of_token(text: &str) -> Option<(i64, Secret)> {
        let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
        let number: i64 = id.parse().ok().filter(|number| *number > 0)?;
        (number.to_string() == id).then(|| (number, Secret(secret.to_owned())))
    }

    /// What is kept of it.
    #[must_use]
    pub fn hash(&self) -> String {
        sha256(&self.0)
    }

    /// Whether it has a hash. How long that takes says nothing about where they differ.
    #[must_use]
    pub fn has_hash(&self, hash: &str) -> bool {
        let own = self.hash();
        let differences = own.bytes().zip(hash.bytes()).fold(0, |differences, (a, b)| differences | (a ^ b));
        own.len() == hash.len() && std::hint::black_box(differences) == 0
    }
}

/// Who changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The token they showed.
    pub token_id: Option<i64>,
    /// In a word: a role, or where there was no token, from where they came.
    pub name: String,
}

impl Actor {
    /// An application that has the engine in its own process.
    #[must_use]
    pub fn application() -> Actor {
        Actor { token_id: None, name: "application".into() }
    }

    /// Somebody at the database itself.
    #[must_use]
    pub fn command_line() -> Actor {
        Actor { token_id: None, name: "command line".into() }
    }
}

/// A line of the log of changes.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    /// Its id; ids grow with time.
    pub id: String,
    /// When it was.
    pub at: Time,
    /// Who it was.
    pub actor: Actor,
    /// Whose things were changed; `None` where they are nobody's, as types are.
    pub tenant: Option<String>,
    /// What was done, as `task.cancel`.
    pub action: String,
    /// To what: the id of a task, the name of a type, the number of a token.
    pub target: String,
    /// What was so before and is otherwise now.
    pub before: Value,
    /// How it is now.
    pub after: Value,
    /// What else there is to say: filter and counts of an action on many.
    pub detail: Value,
}

impl AuditEntry {
    /// A line about a change that is made now.
    pub(crate) fn new(now: Time, by: &Actor, tenant: Option<&str>, action: &str, target: String) -> AuditEntry {
        AuditEntry {
            id: audit_id(now),
            at: now,
            actor: by.clone(),
            tenant: tenant.map(str::to_owned),
            action: action.to_owned(),
            target,
            before: Value::Null,
            after: Value::Null,
            detail: Value::Null,
        }
    }
}

/// Which lines of the log are wanted, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// Of this tenant; `None` is all, those of nobody among them.
    pub tenant: Option<String>,
    /// With this action.
    pub action: Option<String>,
    /// About this.
    pub target: Option<String>,
    /// Before this line: where the last page ended.
    pub before: Option<String>,
    /// Most lines.
    pub limit: usize,
}

/// What a tenant may have. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Most live tasks.
    pub live_max: Option<i64>,
    /// Most submits a second, on each node.
    pub submits_per_s: Option<i64>,
}

/// A change of something global, for the log.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeChange {
    /// The type.
    pub task_type: String,
    /// Its settings, where they change.
    pub settings: Option<TypeSettings>,
    /// Whether it is paused, where that changes.
    pub paused: Option<bool>,
}

/// What an action on many tasks writes into the log: a line for each tenant that has some of them, again with each chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct BulkAudit {
    /// Who acts.
    pub by: Actor,
    /// The filter and the action, in the words of the call.
    pub call: Value,
    /// What earlier chunks wrote, by tenant.
    pub lines: BTreeMap<String, BulkLine>,
}

impl BulkAudit {
    /// Of an action that begins.
    #[must_use]
    pub fn new(by: Actor, call: Value) -> BulkAudit {
        BulkAudit { by, call, lines: BTreeMap::new() }
    }
}

/// A tenant's line of an action on many tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkLine {
    /// Its id.
    pub id: String,
    /// How many of the tenant's tasks matched so far…
    pub matched: u64,
    /// …and how many changed.
    pub changed: u64,
}

/// A new id of a line: they grow with time, those of one process in the same millisecond as well, and no two are the same.
#[must_use]
pub fn audit_id(now: Time) -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let millis = u64::try_from(now.0).unwrap_or_default();
    // Behind the time, where bits are not for version and variant: a number that grows, and then chance.
    let mut rest: [u8; 10] = Uuid::new_v4().into_bytes()[6..].try_into().unwrap_or_default();
    let [_, high, middle, low] = (MADE.fetch_add(1, Ordering::Relaxed) << 2).to_be_bytes();
    [rest[0], rest[1], rest[2]] = [high, middle, low >> 2];
    uuid::Builder::from_unix_timestamp_millis(millis, &rest).into_uuid().to_string()
}

/// What is smaller than the ids of all lines since a time, and greater than those of all before.
pub(crate) fn audit_ids_since(time: Time) -> String {
    /// The digits of the time, with their hyphen.
    const TIME: usize = 13;
    audit_id(time)[..TIME].to_owned()
}

/// The SHA-256 of a text, in hex digits.
pub(crate) fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_secret_is_found_again_in_its_token_and_only_there() {
        let secret = Secret::random();
        let (id, read) = Secret::of_token(&secret.token(42)).unwrap();
        assert_eq!(id, 42);
        assert!(read.has_hash(&secret.hash()));
        assert!(!Secret::random().has_hash(&secret.hash()));
        assert!(!secret.has_hash(""));
        assert_eq!(secret.hash().len(), 64);
    }

    #[test]
    fn what_is_no_token_is_none() {
        for text in [
            "",
            "taskwheel_",
            "taskwheel_x_y",
            "taskwheel_-1_y",
            "taskwheel_+1_y",
            "taskwheel_01_y",
            "taskwheel_1",
            "other_1_y",
        ] {
            assert!(Secret::of_token(text).is_none(), "{text}");
        }
    }

    #[test]
    fn ids_of_lines_grow_with_time() {
        assert!(audit_id(Time(1_700_000_000_000)) < audit_id(Time(1_700_000_000_001)));
        let at_once: Vec<_> = (0..1_000).map(|_| audit_id(Time(5))).collect();
        assert!(at_once.is_sorted() && at_once.iter().collect::<HashSet<_>>().len() == 1_000, "{at_once:?}");
        let since = audit_ids_since(Time(1_700_000_000_001));
        assert!(audit_id(Time(1_700_000_000_000)) < since && since < audit_id(Time(1_700_000_000_001)));
    }
}
