//! Taskwheel's HTTP API: thin adapters over the engine.
//!
//! Each file is one part of the contract: `tasks` and `bulk` for people and programs that submit, look and step in,
//! `worker` for workers in any language, `types` for what types settle, `statistics` and `health` for whoever watches.
//! `input` reads requests strictly, `problem` is the one shape of every error, `listen` is the server around the router.

mod bulk;
mod health;
mod input;
mod listen;
mod problem;
mod shapes;
mod statistics;
mod tasks;
mod types;
mod worker;

pub use listen::{Listener, Stop, bind};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use problem::Problem;
use std::sync::Arc;
use taskwheel_engine::Engine;
use tokio::sync::Semaphore;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Calls at once, waiting claims among them. Further ones are told to come again.
const CALLS_MAX: usize = 4_096;

/// What every call has at hand.
struct App {
    engine: Arc<Engine>,
    calls: Semaphore,
    document: String,
}

type Shared = State<Arc<App>>;

/// A task platform that any language can use over HTTP.
#[derive(OpenApi)]
#[openapi(info(
    title = "Taskwheel",
    description = "Submit tasks, run them with workers in any language, watch them, step in."
))]
struct Document;

/// The routes, and the document that describes them.
fn routes() -> (Router<Arc<App>>, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(tasks::submit, tasks::list))
        .routes(routes!(tasks::submit_batch))
        .routes(routes!(tasks::show, tasks::edit, tasks::delete))
        .routes(routes!(tasks::cancel))
        .routes(routes!(tasks::retry))
        .routes(routes!(tasks::run_now))
        .routes(routes!(tasks::resolve))
        .routes(routes!(bulk::bulk))
        .routes(routes!(worker::claim))
        .routes(routes!(worker::renew))
        .routes(routes!(worker::report))
        .routes(routes!(worker::workers))
        .routes(routes!(types::list))
        .routes(routes!(types::show, types::put))
        .routes(routes!(types::pause))
        .routes(routes!(types::resume))
        .routes(routes!(statistics::statistics))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .split_for_parts()
}

/// The whole API over an engine.
pub fn router(engine: Arc<Engine>) -> Router {
    let (routes, document) = routes();
    let document = document.to_pretty_json().unwrap_or_default();
    let app = Arc::new(App { engine, calls: Semaphore::new(CALLS_MAX), document });
    routes
        .route("/openapi.json", axum::routing::get(health::document))
        .fallback(async || Problem::not_found("there is nothing at this address"))
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .layer(middleware::from_fn_with_state(app.clone(), bounded))
        .with_state(app)
}

/// The document that describes the API.
#[must_use]
pub fn document() -> String {
    routes().1.to_pretty_json().unwrap_or_default()
}

/// Turns calls away when too many are under way.
async fn bounded(State(app): Shared, request: Request, next: Next) -> Response {
    match app.calls.try_acquire() {
        Ok(_place) => next.run(request).await,
        Err(_) => Problem::busy().into_response(),
    }
}
