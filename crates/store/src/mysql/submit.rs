//! Submit on MySQL and MariaDB.
//!
//! Triggers run row by row here, and cost more than what they do. So the one on `task` is left to what plain SQL inserts, and to a task
//! that comes alone. Of several tasks the store writes both rows by a statement each, and the trigger is told to do nothing. All of
//! that is one text with its values in it: one round trip, with the transaction around it where there is none.
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
use taskwheel_model::{NewTask, TaskId, Time};

/// Most rows of one statement.
const ROWS_MAX: usize = 512;
/// Most bytes of what one statement of several rows says of its tasks. In its text each may come as two digits, and keys come three
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
    // On a connection that is not ours the same statement comes again and again, and no log of statements has payloads in it.
    let values = (within == Within::Theirs).then(Vec::new);
    let mut text = Text { sql: String::with_capacity(512 * tasks.len()), values };
    // The trigger is told the ids; where their distance may have changed, nobody else can tell.
    let by_trigger = tasks.len() == 1 || within == Within::Theirs || ids.may_change;
    if !by_trigger {
        text.push("SET @taskwheel_lets_wait = 1");
        // Nothing is committed while that is off, and all of it when it is on again: a round of statements less than by BEGIN and COMMIT.
        text.push(if within == Within::None { ", autocommit = 0; " } else { "; " });
    }
    let shape = Shape::of(tasks);
    text.insert("task", &COLUMNS[..=shape as usize], tasks.iter(), |text, task| text.task(task, shape));
    if !by_trigger {
        let with_ids = || tasks.iter().zip((0..).step_by(ids.step as usize));
        let with_keys = || with_ids().filter(|(one, _)| one.task.unique_key.is_some());
        if with_keys().next().is_some() {
            text.insert("task_unique", &["tenant, type, unique_key, id"], with_keys(), |text, (one, place)| {
                text.text(&one.task.tenant).text(&one.task.task_type).maybe(&one.task.unique_key).id(place);
            });
        }
        let columns = &WAITING_COLUMNS[..=usize::from(shape != Shape::Plain)];
        text.insert("task_waiting", columns, with_ids(), |text, (one, place)| text.waiting(one, place, shape));
        text.push("SET @taskwheel_lets_wait = NULL");
        text.push(if within == Within::None { ", autocommit = 1" } else { "" });
    }
    text
}

/// What a statement says of each task. A statement that says less costs less.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// What nearly every task has.
    Plain,
    /// All that can be submitted.
    Whole,
    /// That, and what a task has that a schedule fired.
    Fired,
}

const COLUMNS: [&str; 3] = [
    "tenant, type, task_key, payload, priority, token_id, run_at, created_at",
    ", expire_at, max_attempts, retry, timeout_ms, category, creator, route_key, slot, unique_key, affinity, trace_parent",
    ", schedule_id, run_id, parent_id, root_id, context",
];
const WAITING_COLUMNS: [&str; 2] = [
    "id, tenant, type, lane, `rank`, due, updated_at",
    ", expire_at, category, creator, unique_key, run_id, affinity, check_at",
];

impl Shape {
    fn of(tasks: &[Insert]) -> Shape {
        // Of one batch a schedule fired all or none.
        if tasks.first().is_some_and(|task| task.origin.is_some()) {
            return Shape::Fired;
        }
        if tasks.iter().all(|row| is_plain(&row.task)) { Shape::Plain } else { Shape::Whole }
    }
}

fn is_plain(task: &NewTask) -> bool {
    let NewTask { expire_at, max_attempts, retry, timeout_ms, category, creator, .. } = task;
    let NewTask { route_key, unique_key, affinity, trace_parent, .. } = task;
    let texts = [category, creator, route_key, unique_key, affinity, trace_parent];
    expire_at.is_none()
        && max_attempts.is_none()
        && retry.is_none()
        && timeout_ms.is_none()
        && texts.iter().all(|text| text.is_none())
}

/// Statements that are being written. Each value ends with a comma, until its row is closed.
struct Text {
    sql: String,
    /// Values that are bound. Without it they are in the text.
    values: Option<Vec<Value>>,
}

impl Text {
    fn push(&mut self, part: &str) -> &mut Text {
        self.sql.push_str(part);
        self
    }

