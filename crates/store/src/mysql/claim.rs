//! Claim on MySQL and MariaDB.
//!
//! Each rank of each lane is a range of the primary key of its own, cut off at now. So neither future tasks of a high
//! priority nor due tasks of other types are ever looked at, and `FOR UPDATE SKIP LOCKED` locks the very rows it answers.
//!
//! 0. Where a short look at few lanes tells the keys of all that is due, those are locked by primary key.
//! 1. Otherwise a probe that locks nothing tells which ranks of which lanes have something due. Most have nothing.
//! 2. Rank by rank, rows are locked until there are enough. Where one lane alone has something due in a rank, that is one
//!    locking read of its range. Where several have, or where another index finds the rows (a tenant's, a category's),
//!    the earliest keys are read without locks and then locked one by one by primary key: a locking read of each range
//!    would lock far more than is taken, and rows locked by way of two indexes make deadlocks.
//! 3. The content is read from `task`, unlocked: it does not change while its waiting row is locked.
//!
//! While a transaction is being committed, there is an instant at which a locking read already finds its rows and a
//! plain read does not yet. A claim that meets a task at that instant is tried again.

use super::fault;
use super::plain::Built;
use super::read::read_content;
use super::rows::json;
use crate::session::{Attempted, FROM_THE_START, Insert, Pick, PickLane, Picked};
use serde::{Serialize, Serializer};
use sqlx::Row;
use sqlx::mysql::{MySqlConnection, MySqlRow};
use std::collections::HashMap;
use taskwheel_model::{ExecId, TaskId, Time};
use uuid::fmt::Hyphenated;

const RANKS: usize = 9;
/// Up to so many sources are probed each by its own bounds, marks included. More are looked up in one join, which costs
/// less for each but starts at the head of each range.
const PROBED_BY_BOUNDS_MAX: usize = 16;
/// Most ranges in one statement.
const RANGES_MAX: usize = 100;
/// How much further than it wants to take a claim looks for rows of other tenants.
const OWN_RANGE_FACTOR: usize = 4;
const BY_PRIMARY_KEY: &str = " FROM task_waiting w FORCE INDEX (PRIMARY) WHERE ";
/// So many lanes are looked at, and so many tasks of each.
const FEW_LANES_MAX: usize = 4;
const FEW_MAX: usize = 16;
/// Fewest keys to read of each of several ranges.
const KEYS_MIN: usize = 8;

/// The primary key of a waiting task. As JSON it is an array, which `JSON_TABLE` reads faster than an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) lane: String,
    pub(super) rank: i16,
    pub(super) due: i64,
    pub(super) id: i64,
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (&self.lane, self.rank, self.due, self.id).serialize(serializer)
    }
}

impl Key {
    pub(super) fn of(task: &Picked) -> Key {
        Key { lane: task.lane.clone(), rank: task.rank, due: task.due.0, id: task.id.0 }
    }

    pub(super) fn new(lane: &str, rank: i16, due: Time, id: TaskId) -> Key {
        Key { lane: lane.to_owned(), rank, due: due.0, id: id.0 }
    }
}

/// Keys as a table, and its join with the waiting rows that have them.
macro_rules! keys_join_waiting {
    () => {
        "JSON_TABLE(?, '$[*]' COLUMNS (lane VARCHAR(265) PATH '$[0]', `rank` SMALLINT PATH '$[1]',
           due BIGINT PATH '$[2]', id BIGINT PATH '$[3]')) n
         STRAIGHT_JOIN task_waiting w FORCE INDEX (PRIMARY)
         ON w.lane = n.lane AND w.`rank` = n.`rank` AND w.due = n.due AND w.id = n.id"
    };
}
pub(super) use keys_join_waiting;

macro_rules! columns {
    () => {
        "SELECT w.id, w.tenant, w.type, w.lane, w.`rank`, w.due, w.expire_at, w.round, w.attempts, w.error_count,
         w.checkpoint, w.category, w.creator"
    };
}

/// Where a claim finds tasks: a lane, or a category that tasks name themselves.
#[derive(Clone, Copy)]
enum Source<'a> {
    Lane(&'a PickLane),
    Category(&'a str),
}

struct Claim<'a> {
    connection: &'a mut MySqlConnection,
    pick: &'a Pick,
    now: Time,
    /// Lanes whose tasks are all wanted, so that no category need find them.
    whole_lanes: Vec<&'a str>,
}

