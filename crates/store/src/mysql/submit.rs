//! Submit on MySQL and MariaDB.
//!
//! Triggers run row by row here, and cost more than what they do. So those on `task` and `task_waiting` are left to what plain SQL inserts,
//! and to a task that comes alone. Of several tasks the store writes all rows by a statement for each table, and the triggers are told to do
//! nothing. All of that is one text with its values in it: one round trip, with the transaction around it where there is none.
//!
//! Only an INSERT with its rows spelled out hands out ids one after the other on every server; one that selects its rows does not.

use super::plain::{Built, push_number, push_text};
use super::{fault, unique_fault};
use crate::search::Value;
use crate::session::{Attempted, Insert, Inserted, policy};
use futures_util::TryStreamExt;
use serde_json::json;
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Row};
use std::borrow::Cow;
use taskwheel_model::{NewTask, TaskId, Time, limits};

/// Most rows of one statement.
const ROWS_MAX: usize = 512;
/// Most bytes of what one statement of several rows says of its tasks. In its text each may come as two digits, and names come several
/// times; that stays below the usual `max_allowed_packet`.
const BYTES_MAX: usize = 512 * 1024;

/// What is known of the ids that one statement hands out.
#[derive(Clone, Copy)]
pub(super) struct Ids {
    /// Their distance: more than 1 in a cluster where every node may insert.
    pub(super) step: i64,
    /// Whether that may be another at the next statement.
    pub(super) may_change: bool,
}

impl Ids {
    /// One after the other.
    pub(super) const SURE: Ids = Ids { step: 1, may_change: false };

    /// What a later text on the connection may insert by itself: several tasks where their ids are known beforehand.
    pub(super) fn at_once_max(self) -> Inserted {
        let are_sure = self.step == 1 && !self.may_change;
        Inserted { tasks: if are_sure { ROWS_MAX } else { 1 }, bytes: BYTES_MAX }
    }
}

/// Whose transaction tasks are inserted in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Within {
    /// One of the store.
    Ours,
    /// Somebody else's, where nothing is done but to insert into `task`.
    Theirs,
    /// None: the insert is one.
    None,
}

pub(super) async fn insert(
    connection: &mut MySqlConnection,
    tasks: &[Insert],
    ids: Ids,
    within: Within,
) -> Attempted<Vec<TaskId>> {
    let mut inserted = Vec::with_capacity(tasks.len());
    let mut rest = tasks;
    while !rest.is_empty() {
        let (rows, later) = rest.split_at(next(rest));
        let first = match text(rows, ids, within) {
            Text { sql, values: None } => first_id(connection, sql).await?,
            Text { sql, values: Some(values) } => {
                let insert = Built { text: sql, values }.prepared();
                insert.execute(&mut *connection).await.map_err(unique_fault)?.last_insert_id()
            }
        } as i64;
        inserted.extend((0..rows.len() as i64).map(|place| TaskId(first + place * ids.step)));
        rest = later;
    }
    Ok(inserted)
}

/// Runs statements of which one hands out ids, and answers the first.
async fn first_id(connection: &mut MySqlConnection, sql: String) -> Attempted<u64> {
    let mut answers = sqlx::raw_sql(AssertSqlSafe(sql)).execute_many(connection);
    let mut first = 0;
    while let Some(answer) = answers.try_next().await.map_err(unique_fault)? {
        first = first.max(answer.last_insert_id());
    }
    Ok(first)
}

/// How many of the next tasks one statement takes.
fn next(tasks: &[Insert]) -> usize {
    let bytes = |one: &Insert| {
        let context = one.origin.as_ref().and_then(|origin| origin.context.as_ref());
        Inserted::bytes(&one.task) + context.map_or(0, String::len)
    };
    let mut size = tasks.len().min(ROWS_MAX);
    while size > 1 && tasks[..size].iter().map(bytes).sum::<usize>() > BYTES_MAX {
        size /= 2;
    }
    size
}

