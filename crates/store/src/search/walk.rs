//! The index walks of a search: which there are, and how each is written on each database.

use super::Filter;
use super::sql::{Query, Value, Writer};
use crate::options::Dialect;
use taskwheel_model::Status;

/// An index walk that yields candidate ids in the order of the search.
pub(super) enum Driver {
    /// By an indexed column of `task`, by its name and value, after its tenant.
    Task(Option<(&'static str, Value)>),
    /// The range of due times, sorted on the spot.
    RunAtRange,
    /// Tasks of a status, in the table where those are.
    Status(Status),
    /// Executing tasks on a host.
    RunningHost(String),
    /// Finished tasks that last ran on a host.
    HistoryHost(String),
}

impl Query {
    /// The index walks that yield every task the filter can match, the most selective kind first.
    pub(super) fn drivers(&self) -> Vec<Driver> {
        let Filter { statuses, task_type, category, key, creator, host, schedule_id, .. } = &self.search.filter;
        let text = |column, value: &String| vec![Driver::Task(Some((column, Value::Text(value.clone()))))];
        // Every index starts with the tenant. Over all tenants the ids alone are walked, and what does not match is skipped.
        if self.search.sort.is_by_run_at() || self.search.tenant.is_none() {
            return vec![Driver::Task(None)];
        }
        if let Some(key) = key {
            return text("task_key", key);
        }
        if let Some(id) = schedule_id {
            return vec![Driver::Task(Some(("schedule_id", Value::Number(*id))))];
        }
        if self.drive_by_run_at_range {
            return vec![Driver::RunAtRange];
        }
        if let Some(creator) = creator {
            return text("creator", creator);
        }
        // Buckets have the tasks of all tenants: where more is asked for than the status, a page would look at too many.
        let is_by_bucket = self.dialect == Dialect::Postgres && statuses.contains(&Status::Success);
        let by_status_alone = Filter { statuses: statuses.clone(), ..Filter::default() };
        if is_by_bucket
            && task_type.is_none()
            && category.is_none()
            && host.is_none()
            && self.search.filter != by_status_alone
        {
            return vec![Driver::Task(None)];
        }
        // Most tasks are New or Success: other statuses tell more than a type does.
        let rare = |status: &Status| !matches!(status, Status::New | Status::Success);
        if !statuses.is_empty()
            && (statuses.iter().all(rare) || (task_type.is_none() && category.is_none() && host.is_none()))
        {
            return statuses.iter().map(|status| Driver::Status(*status)).collect();
        }
        if let Some(host) = host {
            return vec![Driver::HistoryHost(host.clone()), Driver::RunningHost(host.clone())];
        }
        if let Some(task_type) = task_type {
            return text("type", task_type);
        }
        if let Some(category) = category {
            let mut drivers = text("category", category);
            drivers.extend(self.search.category_types.iter().flat_map(|name| text("type", name)));
            return drivers;
        }
        vec![Driver::Task(None)]
    }

    pub(super) fn candidates(&self, writer: &mut Writer, max: usize) {
        let drivers = self.drivers();
        if let [driver] = &drivers[..] {
            self.walk(writer, driver, max);
            return;
        }
        writer.push("SELECT id FROM (");
        for (number, driver) in drivers.iter().enumerate() {
            writer.push(if number == 0 { "SELECT id FROM (" } else { " UNION SELECT id FROM (" });
            self.walk(writer, driver, max);
            writer.push(&format!(") d{number}"));
        }
        writer.push(") u");
        self.order(writer, "");
        writer.push(" LIMIT ").number(max as i64);
    }

    fn walk(&self, writer: &mut Writer, driver: &Driver, max: usize) {
        if let Some(mark) = self.mark(driver) {
            return self.walk_buckets(writer, driver, &mark, max);
        }
        let label = self.label(driver);
        let table = match driver {
            _ if label.is_some() => "task_label",
            Driver::Task(_) | Driver::RunAtRange => "task",
            Driver::Status(Status::Executing) | Driver::RunningHost(_) => "task_running",
            // MySQL and MariaDB have no partial indexes: what is not New is found by a table.
            Driver::Status(Status::Completed | Status::Error | Status::Pending) if self.dialect == Dialect::Mysql => {
                "task_waiting_status"
            }
            Driver::Status(status) if status.is_live() => "task_waiting",
            Driver::Status(_) | Driver::HistoryHost(_) => "task_history",
        };
        writer.push(&format!("SELECT t.id FROM {table} t"));
        self.keep_to_index(writer, driver);
        writer.push(" WHERE 1 = 1");
        self.tenant(writer);
        match label {
            Some(label) => {
                writer.push(" AND t.label = ").text(&label);
            }
            None => self.condition(writer, driver),
        }
        self.cursor(writer);
        if matches!(table, "task" | "task_label") {
            for (operator, id) in &self.created_ids {
                writer.push(&format!(" AND t.id {operator} ")).number(*id);
            }
        }
        if self.search.sort.is_by_run_at() {
            self.run_at_bounds(writer);
        }
        self.order(writer, "t.");
        writer.push(" LIMIT ").number(max as i64);
    }

    /// What the tasks of a walk have in common.
    fn condition(&self, writer: &mut Writer, driver: &Driver) {
        match driver {
            Driver::Task(None) => {}
            Driver::Task(Some((column, value))) => {
                writer.push(&format!(" AND t.{column} = ")).bind(value.clone());
            }
            Driver::RunAtRange => self.run_at_bounds(writer),
            // A literal, so that the planner sees which partial index it can use.
            Driver::Status(status) => {
                writer.push(&format!(" AND t.status = {}", status.code()));
            }
            Driver::RunningHost(host) | Driver::HistoryHost(host) => {
                writer.push(" AND t.host = ").text(host);
            }
        }
    }

    /// What finished tasks are found by on PostgreSQL, bucket by bucket.
    fn mark(&self, driver: &Driver) -> Option<String> {
        match (self.dialect, driver) {
            (Dialect::Postgres, Driver::Status(Status::Success)) => Some("Success".into()),
            (Dialect::Postgres, Driver::HistoryHost(host)) => Some(format!("host:{host}")),
            _ => None,
        }
    }

    /// Looks into the buckets of a mark one after the other, until there are enough.
    fn walk_buckets(&self, writer: &mut Writer, driver: &Driver, mark: &str, max: usize) {
        let (operator, direction) = if self.search.sort.is_ascending() { (">", "") } else { ("<", " DESC") };
        writer.push("SELECT h.id FROM (SELECT DISTINCT t.bucket FROM task_history_mark t WHERE 1 = 1");
        self.tenant(writer);
        writer.push(" AND t.mark = ").text(mark);
        if let Some(cursor) = self.search.cursor {
            writer.push(&format!(" AND t.bucket {operator}= ")).number(cursor.id.0 >> 8);
        }
        if let Some(id) = self.search.up_to {
            writer.push(" AND t.bucket <= ").number(id.0 >> 8);
        }
        writer.push(&format!(" ORDER BY t.bucket{direction}) b CROSS JOIN LATERAL (SELECT t.id FROM task_history t"));
        writer.push(" WHERE t.id >= b.bucket << 8 AND t.id < (b.bucket + 1) << 8");
        self.tenant(writer);
        self.condition(writer, driver);
        self.cursor(writer);
        writer.push(&format!(" OFFSET 0) h ORDER BY b.bucket{direction}, h.id{direction} LIMIT ")).number(max as i64);
    }

    /// What tasks are found by on MySQL and MariaDB, which have no index for what most tasks do not say.
    fn label(&self, driver: &Driver) -> Option<String> {
        match (self.dialect, driver) {
            (Dialect::Mysql, Driver::Task(Some((kind @ ("creator" | "category"), Value::Text(name))))) => {
                Some(format!("{kind}:{name}"))
            }
            (Dialect::Mysql, Driver::Task(Some(("schedule_id", Value::Number(id))))) => Some(format!("schedule:{id}")),
            _ => None,
        }
    }

    /// Names the index of a walk to MySQL and MariaDB. Left alone they look up the tenant in it and then read over all that
    /// lies before the cursor, instead of starting there.
    fn keep_to_index(&self, writer: &mut Writer, driver: &Driver) {
        if self.dialect != Dialect::Mysql || self.search.tenant.is_none() {
            return;
        }
        let index = match driver {
            Driver::Task(None) if self.search.sort.is_by_run_at() => "task_by_run_at",
            Driver::Task(None) => "task_by_id",
            Driver::Task(Some(("type", _))) => "task_by_type",
            Driver::Task(Some(("task_key", _))) => "task_by_key",
            Driver::Task(Some(("creator" | "category" | "schedule_id", _))) => "PRIMARY",
            Driver::Status(Status::New) => "task_waiting_id",
            Driver::RunAtRange => "task_by_run_at",
            Driver::Status(Status::Executing) | Driver::RunningHost(_) | Driver::Task(Some(_)) => return,
            Driver::Status(status) if status.is_live() => "PRIMARY",
            Driver::Status(_) => "task_history_by_status",
            Driver::HistoryHost(_) => "task_history_by_host",
        };
        writer.push(&format!(" FORCE INDEX ({index})"));
    }
}
