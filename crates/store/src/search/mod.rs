//! Searching tasks: filters, pages, cursors, and the statement that finds them with bounded work.
//!
//! A search first walks one index, the *driver*, that fits the filter best, and then looks at the whole rows. Where the
//! filter asks for more than the driver knows, a page looks at no more than [`limits::PAGE_SCAN_ROWS_MAX`] rows: it may be
//! short, and its cursor goes on from there. So no search, however odd, holds up the database.

mod sql;
mod walk;

use sql::{Edge, Query};
pub(crate) use sql::{Statement, Value};

use crate::Result;
use crate::options::Dialect;
use crate::session::{Attempted, Session};
use crate::task::Task;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use taskwheel_model::field::{self, FieldError};
use taskwheel_model::submit::priority;
use taskwheel_model::{Status, TaskId, Time, limits};

/// Which tasks are wanted. What is `None` or empty does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of the API")]
pub struct Filter {
    pub statuses: Vec<Status>,
    pub task_type: Option<String>,
    pub category: Option<String>,
    pub key: Option<String>,
    pub creator: Option<String>,
    pub host: Option<String>,
    pub priority: Option<u8>,
    pub run_at_from: Option<Time>,
    pub run_at_to: Option<Time>,
    pub created_from: Option<Time>,
    pub created_to: Option<Time>,
    pub schedule_id: Option<i64>,
    /// Submitted with this token.
    pub token_id: Option<i64>,
    /// A part of the key, the payload, the error or the remark.
    pub text: Option<String>,
}

impl Filter {
    /// Checks every field.
    pub fn validate(&self) -> Result<(), FieldError> {
        let texts = [
            ("type", &self.task_type, limits::TYPE_CHARS_MAX),
            ("category", &self.category, limits::KEY_CHARS_MAX),
            ("key", &self.key, limits::KEY_CHARS_MAX),
            ("creator", &self.creator, limits::NAME_CHARS_MAX),
            ("host", &self.host, limits::NAME_CHARS_MAX),
            ("text", &self.text, limits::KEY_CHARS_MAX),
        ];
        for (name, value, chars_max) in texts {
            if let Some(value) = value {
                field::text(name, value, chars_max)?;
            }
        }
        self.priority.map_or(Ok(()), priority)?;
        let times = [
            ("run_at_from", self.run_at_from),
            ("run_at_to", self.run_at_to),
            ("created_from", self.created_from),
            ("created_to", self.created_to),
        ];
        times
            .iter()
            .filter_map(|(name, time)| time.map(|time| (name, time)))
            .try_for_each(|(name, time)| field::time(name, time))
    }
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Newest first.
    #[default]
    IdDescending,
    /// Oldest first.
    IdAscending,
    /// Earliest due first.
    RunAtAscending,
    /// Latest due first.
    RunAtDescending,
}

impl Sort {
    fn is_by_run_at(self) -> bool {
        matches!(self, Sort::RunAtAscending | Sort::RunAtDescending)
    }

    fn is_ascending(self) -> bool {
        matches!(self, Sort::IdAscending | Sort::RunAtAscending)
    }
}

/// A plain INSERT may say that a task was due long before 1970, as far back as all databases reckon, or is due in the last year that
/// PostgreSQL can say, 294276. SQLite, which knows only numbers there, is told to take no others.
const ID: RangeInclusive<i64> = 0..=(1 << 53) - 1;
const RUN_AT: RangeInclusive<i64> = -(1 << 47)..=9_224_318_015_999_999;

/// Where a page ended. Opaque to everybody else; it stays valid while tasks come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    id: TaskId,
    run_at: Time,
}

impl Cursor {
    /// Behind an id, for searches in the order of ids.
    pub(crate) fn at(id: TaskId) -> Cursor {
        Cursor { id, run_at: Time(0) }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.id.0, self.run_at.0)
    }
}

impl FromStr for Cursor {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Cursor, FieldError> {
        let number = |text: &str, range: &RangeInclusive<i64>| {
            let number = u64::from_str_radix(text, 16).ok()?.cast_signed();
            range.contains(&number).then_some(number)
        };
        let cursor =
            |(id, run_at)| Some(Cursor { id: TaskId(number(id, &ID)?), run_at: Time(number(run_at, &RUN_AT)?) });
        text.split_once('-')
            .and_then(cursor)
            .ok_or_else(|| FieldError::new("cursor", "must be a next_cursor of an earlier answer"))
    }
}

/// A page that is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Whose tasks; `None` is everybody's.
    pub tenant: Option<String>,
    /// Which tasks.
    pub filter: Filter,
    /// In which order.
    pub sort: Sort,
    /// Most tasks on the page.
    pub limit: usize,
    /// Where the page before ended.
    pub cursor: Option<Cursor>,
}

impl Listing {
    /// Checks every field.
    pub fn validate(&self) -> Result<(), FieldError> {
        self.filter.validate()?;
        field::range("limit", i64::try_from(self.limit).unwrap_or(i64::MAX), 1, limits::PAGE_ROWS_MAX as i64)
    }
}

/// A page of tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The tasks.
    pub items: Vec<Task>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<Cursor>,
}

/// A search, with all that its statement depends on.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    pub(crate) tenant: Option<String>,
    pub(crate) filter: Filter,
    pub(crate) sort: Sort,
    pub(crate) limit: usize,
    pub(crate) cursor: Option<Cursor>,
    /// Only ids up to this one: what a bulk action began with.
    pub(crate) up_to: Option<TaskId>,
    /// The types that have the wanted category, for tasks that name none themselves.
    pub(crate) category_types: Vec<String>,
}

/// What an unsorted range of due times may hold to be sorted by id on the spot.
const RANGE_ROWS_MAX: usize = 5_000;