/// The statements that insert tasks.
fn text(tasks: &[Insert], ids: Ids, within: Within) -> Text {
    // On a connection that is not ours statements are prepared: no log has payloads in it.
    let values = (within == Within::Theirs).then(Vec::new);
    let mut text = Text { sql: String::with_capacity(384 * tasks.len()), values };
    let rows = || tasks.iter().zip((0..).step_by(ids.step as usize));
    // The trigger is told the ids; where their distance may have changed, nobody else can tell.
    if tasks.len() == 1 || within == Within::Theirs || ids.may_change {
        text.insert("task", TASK, rows());
        return text;
    }
    text.push("SET @taskwheel_lets_wait = 1");
    // Nothing is committed while that is off, and all of it when it is on again: a round of statements less than by BEGIN and COMMIT.
    text.push(if within == Within::None { ", autocommit = 0; " } else { "; " });
    text.insert("task", TASK, rows());
    for (table, columns) in BESIDE {
        text.insert(table, columns, rows().filter(|(one, _)| (columns[0].2)(one).is_some()));
    }
    text.push("SET @taskwheel_lets_wait = NULL");
    text.push(if within == Within::None { ", autocommit = 1" } else { "" });
    text
}

/// What a row says in a column.
#[derive(PartialEq, Eq)]
enum Said<'t> {
    Text(Cow<'t, str>),
    Number(i64),
    /// The id of the task.
    Id,
}

/// A column, its default, and what a task says there; `None` is NULL.
type Column = (&'static str, Option<Said<'static>>, for<'t> fn(&'t Insert) -> Option<Said<'t>>);

const TENANT: Column = ("tenant", Some(Said::Text(Cow::Borrowed(NewTask::TENANT_DEFAULT))), tenant);

const TASK: &[Column] = &[
    TENANT,
    TYPE,
    ("task_key", None, |one| maybe(&one.task.key)),
    ("payload", None, |one| maybe(&one.task.payload)),
    ("priority", Some(Said::Number(limits::PRIORITY_MIN as i64)), |one| Some(number(one.priority))),
    ("run_at", None, |one| Some(time(one.run_at))),
    ("created_at", None, |one| Some(time(one.created_at))),
    ("token_id", None, |one| one.task.token_id.map(number)),
    ("expire_at", None, |one| one.task.expire_at.map(time)),
    ("max_attempts", None, |one| one.task.max_attempts.map(number)),
    ("retry", None, |one| one.task.retry.as_ref().map(|retry| Said::Text(policy(retry).into()))),
    ("timeout_ms", None, |one| one.task.timeout_ms.map(number)),
    ("category", None, category),
    ("creator", None, creator),
    ("route_key", None, |one| maybe(&one.task.route_key)),
    ("slot", None, |one| one.slot.map(number)),
    ("unique_key", None, unique_key),
    ("affinity", None, affinity),
    ("trace_parent", None, |one| maybe(&one.task.trace_parent)),
    ("schedule_id", None, schedule_id),
    ("run_id", None, run_id),
    ("parent_id", None, |one| one.origin.as_ref()?.parent_id.map(|id| number(id.0))),
    ("root_id", None, |one| one.origin.as_ref()?.root_id.map(|id| number(id.0))),
    ("context", None, |one| maybe(&one.origin.as_ref()?.context)),
];

/// What the triggers write. A task has a row where it says something in the first column.
const BESIDE: &[(&str, &[Column])] = &[
    ("task_unique", UNIQUE),
    ("task_waiting", WAITING),
    ("task_waiting_check", CHECK),
    ("task_waiting_category", CATEGORY),
    ("task_label", BY_CREATOR),
    ("task_label", BY_CATEGORY),
    ("task_label", BY_SCHEDULE),
];

const ID: Column = ("id", None, id);
const TYPE: Column = ("type", None, task_type);
/// Whose a task is, where nothing else says that it is the default tenant's.
const WHOSE: Column = ("tenant", None, tenant);

const UNIQUE: &[Column] = &[("unique_key", None, unique_key), WHOSE, TYPE, ID];

const WAITING: &[Column] = &[
    ID,
    TENANT,
    TYPE,
    ("lane", None, lane),
    ("`rank`", Some(Said::Number(9 - limits::PRIORITY_MIN as i64)), rank),
    ("due", None, due),
    ("updated_at", None, |one| Some(number(one.created_at.0))),
    ("expire_at", None, |one| one.task.expire_at.map(|time| number(time.0))),
    ("category", None, category),
    ("creator", None, creator),
    ("unique_key", None, unique_key),
    ("run_id", None, run_id),
    ("affinity", None, affinity),
    ("check_at", None, check_at),
];

const CHECK: &[Column] = &[("check_at", None, check_at), ID];

const CATEGORY: &[Column] = &[
    ("category", None, category),
    ("`rank`", None, rank),
    ("due", None, due),
    ID,
    WHOSE,
    TYPE,
    ("lane", None, lane),
    ("creator", None, creator),
];