/// Picks tasks; `inserted` are some that this very transaction inserted.
pub(super) async fn pick(
    connection: &mut MySqlConnection,
    pick: &Pick,
    inserted: &HashMap<TaskId, Insert>,
    now: Time,
) -> Attempted<Vec<Picked>> {
    let whole_lanes = pick.lanes.iter().filter(|lane| !lane.plain_only).map(|lane| lane.lane.as_str()).collect();
    let mut claim = Claim { connection, pick, now, whole_lanes };
    if let Some(keys) = claim.few().await? {
        return claim.lock_few(keys, inserted).await;
    }
    let mut picked = Vec::new();
    for (rank, sources) in claim.probe().await?.into_iter().enumerate() {
        let wanted = pick.max - picked.len();
        if wanted == 0 {
            break;
        }
        let mut locked = match &sources[..] {
            [] => continue,
            [lane @ Source::Lane(_)] => claim.lock_lane(*lane, rank, wanted).await?,
            _ => claim.lock_earliest(&sources, rank, wanted, None).await?,
        };
        locked.sort_unstable_by_key(|task| (task.due, task.id));
        picked.extend(locked);
    }
    read_content(claim.connection, &mut picked).await?;
    Ok(picked)
}

impl<'a> Claim<'a> {
    /// The keys of what is due, in order, where a short look at few lanes tells them all: few tasks wait there, or few are due and
    /// the rest has the same rank.
    async fn few(&mut self) -> Attempted<Option<Vec<Key>>> {
        let Pick { creator, lanes, categories, .. } = self.pick;
        let is_plain = |lane: &PickLane| !lane.plain_only && lane.marks == FROM_THE_START;
        let are_few = (1..=FEW_LANES_MAX).contains(&lanes.len());
        if !are_few || creator.is_some() || !categories.is_empty() || !lanes.iter().all(is_plain) {
            return Ok(None);
        }
        let mut query = Built::new("");
        for (place, lane) in lanes.iter().enumerate() {
            query.push(if place == 0 { "(" } else { " UNION ALL (" });
            self.push_keys(&mut query, lane, "0");
            query.push(&format!(" ORDER BY w.`rank`, w.due, w.id LIMIT {FEW_MAX}) UNION ALL ("));
            self.push_keys(&mut query, lane, "1");
            query.push(" ORDER BY w.`rank` DESC, w.due DESC, w.id DESC LIMIT 1)");
        }
        let (mut keys, mut last_ranks) = (Vec::new(), HashMap::new());
        for row in query.prepared().fetch_all(&mut *self.connection).await.map_err(fault)? {
            let key = key(&row, row.try_get(3).map_err(fault)?).map_err(fault)?;
            if row.try_get::<i64, _>(4).map_err(fault)? == 0 {
                keys.push(key);
            } else {
                last_ranks.insert(key.lane, key.rank);
            }
        }
        keys.sort_unstable_by_key(|key| (key.rank, key.due, key.id));
        let is_known = |lane: &PickLane| {
            let mut of_lane = keys.iter().filter(|key| key.lane == lane.lane).skip(FEW_MAX - 1);
            of_lane.next().is_none_or(|last| last.due > self.now.0 && last_ranks.get(&lane.lane) == Some(&last.rank))
        };
        let are_known = lanes.iter().all(is_known);
        keys.retain(|key| key.due <= self.now.0);
        Ok(are_known.then_some(keys))
    }

    /// The keys of a lane, with a column of its own, up to the order.
    fn push_keys(&self, query: &mut Built, lane: &'a PickLane, column: &str) {
        query.push("SELECT w.lane, w.due, w.id, w.`rank`, ").push(column);
        self.push_index(query, Source::Lane(lane));
        query.push("w.lane = ").text(&lane.lane);
    }

    /// Locks the first of these that nobody else has locked. What this transaction inserted is locked and known already.
    async fn lock_few(&mut self, mut keys: Vec<Key>, inserted: &HashMap<TaskId, Insert>) -> Attempted<Vec<Picked>> {
        let max = self.pick.max;
        let own = |key: &Key| Some(inserted.get(&TaskId(key.id))?.picked(TaskId(key.id), &key.lane));
        if let Some(own) = keys.iter().take(max).map(own).collect() {
            return Ok(own);
        }
        let mut locked = Vec::new();
        while locked.len() < max && !keys.is_empty() {
            let rest = keys.split_off(keys.len().min(max - locked.len()));
            locked.extend(self.lock(&keys).await?);
            keys = rest;
        }
        locked.sort_unstable_by_key(|task| (task.rank, task.due, task.id));
        read_content(self.connection, &mut locked).await?;
        Ok(locked)
    }

