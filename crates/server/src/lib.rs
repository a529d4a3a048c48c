//! Taskwheel's HTTP API: thin adapters over the engine.
//!
//! Each file is one part of the contract: `tasks` and `bulk` for people and programs that submit, look and step in,
//! `worker` for workers in any language, `schedules` for what fires when, `types` for what types settle, `statistics`, `audit` and `health` for whoever watches.
//! `access`, `scopes`, `quota` and `room` say who may do what and how much of it, by what is `fresh`ly known; `metrics` and
//! `spans` tell of it.
//! `input` reads requests strictly, `unread` sees to what nobody read of them, `problem` is the one shape of every error, `listen` is
//! the server around the router.

mod access;
mod audit;
mod bulk;
mod fresh;
mod health;
mod input;
mod listen;
mod metrics;
mod problem;
mod quota;
mod room;
mod schedules;
mod scopes;
mod shapes;
mod spans;
mod statistics;
mod tasks;
mod tls;
mod types;
mod unread;
mod worker;

pub use listen::{Listener, Stop, bind};
pub use spans::{Span, Spans};
pub use tls::tls;
pub use tokio_rustls::TlsAcceptor;

use access::Gate;
use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::Method;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use metrics::Metrics;
use problem::{Answer, Problem};
use quota::Quotas;
use room::{Place, Room};
use schedules::{centre, runs};
use scopes::Routes;
use std::collections::HashMap;
use std::sync::Arc;
use taskwheel_engine::Engine;
use taskwheel_model::Scope;
use unread::Unread;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::routes;

/// What every call has at hand.
struct App {
    engine: Arc<Engine>,
    room: Room,
    document: String,
    /// The methods that each route takes.
    methods: HashMap<String, String>,
    gate: Gate,
    quotas: Quotas,
    metrics: Metrics,
    spans: Spans,
    /// The time zone of expressions that name none.
    timezone: String,
}

type Shared = State<Arc<App>>;

/// A task platform that any language can use over HTTP.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Taskwheel",
        description = "Submit tasks, run them with workers in any language, watch them, step in."
    ),
    security(("token" = [])),
    modifiers(&Bearer)
)]
struct Document;

/// Callers show a token, once there is one.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// The routes, and the document that describes them.
fn routes() -> (Router<Arc<App>>, utoipa::openapi::OpenApi) {
    use Scope::{Administer, Any, Audit, Change, Open, Read, Submit, Watch, Work};
    Routes::new(Document::openapi())
        .add(Submit, routes!(tasks::submit))
        .add(Read, routes!(tasks::list))
        .add(Submit, routes!(tasks::submit_batch))
        .add(Read, routes!(tasks::show))
        .add(Change, routes!(tasks::edit, tasks::delete))
        .add(Change, routes!(tasks::cancel))
        .add(Change, routes!(tasks::retry))
        .add(Change, routes!(tasks::run_now))
        .add(Change, routes!(tasks::resolve))
        .add(Change, routes!(bulk::bulk))
        .add(Work, routes!(worker::claim))
        .add(Work, routes!(worker::renew))
        .add(Work, routes!(worker::report))
        .add(Watch, routes!(worker::workers))
        .add(Watch, routes!(types::list))
        .add(Watch, routes!(types::show))
        .add(Administer, routes!(types::put))
        .add(Administer, routes!(types::pause))
        .add(Administer, routes!(types::resume))
        .add(Change, routes!(schedules::create))
        .add(Watch, routes!(schedules::list))
        .add(Watch, routes!(schedules::show))
        .add(Change, routes!(schedules::edit, schedules::delete))
        .add(Change, routes!(schedules::online))
        .add(Change, routes!(schedules::offline))
        .add(Change, routes!(schedules::run))
        .add(Watch, routes!(schedules::next))
        .add(Watch, routes!(schedules::preview))
        .add(Watch, routes!(runs::of_schedule))
        .add(Watch, routes!(runs::list))
        .add(Watch, routes!(runs::show))
        .add(Change, routes!(runs::cancel))
        .add(Change, routes!(centre::submit))
        .add(Change, routes!(centre::delete))
        .add(Change, routes!(centre::disable))
        .add(Change, routes!(centre::enable))
        .add(Change, routes!(centre::run))
        .add(Watch, routes!(statistics::statistics))
        .add(Audit, routes!(audit::audit))
        .add(Watch, routes!(metrics::metrics))
        .add(Any, routes!(health::document))
        .add(Open, routes!(health::healthz))
        .add(Open, routes!(health::readyz))
        .into_parts()
}

/// The whole API over an engine. Expressions that name no time zone are in this one.
pub fn router(engine: Arc<Engine>, spans: Spans, timezone: String) -> Router {
    let (routes, document) = routes();
    let metrics = Metrics::of(document.paths.paths.keys().map(String::as_str));
    let methods = scopes::methods(&document.paths);
    let document = document.to_pretty_json().unwrap_or_default();
    let (gate, quotas, room) = (Gate::default(), Quotas::default(), Room::default());
    let app = Arc::new(App { engine, room, document, methods, gate, quotas, metrics, spans, timezone });
    routes
        .fallback(async || Problem::nowhere())
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(app.clone(), enter))
        .with_state(app)
}

/// The document that describes the API.
#[must_use]
pub fn document() -> String {
    routes().1.to_pretty_json().unwrap_or_default()
}

/// What every call goes through: there is room for it, it is known who calls, and it is counted.
async fn enter(State(app): Shared, mut request: Request, next: Next) -> Response {
    let (method, route) = (request.method().clone(), request.extensions().get::<MatchedPath>().cloned());
    let is_centre = request.uri().path().starts_with(centre::PATH);
    let (unread, has_asked) = (Unread::of(&mut request), unread::has_asked(request.headers()));
    let is_scrape = method == Method::GET && request.uri().path() == metrics::PATH;
    let mut response = match admit(&app, &mut request).await {
        Err(problem) => {
            drop(request);
            if is_scrape && problem.is_unready() {
                metrics::bare(&app).into_response()
            } else {
                problem.into_response()
            }
        }
        Ok(_place) => next.run(request).await,
    };
    unread.clear(has_asked, &mut response).await;
    let response = if is_centre { centre::answer(response) } else { response };
    app.metrics.count(&method, route.as_ref().map(MatchedPath::as_str), response.status());
    response
}

/// Finds room for a call, and who calls. Whether the server lives can be asked by anybody, and however full it is.
async fn admit(app: &Arc<App>, request: &mut Request) -> Answer<Option<Place>> {
    if health::PROBES.contains(&request.uri().path()) {
        return Ok(None);
    }
    let place = app.room.enter()?;
    request.extensions_mut().insert(place.clone());
    access::authenticate(app, request).await?;
    Ok(Some(place))
}

async fn no_such_method(State(app): Shared, route: MatchedPath) -> Problem {
    Problem::method_not_allowed(app.methods.get(route.as_str()).map_or("no other either", String::as_str))
}
