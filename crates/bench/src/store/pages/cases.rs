//! What the tasks hold, and what is looked for among them.

use super::super::fill::{Standing, Tasks};
use taskwheel_model::{Status, Time};
use taskwheel_store::search::Filter;

/// Mostly Success, some Failure and Cancelled, hardly any ManuallyProcessed.
pub(super) const FINISHED_STATUS: &str =
    "CASE WHEN id % 100000 = 7 THEN 8 WHEN id % 100 = 1 THEN 6 WHEN id % 100 = 2 THEN 9 ELSE 3 END";
/// Mostly New, some Error, few Pending, hardly any Completed.
pub(super) const WAITING_STATUS: &str =
    "CASE WHEN id % 100000 = 7 THEN 4 WHEN id % 1000 = 1 THEN 7 WHEN id % 100 = 2 THEN 5 ELSE 1 END";
pub(super) const HOST: &str = "CASE WHEN id % 500000 = 77 THEN 'rare.host' ELSE CONCAT('host', id % 20) END";

/// Tasks of many types, keys, categories, creators and priorities. Rare values are about ten among five million.
pub(super) fn varied<'a>(created_at: &'a str, run_at: &'a str, standing: Standing<'a>) -> Tasks<'a> {
    Tasks {
        task_type: "CASE WHEN n % 500000 = 77 THEN 'rare.type' ELSE CONCAT('type', (n * 7919) % 50) END",
        priority: "CASE WHEN n % 500000 = 77 THEN 7 WHEN n % 10 = 0 THEN 5 ELSE 1 END",
        run_at,
        created_at,
        key: "CONCAT('key', n)",
        category: "CASE WHEN n % 500000 = 77 THEN 'rare.category' WHEN n % 2 = 0 THEN CONCAT('category', n % 20) END",
        creator: "CASE WHEN n % 500000 = 77 THEN 'rare.creator' ELSE CONCAT('creator', (n * 104729) % 100) END",
        schedule_id: "CASE WHEN n % 500000 = 77 THEN 7 WHEN n % 20 = 0 THEN n % 3 + 1 END",
        standing,
    }
}

/// One filter with one value.
pub(super) struct Case {
    pub(super) filter: &'static str,
    pub(super) value: &'static str,
    pub(super) filtered: Filter,
}

/// Every case; those of one filter stand together.
pub(super) fn all(now: i64, finished: u64) -> Vec<Case> {
    let mut cases = vec![Case { filter: "nothing", value: "all", filtered: Filter::default() }];
    let mut add = |filter, value, filtered| cases.push(Case { filter, value, filtered });
    for status in Status::ALL {
        add("status", status.word(), Filter { statuses: vec![status], ..Filter::default() });
    }
    for (value, is_one) in [("live", Status::is_live as fn(Status) -> bool), ("finished", Status::is_finished)] {
        let statuses = Status::ALL.into_iter().filter(|status| is_one(*status)).collect();
        add("status", value, Filter { statuses, ..Filter::default() });
    }
    let text = |value: &str| Some(value.to_owned());
    for (value, name) in [("common", "type3"), ("rare", "rare.type"), ("none", "no.such.type")] {
        add("type", value, Filter { task_type: text(name), ..Filter::default() });
    }
    for (value, name) in [("common", "category4"), ("rare", "rare.category"), ("none", "no such category")] {
        add("category", value, Filter { category: text(name), ..Filter::default() });
    }
    for (value, name) in [("one", "key77"), ("none", "no such key")] {
        add("key", value, Filter { key: text(name), ..Filter::default() });
    }
    for (value, name) in [("common", "creator5"), ("rare", "rare.creator"), ("none", "no such creator")] {
        add("creator", value, Filter { creator: text(name), ..Filter::default() });
    }
    for (value, name) in [("common", "host3"), ("running", "bench"), ("rare", "rare.host"), ("none", "no such host")] {
        add("host", value, Filter { host: text(name), ..Filter::default() });
    }
    for (value, priority) in [("common", 1), ("rare", 7), ("none", 8)] {
        add("priority", value, Filter { priority: Some(priority), ..Filter::default() });
    }
    for (value, id) in [("common", 1), ("rare", 7), ("none", 99)] {
        add("schedule", value, Filter { schedule_id: Some(id), ..Filter::default() });
    }
    for (value, from, to) in ranges(now) {
        add("run_at", value, Filter { run_at_from: from, run_at_to: to, ..Filter::default() });
    }
    for (value, from, to) in ranges(now) {
        add("created_at", value, Filter { created_from: from, created_to: to, ..Filter::default() });
    }
    let old_key = format!("key{}", finished / 2);
    for (value, part) in [("common", "small payload"), ("one old", &*old_key), ("none", "no such text")] {
        add("text", value, Filter { text: text(part), ..Filter::default() });
    }
    cases
}

/// Ranges of time: wide and narrow, open at either end, and two that hold nothing.
fn ranges(now: i64) -> [(&'static str, Option<Time>, Option<Time>); 7] {
    const HOUR_MS: i64 = 3_600_000;
    const DAY_MS: i64 = 24 * HOUR_MS;
    let at = |offset: i64| Some(Time(now + offset));
    [
        ("since an hour ago", at(-HOUR_MS), None),
        ("until an hour ago", None, at(-HOUR_MS)),
        ("a week, weeks ago", at(-20 * DAY_MS), at(-13 * DAY_MS)),
        ("a minute, weeks ago", at(-20 * DAY_MS), at(-20 * DAY_MS + 60_000)),
        ("until weeks ago", None, at(-30 * DAY_MS)),
        ("years ahead", at(2_000 * DAY_MS), None),
        ("years ago", None, at(-2_000 * DAY_MS)),
    ]
}
