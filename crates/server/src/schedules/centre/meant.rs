//! Which task a call of the scheduling centre means: its id, by query, form or JSON.

use crate::App;
use crate::input::{Query, parse, read, shape};
use crate::problem::{Answer, Problem};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::{HeaderMap, header};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use utoipa::ToSchema;

/// Which task is meant.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct CentreTarget {
    #[schema(value_type = Option<i64>)]
    task_id: Option<Value>,
}

/// The id of the task that is meant.
pub(crate) struct Meant(pub(super) i64);

impl FromRequest<Arc<App>> for Meant {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Meant, Problem> {
        let (mut parts, body) = request.into_parts();
        let mut query = Query::from_request_parts(&mut parts, app).await?;
        let in_query = query.take("taskId").map(Value::String);
        let is_form = is_form(&parts.headers);
        let body = read(app, Request::from_parts(parts, body)).await?;
        let in_body = if body.is_empty() {
            CentreTarget::default()
        } else if is_form {
            form(&body)?
        } else {
            parse(&body)?
        };
        let given = [in_query, in_body.task_id].into_iter().flatten().map(number).collect::<Answer<Vec<i64>>>()?;
        match given[..] {
            [] => Err(Problem::field("taskId", "must be given, by query, form or JSON")),
            [first, second] if first != second => Err(Problem::field("taskId", "must be given once")),
            [id, ..] => Ok(Meant(id)),
        }
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

fn form(body: &[u8]) -> Answer<CentreTarget> {
    let mut fields = Map::new();
    for (name, value) in form_urlencoded::parse(body) {
        if fields.insert(name.to_string(), value.into()).is_some() {
            return Err(Problem::field(&name, "must be given once"));
        }
    }
    shape(Value::Object(fields))
}

/// An id as a number, or as its text.
fn number(value: Value) -> Answer<i64> {
    let number = match &value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| Problem::field("taskId", "must be a whole number"))
}