impl Search {
    /// The tasks of a page.
    pub(crate) async fn page(&self, session: &mut dyn Session, dialect: Dialect) -> Attempted<Page> {
        let query = self.query(session, dialect).await?;
        let mut items = session.select_tasks(&query.rows()).await?;
        let next = if items.len() > self.limit {
            items.truncate(self.limit);
            items.last().map(|task| Cursor { id: task.id, run_at: task.run_at })
        } else {
            self.scanned_to(session, &query).await?
        };
        Ok(Page { items, next })
    }

    /// Whether it must be made for each tenant by itself: due times are indexed by tenant.
    pub(crate) fn is_over_tenants(&self) -> bool {
        self.tenant.is_none() && self.sort.is_by_run_at()
    }

    /// The first tasks of several pages in the order of this search, as far as all of them are known.
    pub(crate) fn merged(&self, pages: Vec<Page>) -> Page {
        let place = |cursor: Cursor| {
            let sign = if self.sort.is_ascending() { 1 } else { -1 };
            (sign * cursor.run_at.0, sign * cursor.id.0)
        };
        let of = |task: &Task| Cursor { id: task.id, run_at: task.run_at };
        let known_to = pages.iter().filter_map(|page| page.next).min_by_key(|cursor| place(*cursor));
        let mut items: Vec<_> = pages.into_iter().flat_map(|page| page.items).collect();
        items.retain(|task| known_to.is_none_or(|end| place(of(task)) <= place(end)));
        items.sort_by_key(|task| place(of(task)));
        let next = if items.len() > self.limit { Some(of(&items[self.limit - 1])) } else { known_to };
        items.truncate(self.limit);
        Page { items, next }
    }

    /// The ids of the next chunk, and where the one after it starts.
    pub(crate) async fn ids(
        &self,
        session: &mut dyn Session,
        dialect: Dialect,
    ) -> Attempted<(Vec<TaskId>, Option<TaskId>)> {
        let query = self.query(session, dialect).await?;
        let mut keys = session.select_keys(&query.keys()).await?;
        let next = if keys.len() > self.limit {
            keys.truncate(self.limit);
            keys.last().map(|(id, _)| *id)
        } else {
            self.scanned_to(session, &query).await?.map(|cursor| cursor.id)
        };
        Ok((keys.into_iter().map(|(id, _)| id).collect(), next))
    }

    /// Where the driver stopped, if it stopped at its bound and not at its end.
    async fn scanned_to(&self, session: &mut dyn Session, query: &Query) -> Attempted<Option<Cursor>> {
        let Some(last) = query.last_scanned() else { return Ok(None) };
        let keys = session.select_keys(&last).await?;
        Ok(keys.first().map(|(id, run_at)| Cursor { id: *id, run_at: *run_at }))
    }

    async fn query(&self, session: &mut dyn Session, dialect: Dialect) -> Attempted<Query> {
        let mut query = Query::new(self.clone(), dialect);
        if let Some(range) = query.run_at_range(RANGE_ROWS_MAX + 1) {
            let found = session.select_keys(&range).await?.len();
            query.drive_by_run_at_range = found <= RANGE_ROWS_MAX;
        }
        for Edge { operator, id, nothing } in query.created_edges() {
            let found = session.select_keys(&id).await?;
            query.created_ids.push((operator, found.first().map_or(nothing, |(id, _)| id.0)));
        }
        Ok(query)
    }
}

impl From<&Listing> for Search {
    fn from(listing: &Listing) -> Search {
        Search {
            tenant: listing.tenant.clone(),
            filter: listing.filter.clone(),
            sort: listing.sort,
            limit: listing.limit,
            cursor: listing.cursor,
            up_to: None,
            category_types: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_lead_back_and_bad_ones_are_named() {
        let cursor = Cursor { id: TaskId(77), run_at: Time(1_700_000_000_123) };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        let ancient = Cursor { run_at: Time(-62_135_596_800_000), ..cursor };
        assert_eq!(ancient.to_string().parse(), Ok(ancient));
        for bad in ["", "-", "7", "x-1", "-1-1", "1--1", "ffffffffffffffff-0", "1-8000000000000000"] {
            assert_eq!(bad.parse::<Cursor>().unwrap_err().field, "cursor", "{bad}");
        }
    }

    /// A bound that is a subquery is read past, by MariaDB at least, and not started from.
    #[test]
    fn what_was_created_in_a_time_is_walked_from_an_id_that_is_known() {
        let filter = Filter { created_from: Some(Time(5)), ..Filter::default() };
        let listing = Listing { tenant: Some("acme".into()), filter, sort: Sort::IdAscending, limit: 10, cursor: None };
        let mut query = Query::new(Search::from(&listing), Dialect::Mysql);
        let edges = query.created_edges();
        query.created_ids.extend(edges.iter().map(|edge| (edge.operator, edge.nothing)));
        let walk = query.keys();
        assert!(walk.text.contains("t.id >= ?") && !walk.text.contains("min("), "{}", walk.text);
        assert!(walk.values.contains(&Value::Number(i64::MAX)), "where nothing was created since, nothing is walked");
    }

    #[test]
    fn filters_name_their_bad_fields() {
        let filter = Filter { key: Some("a\0".into()), ..Filter::default() };
        assert_eq!(filter.validate().unwrap_err().field, "key");
        let filter = Filter { created_to: Some(Time(-5)), ..Filter::default() };
        assert_eq!(filter.validate().unwrap_err().field, "created_to");
        let of = |priority: u8| Filter { priority: Some(priority), ..Filter::default() }.validate();
        assert!(of(1).is_ok() && of(9).is_ok());
        assert_eq!((of(0).unwrap_err().field, of(12).unwrap_err().field), ("priority".into(), "priority".into()));
    }
}
