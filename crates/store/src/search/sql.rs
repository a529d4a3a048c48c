//! The statement of a search.
//!
//! Text that a caller gives is only ever bound, never put into the statement.

use super::walk::Driver;
use super::{Filter, Search};
use crate::options::Dialect;
use taskwheel_model::{Time, limits};

/// How many rows on each side of a time are looked at for the ids that belong to it.
const EDGE_ROWS: usize = 10_000;

/// A value to bind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Text(String),
    Number(i64),
}

/// A statement after its list of columns, with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) text: String,
    pub(crate) values: Vec<Value>,
}

/// The statements of one search.
pub(crate) struct Query {
    pub(super) search: Search,
    pub(super) dialect: Dialect,
    pub(crate) drive_by_run_at_range: bool,
    /// Between which ids, as comparisons, everything created in the wanted time lies.
    pub(crate) created_ids: Vec<(&'static str, i64)>,
}

/// Where the ids that were created from or until a time end.
pub(crate) struct Edge {
    pub(crate) operator: &'static str,
    /// The id at the edge; none where nothing was created then.
    pub(crate) id: Statement,
    /// Stands for it then: no id compares so.
    pub(crate) nothing: i64,
}

/// A statement being written.
pub(super) struct Writer {
    dialect: Dialect,
    statement: Statement,
}

impl Writer {
    fn new(dialect: Dialect) -> Writer {
        Writer { dialect, statement: Statement { text: String::new(), values: Vec::new() } }
    }

    pub(super) fn push(&mut self, text: &str) -> &mut Writer {
        self.statement.text.push_str(text);
        self
    }

    pub(super) fn bind(&mut self, value: Value) -> &mut Writer {
        self.statement.values.push(value);
        match self.dialect {
            Dialect::Postgres => self.statement.text.push_str(&format!("${}", self.statement.values.len())),
            Dialect::Sqlite | Dialect::Mysql => self.statement.text.push('?'),
        }
        self
    }

    pub(super) fn number(&mut self, value: i64) -> &mut Writer {
        self.bind(Value::Number(value))
    }

    pub(super) fn text(&mut self, value: &str) -> &mut Writer {
        self.bind(Value::Text(value.to_owned()))
    }

    /// A time, in the type that `task` keeps times in.
    fn time(&mut self, time: Time) -> &mut Writer {
        match self.dialect {
            Dialect::Sqlite => self.number(time.0),
            Dialect::Postgres => self.push("to_timestamp(").number(time.0).push("::bigint / 1000.0)"),
            Dialect::Mysql => {
                self.push("TIMESTAMPADD(MICROSECOND, ").number(time.0).push(" * 1000, '1970-01-01 00:00:00')")
            }
        }
    }

    /// Whether a text column contains a text.
    fn contains(&mut self, column: &str, part: &str) -> &mut Writer {
        let (function, column) = match self.dialect {
            Dialect::Postgres => ("strpos", format!("{column}::text")),
            Dialect::Sqlite | Dialect::Mysql => ("instr", column.to_owned()),
        };
        self.push(function).push("(").push(&column).push(", ").text(part).push(") > 0")
    }
}

impl Query {
    pub(crate) fn new(search: Search, dialect: Dialect) -> Query {
        Query { search, dialect, drive_by_run_at_range: false, created_ids: Vec::new() }
    }

    /// The whole rows of the page and one more, to know whether there is a next.
    pub(crate) fn rows(&self) -> Statement {
        self.page(" LEFT JOIN task_worker k ON k.worker_id = r.worker_id")
    }

    /// Only the keys of the page and one more.
    pub(crate) fn keys(&self) -> Statement {
        self.page("")
    }

    fn page(&self, joins: &str) -> Statement {
        let mut writer = Writer::new(self.dialect);
        writer.push(" FROM (");
        self.candidates(&mut writer, self.scan_max());
        writer.push(self.whole_rows());
        writer.push(
            " LEFT JOIN task_waiting w ON w.id = t.id AND w.tenant = t.tenant LEFT JOIN task_running r ON r.id = t.id \
             LEFT JOIN task_history h ON h.id = t.id",
        );
        writer.push(joins);
        writer.push(" WHERE 1 = 1");
        self.conditions(&mut writer);
        self.order(&mut writer, "t.");
        writer.push(" LIMIT ").number(self.search.limit as i64 + 1);
        writer.statement
    }

