//! Metrics, in the text format of Prometheus.
//!
//! What is counted lives in the store, the engine and here, since the process started; what is read from the database, the
//! backlog and the workers, is a few seconds old at most, and costs the same however much is due. While the database does not
//! answer it is left out, and the rest tells of that. Types are the only label that callers can make up, and there are never
//! more than a few hundred of them.

use crate::access::Caller;
use crate::problem::{Answer, Problem};
use crate::{App, Shared};
use axum::extract::State;
use axum::http::{Method, StatusCode, header};
use axum::response::IntoResponse;
use std::collections::HashMap;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use taskwheel_engine::EngineReadings;
use taskwheel_store::meter::{Durations, Readings};
use taskwheel_store::{Backlog, Store};

/// Where the metrics are.
pub(crate) const PATH: &str = "/metrics";

const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How old what was read from the database may be.
const FRESH: Duration = Duration::from_secs(5);

/// After so long the database does not answer.
const READ_TIME_MAX: Duration = Duration::from_secs(5);

/// The methods that are counted by name.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
/// Statuses are below this.
const STATUSES: usize = 600;

/// What the server counts of its calls: by route, method and status, without a lock.
pub(crate) struct Metrics {
    routes: HashMap<String, Route>,
    /// Calls that no route takes.
    elsewhere: Route,
    /// What was read last and when, if the database answered.
    seen: tokio::sync::Mutex<Option<(Instant, Option<Arc<Seen>>)>>,
}

/// The calls of a route, by method and status.
struct Route(Vec<AtomicU64>);

impl Route {
    fn new() -> Route {
        Route((0..(METHODS.len() + 1) * STATUSES).map(|_| AtomicU64::new(0)).collect())
    }

    /// What was counted: method, status and how many.
    fn counted(&self) -> impl Iterator<Item = (&'static str, usize, u64)> {
        let count = |(place, count): (usize, &AtomicU64)| {
            let method = METHODS.get(place / STATUSES).copied().unwrap_or("other");
            (method, place % STATUSES, count.load(Ordering::Relaxed))
        };
        self.0.iter().enumerate().map(count).filter(|(.., count)| *count > 0)
    }
}

/// What was read from the database.
struct Seen {
    backlog: Backlog,
    /// Those that are alive.
    workers: usize,
}

impl Seen {
    async fn read(store: &dyn Store) -> taskwheel_store::Result<Seen> {
        let (backlog, workers) = (store.backlog().await?, store.workers().await?);
        let workers = workers.iter().filter(|worker| worker.is_alive(backlog.now)).count();
        Ok(Seen { backlog, workers })
    }
}

impl Metrics {
    /// Metrics of these routes.
    pub(crate) fn of<'r>(routes: impl Iterator<Item = &'r str>) -> Metrics {
        let routes = routes.map(|route| (route.to_owned(), Route::new())).collect();
        Metrics { routes, elsewhere: Route::new(), seen: tokio::sync::Mutex::default() }
    }

    /// Counts a call. What callers make up, methods and paths, has no name here.
    pub(crate) fn count(&self, method: &Method, route: Option<&str>, status: StatusCode) {
        let route = route.and_then(|route| self.routes.get(route)).unwrap_or(&self.elsewhere);
        let method = METHODS.iter().position(|known| *known == method.as_str()).unwrap_or(METHODS.len());
        if let Some(count) = route.0.get(method * STATUSES + usize::from(status.as_u16()).min(STATUSES - 1)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What the database says; nothing while it does not answer.
    async fn seen(&self, app: &App) -> Option<Arc<Seen>> {
        let mut seen = self.seen.lock().await;
        if let Some((at, seen)) = &*seen
            && at.elapsed() < FRESH
        {
            return seen.clone();
        }
        let read = match tokio::time::timeout(READ_TIME_MAX, Seen::read(app.engine.store())).await {
            Ok(Ok(read)) => Some(Arc::new(read)),
            Ok(Err(error)) => {
                tracing::warn!(%error, "metrics are without those of the database");
                None
            }
            Err(_) => {
                tracing::warn!("metrics are without those of the database, which does not answer");
                None
            }
        };
        *seen = Some((Instant::now(), read.clone()));
        read
    }
}

/// Shows the metrics, for Prometheus. They are over all tenants, and for those who look after the server: admins without a tenant, and
/// whoever may watch in the tenant `default`. While the database does not answer, those that are read from it are missing.
#[utoipa::path(get, path = PATH, tag = "health", responses(
    (status = OK, body = str, content_type = "text/plain"), (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn metrics(State(app): Shared, caller: Caller) -> Answer<impl IntoResponse> {
    if !caller.looks_after_the_server() {
        return Err(Problem::forbidden("metrics are over all tenants, and not for a token of one"));
    }
    let seen = app.metrics.seen(&app).await;
    let (engine, store) = (app.engine.readings(), app.engine.store().readings());
    let text = page(seen.as_deref(), &engine, &store, &app.metrics, app.engine.is_healthy());
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text))
}

/// What a scrape is told while the database does not answer and nobody knows who asks: what `/readyz` tells everybody.
pub(crate) fn bare(app: &App) -> impl IntoResponse + use<> {
    let mut page = Page::default();
    page.ready(app.engine.is_healthy());
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], page.0)
}

