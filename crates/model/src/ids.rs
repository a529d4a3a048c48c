//! The ids of tasks, executions and databases.

use crate::limits::DATABASE_NUMBER_MAX;
use serde::{Deserialize, Serialize};
use std::fmt;
use uuid::Uuid;

/// Ids of one database lie in a range of this size, so that ids are unique over several databases and stay below 2^53.
const IDS_PER_DATABASE: i64 = 1 << 44;

/// The id of a task: never reused, the same while it lives and in history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub i64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of one execution of a task. It fences: what another execution than the current one says changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExecId(pub Uuid);

impl ExecId {
    /// A new execution id: a UUIDv7 of the given time, with random bits from the caller.
    #[must_use]
    pub fn new(at: crate::Time, random: [u8; 10]) -> ExecId {
        let ms = u64::try_from(at.0).unwrap_or(0);
        ExecId(uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid())
    }

    /// When it began: the time in its id.
    #[must_use]
    pub fn began_at(self) -> crate::Time {
        let ms = self.0.as_u64_pair().0 >> 16;
        crate::Time(ms.cast_signed())
    }
}

impl fmt::Display for ExecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a database, 0 to 511, fixed at its first migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseNumber(u16);

impl DatabaseNumber {
    /// A database number, or `None` above 511.
    #[must_use]
    pub fn new(number: u16) -> Option<DatabaseNumber> {
        (number <= DATABASE_NUMBER_MAX).then_some(DatabaseNumber(number))
    }

    /// The number itself.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }

    /// The first id that this database hands out.
    #[must_use]
    pub fn first_id(self) -> TaskId {
        TaskId(i64::from(self.0) * IDS_PER_DATABASE + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_all_databases_stay_below_two_to_the_53() {
        let last = DatabaseNumber::new(DATABASE_NUMBER_MAX).unwrap().first_id().0 + IDS_PER_DATABASE;
        assert!(last <= (1 << 53) + 1, "{last}");
        assert_eq!(DatabaseNumber::default().first_id(), TaskId(1));
        assert_eq!(DatabaseNumber::new(512), None);
    }

    #[test]
    fn exec_ids_sort_by_time() {
        let early = ExecId::new(crate::Time(1_700_000_000_000), [255; 10]);
        let late = ExecId::new(crate::Time(1_700_000_000_001), [0; 10]);
        assert!(early < late);
        assert_eq!(early.0.get_version_num(), 7);
        assert_eq!(early.began_at(), crate::Time(1_700_000_000_000));
    }
}