    /// Locks tasks, except those that others have locked.
    async fn lock(&mut self, keys: &[Key]) -> Attempted<Vec<Picked>> {
        const LOCK: &str = concat!(columns!(), " FROM ", keys_join_waiting!(), " FOR UPDATE SKIP LOCKED");
        let rows = sqlx::query(LOCK).bind(json(keys)).fetch_all(&mut *self.connection).await.map_err(fault)?;
        rows.iter().map(|row| picked(row).map_err(fault)).collect()
    }

    /// By rank, the sources that have something due.
    async fn probe(&mut self) -> Attempted<[Vec<Source<'a>>; RANKS]> {
        let lanes: Vec<_> = self.pick.lanes.iter().map(Source::Lane).collect();
        let categories: Vec<_> = self.pick.categories.iter().map(|name| Source::Category(name)).collect();
        let mut due = [const { Vec::new() }; RANKS];
        if lanes.is_empty() && categories.is_empty() {
            return Ok(due);
        }
        if lanes.len() + categories.len() <= PROBED_BY_BOUNDS_MAX {
            self.probe_by_bounds(&[lanes, categories].concat(), &mut due).await?;
        } else {
            self.probe_by_name(&lanes, &mut due).await?;
            self.probe_by_name(&categories, &mut due).await?;
        }
        Ok(due)
    }

    async fn probe_by_bounds(&mut self, sources: &[Source<'a>], due: &mut [Vec<Source<'a>>; RANKS]) -> Attempted<()> {
        let mut query = Built::new("SELECT ");
        for rank in 0..RANKS {
            for (place, source) in sources.iter().enumerate() {
                query.push(if rank + place == 0 { "EXISTS (SELECT 1" } else { ", EXISTS (SELECT 1" });
                self.push_range(&mut query, *source, rank, None);
                query.push(")");
            }
        }
        let row = query.prepared().fetch_one(&mut *self.connection).await.map_err(fault)?;
        for (rank, due) in due.iter_mut().enumerate() {
            for (place, source) in sources.iter().enumerate() {
                if row.try_get::<i64, _>(rank * sources.len() + place).map_err(fault)? != 0 {
                    due.push(*source);
                }
            }
        }
        Ok(())
    }

    /// Looks up the first task of each rank of what is not empty: with a million future tasks in it that is still one row.
    async fn probe_by_name(&mut self, sources: &[Source<'a>], due: &mut [Vec<Source<'a>>; RANKS]) -> Attempted<()> {
        let Some(first) = sources.first() else { return Ok(()) };
        let names: Vec<_> = sources.iter().map(|source| source.name()).collect();
        let column = match first {
            Source::Lane(_) => "w.lane",
            Source::Category(_) => "w.category",
        };
        let mut query = Built::new("SELECT n.place, r.`rank`, (SELECT w.due");
        self.push_index(&mut query, *first);
        query
            .push(column)
            .push(" = n.name AND w.`rank` = r.`rank` ORDER BY w.due LIMIT 1) AS earliest FROM JSON_TABLE(");
        query.text(&json(&names));
        query.push(
            ", '$[*]' COLUMNS (place FOR ORDINALITY, name VARCHAR(265) PATH '$')) n STRAIGHT_JOIN (SELECT 0 AS `rank` \
             UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL SELECT 5 \
             UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8) r WHERE (SELECT w.id",
        );
        self.push_index(&mut query, *first);
        query.push(column).push(" = n.name LIMIT 1) IS NOT NULL HAVING earliest <= ").number(self.now.0);
        for row in query.prepared().fetch_all(&mut *self.connection).await.map_err(fault)? {
            let (place, rank) = (row.try_get::<i64, _>(0).map_err(fault)?, row.try_get::<i64, _>(1).map_err(fault)?);
            due[rank as usize].push(sources[place as usize - 1]);
        }
        Ok(())
    }

    /// Locks the earliest tasks of one lane: by its range where that holds nothing but wanted tasks.
    async fn lock_lane(&mut self, lane: Source<'a>, rank: usize, wanted: usize) -> Attempted<Vec<Picked>> {
        let Some(tenant) = &self.pick.tenant else {
            return self.lock_range(lane, rank, self.now.0, wanted).await;
        };
        let Some(end) = self.own_range(lane, rank, tenant, OWN_RANGE_FACTOR * wanted).await? else {
            return self.lock_earliest(&[lane], rank, wanted, None).await;
        };
        let mut locked = self.lock_range(lane, rank, end, wanted).await?;
        if locked.len() < wanted && end < self.now.0 {
            let missing = wanted - locked.len();
            locked.extend(self.lock_earliest(&[lane], rank, missing, Some((end, i64::MAX))).await?);
        }
        Ok(locked)
    }