fn page(seen: Option<&Seen>, engine: &EngineReadings, store: &Readings, metrics: &Metrics, is_ready: bool) -> String {
    let mut page = Page::default();
    page.ready(is_ready);
    page.gauge("taskwheel_waiting_claims", "Claims that wait for a task on this node.", engine.waiting_claims);
    page.counter("taskwheel_leases_lost_total", "Executions whose worker went silent.", engine.leases_lost);
    page.counter("taskwheel_timeouts_total", "Executions whose time limit ran out.", engine.timed_out);
    page.counter("taskwheel_never_arrived_total", "Executions that never reached a worker.", engine.never_arrived);
    page.counter("taskwheel_expired_total", "Tasks that expired before they started.", engine.expired);
    page.counter("taskwheel_reports_superseded_total", "Reports that came too late.", engine.superseded);
    page.gauge("taskwheel_store_connections_used", "Connections for work on tasks in use.", store.connections.0);
    page.gauge("taskwheel_store_connections_max", "Most connections for work on tasks.", store.connections.1);

    if let Some(seen) = seen {
        page.seen(seen);
    }
    let by_type = [
        ("taskwheel_submitted_total", "Tasks that were submitted through this node."),
        ("taskwheel_claimed_total", "Tasks that were handed out by this node."),
        ("taskwheel_retries_total", "Executions after which the task is tried again."),
    ];
    for (place, (name, help)) in by_type.into_iter().enumerate() {
        page.family(name, "counter", help);
        for (task_type, one) in &store.types {
            page.line(name, &[("type", task_type)], [one.submitted, one.claimed, one.retries][place]);
        }
    }
    page.family("taskwheel_executions_total", "counter", "Executions that ended, by how.");
    for (task_type, one) in &store.types {
        for (outcome, count) in &one.outcomes {
            page.line("taskwheel_executions_total", &[("type", task_type), ("outcome", outcome)], count);
        }
    }
    page.family("taskwheel_lateness_seconds", "histogram", "From being due to the start.");
    for (task_type, one) in &store.types {
        page.histogram("taskwheel_lateness_seconds", ("type", task_type), &one.lateness);
    }
    page.family("taskwheel_run_seconds", "histogram", "From the start of an execution to its end.");
    for (task_type, one) in &store.types {
        page.histogram("taskwheel_run_seconds", ("type", task_type), &one.run);
    }
    page.family("taskwheel_store_seconds", "histogram", "How long transactions took, by what they did.");
    for (verb, one) in &store.verbs {
        page.histogram("taskwheel_store_seconds", ("verb", verb), &one.durations);
    }
    page.family("taskwheel_store_errors_total", "counter", "Transactions that failed.");
    for (verb, one) in &store.verbs {
        page.line("taskwheel_store_errors_total", &[("verb", verb)], one.errors);
    }
    page.family("taskwheel_calls_total", "counter", "Calls of the API.");
    let elsewhere = ("(none)", &metrics.elsewhere);
    let mut routes: Vec<_> =
        metrics.routes.iter().map(|(name, route)| (name.as_str(), route)).chain([elsewhere]).collect();
    routes.sort_unstable_by_key(|(name, _)| *name);
    for (name, route) in routes {
        for (method, status, count) in route.counted() {
            let labels = [("method", method), ("route", name), ("status", &status.to_string())];
            page.line("taskwheel_calls_total", &labels, count);
        }
    }
    page.0
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.line(name, &[], value);
    }

    fn ready(&mut self, is_ready: bool) {
        self.gauge("taskwheel_ready", "Whether the last looks into the database succeeded.", u8::from(is_ready));
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.line(name, &[], value);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let quoted = |(label, value): &(&str, &str)| {
            format!("{label}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
        };
        let labels = labels.iter().map(quoted).collect::<Vec<_>>().join(",");
        let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    /// What was read from the database.
    fn seen(&mut self, Seen { backlog, workers }: &Seen) {
        self.gauge("taskwheel_workers", "Workers that are alive.", workers);
        self.family("taskwheel_due_tasks", "gauge", "Due tasks that no worker has; of many at least so many.");
        for one in &backlog.types {
            self.line("taskwheel_due_tasks", &[("type", &one.task_type)], one.due);
        }
        self.family("taskwheel_oldest_due_seconds", "gauge", "For how long the oldest of them has been due.");
        for one in &backlog.types {
            self.line("taskwheel_oldest_due_seconds", &[("type", &one.task_type)], one.oldest_ms as f64 / 1_000.0);
        }
        let cut_off = u8::from(backlog.is_cut_off);
        self.gauge("taskwheel_due_tasks_cut_off", "Whether there may be more of them than were counted.", cut_off);
    }

    fn histogram(&mut self, name: &str, label: (&str, &str), durations: &Durations) {
        let bucket = format!("{name}_bucket");
        for (bound, within) in Durations::BOUNDS_MS.iter().zip(durations.within) {
            let bound = (*bound as f64 / 1_000.0).to_string();
            self.line(&bucket, &[label, ("le", &bound)], within);
        }
        self.line(&bucket, &[label, ("le", "+Inf")], durations.count);
        self.line(&format!("{name}_sum"), &[label], durations.sum.as_secs_f64());
        self.line(&format!("{name}_count"), &[label], durations.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_quoted() {
        let mut page = Page::default();
        page.line("a", &[("type", "x\"\\\n")], 1);
        assert_eq!(page.0, "a{type=\"x\\\"\\\\\\n\"} 1\n");
    }
}