const BY_CREATOR: &[Column] = &[("label", None, |one| label("creator", creator(one)?)), WHOSE, ID];
const BY_CATEGORY: &[Column] = &[("label", None, |one| label("category", category(one)?)), WHOSE, ID];
const BY_SCHEDULE: &[Column] = &[("label", None, |one| label("schedule", schedule_id(one)?)), WHOSE, ID];

fn id(_: &Insert) -> Option<Said<'_>> {
    Some(Said::Id)
}

fn tenant(one: &Insert) -> Option<Said<'_>> {
    text_of(&one.task.tenant)
}

fn task_type(one: &Insert) -> Option<Said<'_>> {
    text_of(&one.task.task_type)
}

fn lane(one: &Insert) -> Option<Said<'_>> {
    match &one.task.affinity {
        Some(host) => Some(Said::Text(format!("{}@{host}", one.task.task_type).into())),
        None => task_type(one),
    }
}

fn rank(one: &Insert) -> Option<Said<'_>> {
    Some(number(9 - one.priority))
}

fn due(one: &Insert) -> Option<Said<'_>> {
    Some(number(one.run_at.0))
}

fn check_at(one: &Insert) -> Option<Said<'_>> {
    match (&one.task.affinity, one.task.expire_at) {
        (None, expire_at) => expire_at.map(|time| number(time.0)),
        (Some(_), expire_at) => Some(number(expire_at.map_or(one.run_at, |time| time.min(one.run_at)).0)),
    }
}

fn schedule_id(one: &Insert) -> Option<Said<'_>> {
    one.origin.as_ref().map(|origin| number(origin.schedule_id))
}

/// What a task is found by.
fn label<'t>(kind: &str, said: Said<'t>) -> Option<Said<'t>> {
    match said {
        Said::Text(text) => Some(Said::Text(format!("{kind}:{text}").into())),
        Said::Number(number) => Some(Said::Text(format!("{kind}:{number}").into())),
        Said::Id => None,
    }
}

fn category(one: &Insert) -> Option<Said<'_>> {
    maybe(&one.task.category)
}

fn creator(one: &Insert) -> Option<Said<'_>> {
    maybe(&one.task.creator)
}

fn unique_key(one: &Insert) -> Option<Said<'_>> {
    maybe(&one.task.unique_key)
}

fn affinity(one: &Insert) -> Option<Said<'_>> {
    maybe(&one.task.affinity)
}

fn run_id(one: &Insert) -> Option<Said<'_>> {
    one.origin.as_ref()?.run_id.map(number)
}

fn text_of(text: &str) -> Option<Said<'_>> {
    Some(Said::Text(text.into()))
}

fn maybe(text: &Option<String>) -> Option<Said<'_>> {
    text.as_deref().and_then(text_of)
}

fn number(number: impl Into<i64>) -> Said<'static> {
    Said::Number(number.into())
}

fn time(time: Time) -> Said<'static> {
    let timestamp = jiff::Timestamp::from_millisecond(time.0).unwrap_or(jiff::Timestamp::MAX);
    Said::Text(jiff::tz::Offset::UTC.to_datetime(timestamp).to_string().into())
}

/// Statements that are being written.
struct Text {
    sql: String,
    /// Values that are bound. Without it they are in the text.
    values: Option<Vec<Value>>,
}

impl Text {
    fn push(&mut self, part: &str) {
        self.sql.push_str(part);
    }