    /// Up to when the first rows of a lane, whoever's they are, all belong to the tenant that claims. Most lanes have one
    /// tenant, or one that has nearly all of it.
    async fn own_range(&mut self, lane: Source<'a>, rank: usize, tenant: &str, rows: usize) -> Attempted<Option<i64>> {
        let mut query = Built::new("SELECT count(*), MAX(x.due), CAST(SUM(x.tenant <> ");
        query.text(tenant).push(") AS SIGNED) FROM (SELECT w.due, w.tenant").push(BY_PRIMARY_KEY);
        self.push_bounds(&mut query, lane, rank, None);
        query.push(" ORDER BY w.due, w.id LIMIT ").number(rows as i64).push(") x");
        let row = query.prepared().fetch_one(&mut *self.connection).await.map_err(fault)?;
        let count: i64 = row.try_get(0).map_err(fault)?;
        let last: Option<i64> = row.try_get(1).map_err(fault)?;
        let of_others: Option<i64> = row.try_get(2).map_err(fault)?;
        let end = if count < rows as i64 { Some(self.now.0) } else { last };
        Ok(end.filter(|_| of_others == Some(0)))
    }

    async fn lock_range(&mut self, lane: Source<'a>, rank: usize, end: i64, wanted: usize) -> Attempted<Vec<Picked>> {
        let mut query = Built::new(columns!());
        query.push(BY_PRIMARY_KEY);
        self.push_bounds(&mut query, lane, rank, None);
        query.push(" AND w.due <= ").number(end);
        if let Some(tenant) = &self.pick.tenant {
            query.push(" AND w.tenant = ").text(tenant);
        }
        self.push_filter(&mut query, lane);
        query.push(" ORDER BY w.due, w.id LIMIT ").number(wanted as i64).push(" FOR UPDATE SKIP LOCKED");
        let rows = query.prepared().fetch_all(&mut *self.connection).await.map_err(fault)?;
        rows.iter().map(|row| picked(row).map_err(fault)).collect()
    }

