//! Claim on SQLite.
//!
//! Each rank of each lane is an index range of its own, cut off at now. So neither future tasks of a high priority nor due
//! tasks of other types are ever looked at. The ranges are read in the order of claims, straight from the index, until
//! there are enough; ranks that a lane does not have are not asked for, and only the tasks that are wanted are read whole.
//! There is one writer, so nothing needs a lock.

use super::rows::{Columns, time};
use crate::session::{Attempted, Pick, PickLane, Picked};
use rusqlite::{Connection, OptionalExtension, Row, Rows, params};
use std::collections::{BTreeSet, HashSet};
use taskwheel_model::{NewTask, TaskId, Time};

/// Where a claim looks: in a lane, or for a category that tasks name themselves.
enum Source<'p> {
    Lane(&'p PickLane),
    Category(&'p str),
}

/// The best candidates of one rank so far, as (due, id), never more than are wanted.
struct Best {
    found: BTreeSet<(i64, i64)>,
    max: usize,
}

impl Best {
    /// Takes a candidate, and says whether one that comes after it may be wanted as well.
    fn offer(&mut self, candidate: (i64, i64)) -> bool {
        self.found.insert(candidate);
        self.found.len() <= self.max || self.found.pop_last() != Some(candidate)
    }
}

pub(super) fn pick(connection: &Connection, pick: &Pick, now: Time) -> Attempted<Vec<Picked>> {
    let scan = Scan::new(connection, pick, now)?;
    let mut open = Vec::new();
    let lanes = pick.lanes.iter().map(Source::Lane);
    for source in lanes.chain(pick.categories.iter().map(|name| Source::Category(name))) {
        if let Some(rank) = scan.next_rank(&source, 0)? {
            open.push((rank, source));
        }
    }
    let mut ids: Vec<i64> = Vec::with_capacity(pick.max);
    while let Some(rank) = open.iter().map(|(rank, _)| *rank).min()
        && ids.len() < pick.max
    {
        let mut best = Best { found: BTreeSet::new(), max: pick.max - ids.len() };
        let mut later = Vec::with_capacity(open.len());
        for (next, source) in open {
            if next > rank {
                later.push((next, source));
                continue;
            }
            scan.read(&source, rank, &mut best)?;
            if let Some(next) = scan.next_rank(&source, rank + 1)? {
                later.push((next, source));
            }
        }
        open = later;
        ids.extend(best.found.into_iter().map(|(_, id)| id));
    }
    whole(connection, &ids)
}

/// The first rank of a lane, from one on. `INDEXED BY` turns a plan without the claim's index into an error instead of a
/// slow claim, here and below.
const RANK_IN_LANE: &str = "
SELECT rank FROM task_waiting INDEXED BY task_waiting_claim WHERE lane = ?1 AND rank >= ?2 ORDER BY rank LIMIT 1";
/// The same for one tenant; it repeats the predicate of the index, which the default tenant is not in.
const RANK_IN_TENANT_LANE: &str = "
SELECT rank FROM task_waiting INDEXED BY task_waiting_claim_tenant
WHERE tenant = ?3 AND tenant <> 'default' AND lane = ?1 AND rank >= ?2 ORDER BY rank LIMIT 1";
const RANK_IN_CATEGORY: &str = "
SELECT rank FROM task_waiting INDEXED BY task_waiting_claim_category
WHERE category = ?1 AND lane <> '' AND rank >= ?2 ORDER BY rank LIMIT 1";

/// The due tasks of one rank of a lane, from its mark on. Where neither `?5`, `?6` nor `?7` restricts them the index alone
/// answers, for SQLite goes to the row only for a column that it needs.
const LANE: &str = "
SELECT due, id FROM task_waiting INDEXED BY task_waiting_claim
WHERE lane = ?1 AND rank = ?2 AND due <= ?3 AND due >= ?4
  AND (?5 = 0 OR category IS NULL) AND (?6 IS NULL OR creator = ?6) AND (?7 IS NULL OR tenant = ?7)
ORDER BY due, id";
const TENANT_LANE: &str = "
SELECT due, id FROM task_waiting INDEXED BY task_waiting_claim_tenant
WHERE tenant = ?7 AND tenant <> 'default' AND lane = ?1 AND rank = ?2 AND due <= ?3 AND due >= ?4
  AND (?5 = 0 OR category IS NULL) AND (?6 IS NULL OR creator = ?6)
ORDER BY due, id";
/// Whether somebody beside the default tenant has tasks that wait. As long as nobody has, a claim for that one need not look
/// whose a task is.
const OTHERS: &str =
    "SELECT 1 FROM task_waiting INDEXED BY task_waiting_claim_tenant WHERE tenant <> 'default' LIMIT 1";
const CATEGORY: &str = "
SELECT due, id, lane, type FROM task_waiting INDEXED BY task_waiting_claim_category
WHERE category = ?1 AND lane <> '' AND rank = ?2 AND due <= ?3
  AND (?4 IS NULL OR creator = ?4) AND (?5 IS NULL OR tenant = ?5)
ORDER BY due, id";

/// One claim's look at what waits.
struct Scan<'s> {
    connection: &'s Connection,
    pick: &'s Pick,
    now: Time,
    /// The tenant, where its tasks must be told from those of others.
    tenant: Option<&'s str>,
    /// The tenant, where its tasks have an index of their own.
    indexed_tenant: Option<&'s str>,
    /// Lanes in which tasks with a category of their own are found already.
    whole_lanes: HashSet<&'s str>,
    paused: HashSet<&'s str>,
}