    /// Joins the candidates with their tasks, and says that the candidates come first: a planner that starts from `task`
    /// would walk all of it.
    fn whole_rows(&self) -> &'static str {
        match self.dialect {
            Dialect::Postgres => ") c JOIN task t ON t.id = c.id",
            Dialect::Sqlite => ") c CROSS JOIN task t ON t.id = c.id",
            Dialect::Mysql => ") c STRAIGHT_JOIN task t ON t.id = c.id",
        }
    }

    /// The last candidate, where the driver was stopped at its bound.
    pub(crate) fn last_scanned(&self) -> Option<Statement> {
        if self.is_exact() {
            return None;
        }
        let mut writer = Writer::new(self.dialect);
        writer.push(" FROM (");
        self.candidates(&mut writer, self.scan_max());
        writer.push(self.whole_rows());
        self.order(&mut writer, "t.");
        writer.push(" LIMIT 1 OFFSET ").number(self.scan_max() as i64 - 1);
        Some(writer.statement)
    }

    /// Up to so many of the tasks in the range of due times, in any order, where such a range drives the search.
    pub(crate) fn run_at_range(&self, max: usize) -> Option<Statement> {
        let Filter { run_at_from, run_at_to, .. } = self.search.filter;
        let unbounded = run_at_from.is_none() && run_at_to.is_none();
        if unbounded || self.search.sort.is_by_run_at() || self.search.tenant.is_none() {
            return None;
        }
        let mut writer = Writer::new(self.dialect);
        writer.push(" FROM task t WHERE 1 = 1");
        self.tenant(&mut writer);
        self.run_at_bounds(&mut writer);
        writer.push(" LIMIT ").number(max as i64);
        Some(writer.statement)
    }

    /// The edges of the ids that were created in the wanted time, whosever they are. Ids and creation times grow together but for what
    /// was inserted side by side, which is why a stretch of rows at each end is looked at.
    ///
    /// They are found first and by themselves: in the statement of the search, MariaDB would not start from them.
    pub(crate) fn created_edges(&self) -> Vec<Edge> {
        let Filter { created_from, created_to, .. } = self.search.filter;
        let edges = [(created_from, ">=", "min", "", i64::MAX), (created_to, "<=", "max", " DESC", 0)];
        let is_by_id = !self.search.sort.is_by_run_at() && self.search.tenant.is_some();
        let wanted = edges.into_iter().filter(|_| is_by_id);
        let edge = |(time, operator, least, direction, nothing): (Option<Time>, _, _, _, _)| {
            let mut writer = Writer::new(self.dialect);
            writer.push(&format!(" FROM task t WHERE t.id = (SELECT {least}(id) FROM (SELECT b.id FROM task b"));
            writer.push(&format!(" WHERE b.created_at {operator} ")).time(time?);
            writer.push(&format!(" ORDER BY b.created_at{direction}, b.id{direction} LIMIT {EDGE_ROWS}) edge)"));
            Some(Edge { operator, id: writer.statement, nothing })
        };
        wanted.filter_map(edge).collect()
    }

    /// Whether the driver alone answers the filter, so that it need not look further than the page.
    fn is_exact(&self) -> bool {
        let Search { filter, category_types, .. } = &self.search;
        let mut rest = Filter { statuses: Vec::new(), ..filter.clone() };
        if self.search.sort.is_by_run_at() {
            (rest.run_at_from, rest.run_at_to) = (None, None);
            return rest == Filter::default() && filter.statuses.is_empty();
        }
        if self.search.tenant.is_none() {
            return *filter == Filter::default();
        }
        match &self.drivers()[..] {
            [Driver::Task(Some(("type", _)))] => rest.task_type = None,
            [Driver::Task(Some(("task_key", _)))] => rest.key = None,
            [Driver::Task(Some(("creator", _)))] => rest.creator = None,
            [Driver::Task(Some(("schedule_id", _)))] => rest.schedule_id = None,
            [Driver::Task(Some(("category", _)))] if category_types.is_empty() => rest.category = None,
            [Driver::RunAtRange] => (rest.run_at_from, rest.run_at_to) = (None, None),
            [Driver::HistoryHost(_), Driver::RunningHost(_)] => rest.host = None,
            [Driver::Status(_), ..] => return rest == Filter::default(),
            _ => {}
        }
        rest == Filter::default() && filter.statuses.is_empty()
    }

