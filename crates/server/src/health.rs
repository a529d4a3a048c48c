//! For whoever watches the server.

use crate::Shared;
use crate::problem::{Answer, Problem};
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;

/// The paths that say whether the server lives and can work.
pub(crate) const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// Whether the process lives.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = OK, body = str, content_type = "text/plain")))]
pub(crate) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether it can work: its last looks into the database succeeded, and none hangs.
#[utoipa::path(get, path = "/readyz", tag = "health", responses(
    (status = OK, body = str, content_type = "text/plain"), (status = SERVICE_UNAVAILABLE, body = Problem)))]
pub(crate) async fn readyz(State(app): Shared) -> Answer<&'static str> {
    if app.engine.is_healthy() { Ok("ok\n") } else { Err(Problem::unready("the database does not answer")) }
}

/// The document that describes the API.
#[utoipa::path(get, path = "/openapi.json", tag = "health", responses((status = OK, body = serde_json::Value)))]
pub(crate) async fn document(State(app): Shared) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], app.document.clone())
}