impl<'s> Scan<'s> {
    fn new(connection: &'s Connection, pick: &'s Pick, now: Time) -> Attempted<Scan<'s>> {
        let indexed_tenant = pick.tenant.as_deref().filter(|tenant| *tenant != NewTask::TENANT_DEFAULT);
        let is_default = pick.tenant.is_some() && indexed_tenant.is_none();
        let is_alone = is_default && !connection.prepare_cached(OTHERS)?.exists([])?;
        Ok(Scan {
            connection,
            pick,
            now,
            tenant: pick.tenant.as_deref().filter(|_| !is_alone),
            indexed_tenant,
            whole_lanes: pick.whole_lanes().into_iter().collect(),
            paused: pick.paused.iter().map(String::as_str).collect(),
        })
    }

    /// The next rank that a source has tasks in, due or not.
    fn next_rank(&self, source: &Source<'_>, from: i64) -> Attempted<Option<i64>> {
        let prepare = |sql| self.connection.prepare_cached(sql);
        let rank = |row: &Row<'_>| row.get(0);
        let found = match (source, self.indexed_tenant) {
            (Source::Lane(lane), None) => prepare(RANK_IN_LANE)?.query_row(params![lane.lane, from], rank),
            (Source::Lane(lane), Some(tenant)) => {
                prepare(RANK_IN_TENANT_LANE)?.query_row(params![lane.lane, from, tenant], rank)
            }
            (Source::Category(name), _) => prepare(RANK_IN_CATEGORY)?.query_row(params![name, from], rank),
        };
        Ok(found.optional()?)
    }

    /// Offers the due tasks of one rank of a source, as long as they are wanted.
    fn read(&self, source: &Source<'_>, rank: i64, best: &mut Best) -> Attempted<()> {
        let (creator, tenant) = (&self.pick.creator, self.tenant);
        match source {
            Source::Lane(lane) => {
                let sql = if self.indexed_tenant.is_some() { TENANT_LANE } else { LANE };
                let mark = usize::try_from(rank).ok().and_then(|rank| lane.marks.get(rank));
                let mark = mark.map_or(i64::MIN, |(due, _)| *due);
                let mut statement = self.connection.prepare_cached(sql)?;
                let values = params![lane.lane, rank, self.now.0, mark, lane.plain_only, creator, tenant];
                offer(statement.query(values)?, best, |_| Ok(true))
            }
            Source::Category(name) => {
                let mut statement = self.connection.prepare_cached(CATEGORY)?;
                let values = params![name, rank, self.now.0, creator, tenant];
                offer(statement.query(values)?, best, |row| {
                    Ok(self.is_open(row.get_ref(2)?.as_str()?, row.get_ref(3)?.as_str()?))
                })
            }
        }
    }

    /// Whether a claim by category may take tasks out of a lane: not parked ones, nor those kept for another host, nor
    /// those of a paused type, nor what the claim finds in that lane anyhow.
    fn is_open(&self, lane: &str, task_type: &str) -> bool {
        let host = lane.strip_prefix(task_type).map(|rest| rest.strip_prefix('@').unwrap_or(rest));
        host.is_some_and(|host| host.is_empty() || host == self.pick.host)
            && !self.paused.contains(task_type)
            && !self.whole_lanes.contains(lane)
    }
}

fn offer(mut rows: Rows<'_>, best: &mut Best, wanted: impl Fn(&Row<'_>) -> rusqlite::Result<bool>) -> Attempted<()> {
    while let Some(row) = rows.next()? {
        if wanted(row)? && !best.offer((row.get(0)?, row.get(1)?)) {
            break;
        }
    }
    Ok(())
}

const WHOLE: &str = "
SELECT w.id, w.tenant, w.type, w.lane, w.rank, w.due, w.expire_at, w.round, w.attempts, w.error_count, w.checkpoint,
       t.task_key, t.payload, w.category, w.creator, t.retry, t.max_attempts, t.timeout_ms,
       t.trace_parent, t.context
FROM task_waiting w JOIN task t ON t.id = w.id WHERE w.id = ?1";

fn whole(connection: &Connection, ids: &[i64]) -> Attempted<Vec<Picked>> {
    let mut statement = connection.prepare_cached(WHOLE)?;
    let mut tasks = Vec::with_capacity(ids.len());
    for id in ids {
        tasks.extend(statement.query_row([id], picked).optional()?);
    }
    Ok(tasks)
}

fn picked(row: &Row<'_>) -> rusqlite::Result<Picked> {
    let mut columns = Columns::of(row);
    Ok(Picked {
        id: TaskId(columns.next()?),
        tenant: columns.next()?,
        task_type: columns.next()?,
        lane: columns.next()?,
        rank: columns.next()?,
        due: Time(columns.next()?),
        expire_at: time(columns.next()?),
        round: columns.next()?,
        attempts: columns.next()?,
        error_count: columns.next()?,
        checkpoint: columns.next()?,
        key: columns.next()?,
        payload: columns.next()?,
        category: columns.next()?,
        creator: columns.next()?,
        retry: columns.next()?,
        max_attempts: columns.next()?,
        timeout_ms: columns.next()?,
        trace_parent: columns.next()?,
        context: columns.next()?,
    })
}