    /// An INSERT of tasks, each with the distance of its id from the first one's; none where there are none. It names the columns in which
    /// some task says other than the default, because what it does not name need not be read; where it is prepared, all of them, so that it
    /// is the same statement for most tasks.
    fn insert<'t>(&mut self, table: &str, columns: &[Column], tasks: impl Iterator<Item = (&'t Insert, i64)>) {
        let rows: Vec<(i64, Vec<Option<Said<'t>>>)> =
            tasks.map(|(one, place)| (place, columns.iter().map(|(.., says)| says(one)).collect())).collect();
        if rows.is_empty() {
            return;
        }
        let is_said = |&column: &usize| rows.iter().any(|(_, row)| row[column] != columns[column].1);
        let named: Vec<usize> = (0..columns.len()).filter(|column| self.values.is_some() || is_said(column)).collect();
        self.push("INSERT INTO ");
        self.push(table);
        let mut before = " (";
        for &column in &named {
            self.push(before);
            self.push(columns[column].0);
            before = ", ";
        }
        before = ") VALUES (";
        for (place, mut row) in rows {
            for &column in &named {
                self.push(before);
                self.value(row[column].take(), place);
                before = ",";
            }
            before = "),(";
        }
        self.push("); ");
    }

    fn value(&mut self, said: Option<Said<'_>>, place: i64) {
        match (said, &mut self.values) {
            (None, _) => self.sql.push_str("NULL"),
            (Some(Said::Text(text)), None) => push_text(&mut self.sql, &text),
            (Some(Said::Number(number)), None) => push_number(&mut self.sql, number),
            (Some(Said::Text(text)), Some(values)) => {
                values.push(Value::Text(text.into_owned()));
                self.sql.push('?');
            }
            (Some(Said::Number(number)), Some(values)) => {
                values.push(Value::Number(number));
                self.sql.push('?');
            }
            (Some(Said::Id), _) => {
                self.sql.push_str("LAST_INSERT_ID() + ");
                push_number(&mut self.sql, place);
            }
        }
    }
}

const LIVE_UNIQUE: &str = "
SELECT u.id FROM JSON_TABLE(?, '$[*]' COLUMNS (place FOR ORDINALITY, tenant VARCHAR(64) PATH '$[0]',
  type VARCHAR(200) PATH '$[1]', unique_key VARCHAR(200) PATH '$[2]')) n
LEFT JOIN task_unique u FORCE INDEX (PRIMARY) ON u.tenant = n.tenant AND u.type = n.type AND u.unique_key = n.unique_key
ORDER BY n.place";

pub(super) async fn live_unique(
    connection: &mut MySqlConnection,
    keys: &[(&str, &str, &str)],
) -> Attempted<Vec<Option<TaskId>>> {
    let rows = sqlx::query(LIVE_UNIQUE).bind(json!(keys).to_string()).fetch_all(connection).await.map_err(fault)?;
    rows.iter().map(|row| row.try_get::<Option<i64>, _>(0).map(|id| id.map(TaskId)).map_err(fault)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Origin;

    fn insert(task: NewTask, context: Option<String>) -> Insert {
        let origin = context.map(|context| Origin {
            schedule_id: 1,
            run_id: None,
            parent_id: None,
            root_id: None,
            context: Some(context),
        });
        Insert { task: task.into(), priority: 1, run_at: Time(0), slot: None, created_at: Time(0), origin }
    }

    /// Every letter of a text that is no plain letter comes as two digits for each of its bytes.
    #[test]
    fn whatever_tasks_say_a_text_is_shorter_than_a_packet() {
        const PACKET_BYTES_MAX: usize = 4 * 1024 * 1024;
        let long = |letters: usize| Some("\u{1F600}".repeat(letters));
        let named = NewTask {
            key: long(limits::KEY_CHARS_MAX),
            category: long(limits::KEY_CHARS_MAX),
            creator: long(limits::NAME_CHARS_MAX),
            unique_key: long(limits::KEY_CHARS_MAX),
            route_key: long(limits::KEY_CHARS_MAX),
            affinity: long(limits::NAME_CHARS_MAX),
            ..NewTask::new("t".repeat(limits::TYPE_CHARS_MAX))
        };
        let large = NewTask { payload: long(limits::PAYLOAD_BYTES_MAX / 4), ..NewTask::new("t") };
        for tasks in [
            vec![insert(named, None); 2_000],
            vec![insert(large, None); 10],
            vec![insert(NewTask::new("t"), long(50_000)); 20],
        ] {
            let size = next(&tasks);
            assert!(size > 0 && size < tasks.len());
            let bytes = text(&tasks[..size], Ids::SURE, Within::Ours).sql.len();
            assert!(bytes < PACKET_BYTES_MAX, "{size} tasks are {bytes} bytes");
        }
    }

    #[test]
    fn where_the_distance_of_ids_may_change_the_trigger_writes_what_needs_them() {
        let tasks = vec![insert(NewTask::new("t"), None); 3];
        let sql = |ids| text(&tasks, ids, Within::Ours).sql;
        assert!(!sql(Ids { step: 3, may_change: true }).contains("task_waiting"));
        assert!(sql(Ids { step: 3, may_change: false }).contains("LAST_INSERT_ID() + 6"));
    }
}