    /// Locks the earliest tasks of several sources. What others have locked is skipped by reading on behind it.
    async fn lock_earliest(
        &mut self,
        sources: &[Source<'a>],
        rank: usize,
        wanted: usize,
        mut after: Option<(i64, i64)>,
    ) -> Attempted<Vec<Picked>> {
        let mut locked: Vec<Picked> = Vec::new();
        let mut each_max = (2 * wanted / sources.len()).max(KEYS_MIN);
        loop {
            let missing = wanted - locked.len();
            let keys = self.earliest(sources, rank, after, each_max.min(missing), missing).await?;
            let Some(last) = keys.last() else { return Ok(locked) };
            after = Some((last.due, last.id));
            locked.extend(self.lock(&keys).await?);
            if locked.len() == wanted {
                return Ok(locked);
            }
            // Where few sources have most of the earliest tasks, the next look is deeper.
            each_max *= 2;
        }
    }

    /// The next keys over all sources, in order, from at most so many of each.
    async fn earliest(
        &mut self,
        sources: &[Source<'a>],
        rank: usize,
        after: Option<(i64, i64)>,
        each_max: usize,
        max: usize,
    ) -> Attempted<Vec<Key>> {
        let mut keys = Vec::new();
        // Beyond the last key of a source that may have more, nothing can be said yet.
        let mut known_to = (i64::MAX, i64::MAX);
        for sources in sources.chunks(RANGES_MAX) {
            let mut query = Built::new("");
            for (place, source) in sources.iter().enumerate() {
                query.push(if place == 0 { "(" } else { " UNION ALL (" });
                query.push(&format!("SELECT w.lane, w.due, w.id, {place}"));
                self.push_range(&mut query, *source, rank, after);
                self.push_filter(&mut query, *source);
                query.push(" ORDER BY w.due, w.id LIMIT ").number(each_max as i64).push(")");
            }
            let rows = query.read_once(self.connection).await?;
            let mut ends = vec![(0, (i64::MIN, i64::MIN)); sources.len()];
            for row in &rows {
                let key = key(row, rank as i16).map_err(fault)?;
                let (count, last) = &mut ends[row.try_get::<i64, _>(3).map_err(fault)? as usize];
                (*count, *last) = (*count + 1, (*last).max((key.due, key.id)));
                keys.push(key);
            }
            let open = ends.into_iter().filter(|(count, _)| *count == each_max).map(|(_, last)| last);
            known_to = open.fold(known_to, Ord::min);
        }
        keys.retain(|key| (key.due, key.id) <= known_to);
        keys.sort_unstable_by_key(|key| (key.due, key.id));
        keys.truncate(max);
        Ok(keys)
    }

    /// The table by the index of a source, up to the first condition.
    fn push_index(&self, query: &mut Built, source: Source<'a>) {
        match (source, &self.pick.tenant) {
            (Source::Category(_), _) => query.push(" FROM task_waiting_category w FORCE INDEX (PRIMARY) WHERE "),
            (Source::Lane(_), None) => query.push(BY_PRIMARY_KEY),
            (Source::Lane(_), Some(tenant)) => query
                .push(" FROM task_waiting w FORCE INDEX (task_waiting_claim_tenant) WHERE w.tenant = ")
                .text(tenant)
                .push(" AND "),
        };
    }

    /// One rank of one source, from its mark or behind a key, up to now.
    fn push_range(&self, query: &mut Built, source: Source<'a>, rank: usize, after: Option<(i64, i64)>) {
        self.push_index(query, source);
        self.push_bounds(query, source, rank, after);
    }

    fn push_bounds(&self, query: &mut Built, source: Source<'a>, rank: usize, after: Option<(i64, i64)>) {
        let mark = match source {
            Source::Lane(lane) => {
                query.push("w.lane = ");
                lane.marks[rank].0
            }
            Source::Category(_) => {
                query.push("w.category = ");
                i64::MIN
            }
        };
        query.text(source.name());
        query.push(&format!(" AND w.`rank` = {rank} AND w.due <= ")).number(self.now.0);
        query.push(" AND w.due >= ").number(after.map_or(mark, |(due, _)| due.max(mark)));
        if let Some((due, id)) = after {
            query.push(" AND (w.due > ").number(due).push(" OR w.id > ").number(id).push(")");
        }
    }

    /// What a task must be besides being due in a source.
    fn push_filter(&self, query: &mut Built, source: Source<'a>) {
        if let Some(creator) = &self.pick.creator {
            query.push(" AND w.creator = ").text(creator);
        }
        match source {
            Source::Lane(lane) => {
                if lane.plain_only {
                    query.push(" AND w.category IS NULL");
                }
            }
            Source::Category(_) => {
                query.push(" AND w.lane IN (w.type, CONCAT(w.type, '@', ").text(&self.pick.host).push("))");
                if let Some(tenant) = &self.pick.tenant {
                    query.push(" AND w.tenant = ").text(tenant);
                }
                push_none_of(query, "w.lane", self.whole_lanes.iter().copied());
                push_none_of(query, "w.type", self.pick.paused.iter().map(String::as_str));
            }
        }
    }
}

impl<'a> Source<'a> {
    fn name(self) -> &'a str {
        match self {
            Source::Lane(lane) => &lane.lane,
            Source::Category(name) => name,
        }
    }
}

fn push_none_of<'n>(query: &mut Built, column: &str, mut names: impl Iterator<Item = &'n str>) {
    let Some(first) = names.next() else { return };
    query.push(" AND ").push(column).push(" NOT IN (").text(first);
    for name in names {
        query.push(", ").text(name);
    }
    query.push(")");
}

fn key(row: &MySqlRow, rank: i16) -> sqlx::Result<Key> {
    Ok(Key { lane: row.try_get(0)?, rank, due: row.try_get(1)?, id: row.try_get(2)? })
}

fn picked(row: &MySqlRow) -> sqlx::Result<Picked> {
    Ok(Picked {
        id: TaskId(row.try_get(0)?),
        tenant: row.try_get(1)?,
        task_type: row.try_get(2)?,
        lane: row.try_get(3)?,
        rank: row.try_get(4)?,
        due: Time(row.try_get(5)?),
        expire_at: row.try_get::<Option<i64>, _>(6)?.map(Time),
        round: row.try_get::<i32, _>(7)? as u32,
        attempts: row.try_get::<i32, _>(8)? as u32,
        error_count: row.try_get::<i32, _>(9)? as u32,
        checkpoint: row.try_get(10)?,
        category: row.try_get(11)?,
        creator: row.try_get(12)?,
        key: None,
        payload: None,
        retry: None,
        max_attempts: None,
        timeout_ms: None,
        trace_parent: None,
        context: None,
    })
}

/// Reads an execution id.
pub(super) fn exec_id(row: &MySqlRow, column: &str) -> sqlx::Result<Option<ExecId>> {
    Ok(row.try_get::<Option<Hyphenated>, _>(column)?.map(|id| ExecId(id.into_uuid())))
}