    /// An INSERT with a row for each item.
    fn insert<I>(
        &mut self,
        table: &str,
        columns: &[&str],
        items: impl Iterator<Item = I>,
        row: impl Fn(&mut Text, I),
    ) -> &mut Text {
        self.push("INSERT INTO ").push(table).push(" (");
        columns.iter().for_each(|part| self.sql.push_str(part));
        self.push(") VALUES ");
        for item in items {
            self.push("(");
            row(self, item);
            self.sql.pop();
            self.push("),");
        }
        self.sql.pop();
        self.push("; ")
    }

    fn value(&mut self, value: Option<Value>) -> &mut Text {
        match (value, &mut self.values) {
            (None, _) => self.sql.push_str("NULL"),
            (Some(value), Some(values)) => {
                values.push(value);
                self.sql.push('?');
            }
            (Some(Value::Text(text)), None) => push_text(&mut self.sql, &text),
            (Some(Value::Number(number)), None) => push_number(&mut self.sql, number),
        }
        self.push(",")
    }

    fn text(&mut self, text: &str) -> &mut Text {
        self.value(Some(Value::Text(text.to_owned())))
    }

    fn maybe(&mut self, text: &Option<String>) -> &mut Text {
        self.value(text.clone().map(Value::Text))
    }

    fn number(&mut self, number: impl Into<Option<i64>>) -> &mut Text {
        self.value(number.into().map(Value::Number))
    }

    fn time(&mut self, time: Option<Time>) -> &mut Text {
        let timestamp = |time: Time| jiff::Timestamp::from_millisecond(time.0).unwrap_or(jiff::Timestamp::MAX);
        let text = |time| jiff::tz::Offset::UTC.to_datetime(timestamp(time)).to_string();
        self.maybe(&time.map(text))
    }

    /// The id of a task that is so far behind the first one's.
    fn id(&mut self, place: i64) -> &mut Text {
        self.push("LAST_INSERT_ID() + ").number(place)
    }

    fn task(&mut self, one: &Insert, shape: Shape) {
        let Insert { task, priority, run_at, slot, created_at, origin } = one;
        self.text(&task.tenant).text(&task.task_type).maybe(&task.key).maybe(&task.payload);
        self.number(i64::from(*priority)).number(task.token_id).time(Some(*run_at)).time(Some(*created_at));
        if shape == Shape::Plain {
            return;
        }
        self.time(task.expire_at).number(task.max_attempts.map(i64::from)).maybe(&task.retry.as_ref().map(policy));
        self.number(task.timeout_ms).maybe(&task.category).maybe(&task.creator).maybe(&task.route_key);
        self.number(slot.map(i64::from)).maybe(&task.unique_key).maybe(&task.affinity).maybe(&task.trace_parent);
        if let Some(origin) = origin {
            let of_task = |id: Option<TaskId>| id.map(|id| id.0);
            self.number(origin.schedule_id).number(origin.run_id).number(of_task(origin.parent_id));
            self.number(of_task(origin.root_id)).maybe(&origin.context);
        }
    }

    /// What the trigger writes.
    fn waiting(&mut self, one: &Insert, place: i64, shape: Shape) {
        let Insert { task, priority, run_at, created_at, origin, .. } = one;
        self.id(place).text(&task.tenant).text(&task.task_type);
        match &task.affinity {
            Some(host) => self.text(&format!("{}@{host}", task.task_type)),
            None => self.text(&task.task_type),
        };
        self.number(9 - i64::from(*priority)).number(run_at.0).number(created_at.0);
        if shape == Shape::Plain {
            return;
        }
        let check_at = match (&task.affinity, task.expire_at) {
            (None, expire_at) => expire_at,
            (Some(_), expire_at) => Some(expire_at.map_or(*run_at, |expire_at| expire_at.min(*run_at))),
        };
        let ms = |time: Option<Time>| time.map(|time| time.0);
        self.number(ms(task.expire_at)).maybe(&task.category).maybe(&task.creator).maybe(&task.unique_key);
        self.number(origin.as_ref().and_then(|origin| origin.run_id)).maybe(&task.affinity).number(ms(check_at));
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
    use taskwheel_model::limits;

    fn insert(task: NewTask, context: Option<String>) -> Insert {
        let origin = context.map(|context| Origin {
            schedule_id: 1,
            run_id: None,
            parent_id: None,
            root_id: None,
            context: Some(context),
        });
        Insert { task, priority: 1, run_at: Time(0), slot: None, created_at: Time(0), origin }
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