    fn scan_max(&self) -> usize {
        if self.is_exact() { self.search.limit + 1 } else { limits::PAGE_SCAN_ROWS_MAX }
    }

    pub(super) fn tenant(&self, writer: &mut Writer) {
        if let Some(tenant) = &self.search.tenant {
            writer.push(" AND t.tenant = ").text(tenant);
        }
    }

    /// What lies behind the cursor, in the order of the search.
    pub(super) fn cursor(&self, writer: &mut Writer) {
        let operator = if self.search.sort.is_ascending() { ">" } else { "<" };
        if let Some(cursor) = self.search.cursor {
            if self.search.sort.is_by_run_at() {
                writer.push(&format!(" AND t.run_at {operator}= ")).time(cursor.run_at);
                writer.push(&format!(" AND (t.run_at {operator} ")).time(cursor.run_at);
                writer.push(&format!(" OR t.id {operator} ")).number(cursor.id.0).push(")");
            } else {
                writer.push(&format!(" AND t.id {operator} ")).number(cursor.id.0);
            }
        }
        if let Some(id) = self.search.up_to {
            writer.push(" AND t.id <= ").number(id.0);
        }
    }

    pub(super) fn run_at_bounds(&self, writer: &mut Writer) {
        let Filter { run_at_from, run_at_to, .. } = self.search.filter;
        for (time, operator) in [(run_at_from, ">="), (run_at_to, "<=")] {
            if let Some(time) = time {
                writer.push(&format!(" AND t.run_at {operator} ")).time(time);
            }
        }
    }

    pub(super) fn order(&self, writer: &mut Writer, alias: &str) {
        let direction = if self.search.sort.is_ascending() { "" } else { " DESC" };
        if self.search.sort.is_by_run_at() {
            writer.push(&format!(" ORDER BY {alias}run_at{direction}, {alias}id{direction}"));
        } else {
            writer.push(&format!(" ORDER BY {alias}id{direction}"));
        }
    }

    /// The whole filter, on the whole row.
    fn conditions(&self, writer: &mut Writer) {
        let filter = &self.search.filter;
        self.tenant(writer);
        if !filter.statuses.is_empty() {
            let codes: Vec<_> = filter.statuses.iter().map(|status| status.code().to_string()).collect();
            writer.push(&format!(" AND COALESCE(w.status, r.status, h.status) IN ({})", codes.join(", ")));
        }
        let texts = [
            ("t.type", &filter.task_type),
            ("t.task_key", &filter.key),
            ("t.creator", &filter.creator),
            ("COALESCE(r.host, h.host)", &filter.host),
        ];
        for (column, value) in texts {
            if let Some(value) = value {
                writer.push(&format!(" AND {column} = ")).text(value);
            }
        }
        if let Some(category) = &filter.category {
            writer.push(" AND (t.category = ").text(category);
            if !self.search.category_types.is_empty() {
                writer.push(" OR (t.category IS NULL AND t.type IN (");
                for (number, name) in self.search.category_types.iter().enumerate() {
                    writer.push(if number == 0 { "" } else { ", " }).text(name);
                }
                writer.push("))");
            }
            writer.push(")");
        }
        let numbers = [
            ("t.priority", filter.priority.map(i64::from)),
            ("t.schedule_id", filter.schedule_id),
            ("t.token_id", filter.token_id),
        ];
        for (column, number) in numbers {
            if let Some(number) = number {
                writer.push(&format!(" AND {column} = ")).number(number);
            }
        }
        self.run_at_bounds(writer);
        for (time, operator) in [(filter.created_from, ">="), (filter.created_to, "<=")] {
            if let Some(time) = time {
                writer.push(&format!(" AND t.created_at {operator} ")).time(time);
            }
        }
        if let Some(part) = &filter.text {
            writer.push(" AND (").contains("t.task_key", part);
            for column in ["t.payload", "w.error_info", "r.error_info", "h.error_info", "t.remark"] {
                writer.push(" OR ").contains(column, part);
            }
            writer.push(")");
        }
    }
}
