//! Requests, read strictly: unknown fields are refused, and what is wrong is named.

use crate::App;
use crate::access::Caller;
use crate::problem::Problem;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use taskwheel_model::{FieldError, TaskId};

/// Largest body: a batch of ten thousand tasks with small payloads.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How long a body may take to arrive.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// A JSON body.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Body<T>, Problem> {
        let bytes = read(app, request).await?;
        parse(&bytes).map(Body)
    }
}

/// A JSON body that may be left out.
pub(crate) struct MaybeBody<T>(pub(crate) T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<App>> for MaybeBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<MaybeBody<T>, Problem> {
        let bytes = read(app, request).await?;
        if bytes.is_empty() { Ok(MaybeBody(T::default())) } else { parse(&bytes).map(MaybeBody) }
    }
}

/// Reads a body, within its limits. A caller whose token was revoked before all of it came is refused.
pub(crate) async fn read(app: &Arc<App>, request: Request) -> Result<Bytes, Problem> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX);
    let bytes = match tokio::time::timeout(BODY_TIME_MAX, body.collect()).await {
        Err(_) => Err(Problem::too_slow()),
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Problem::too_large(BODY_BYTES_MAX)),
        Ok(Err(error)) => Err(Problem::malformed(format!("the body could not be read: {error}"))),
    }?;
    let caller = parts.extensions.get::<Caller>().ok_or_else(Problem::unauthorized)?;
    if app.gate.lets_stay(app, caller).await? { Ok(bytes) } else { Err(Problem::unauthorized()) }
}

/// Text that is no JSON is malformed; JSON of another shape has a bad field.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // A list would be read as the fields in their order.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::field("body", "must be an object"));
    }
    if let Ok(parsed) = serde_json::from_slice(bytes) {
        return Ok(parsed);
    }
    // What went wrong where is asked for only when something did: the way to each field costs.
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        if error.inner().is_data() {
            bad_field(&error.path().to_string(), &error.inner().to_string())
        } else if serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok() {
            // Null in place of one of several words is no fault of the JSON.
            bad_field(&error.path().to_string(), "is not one of the words that it can be")
        } else {
            Problem::malformed(format!("the body is not valid JSON: {}", error.inner()))
        }
    })?;
    deserializer.end().map_err(|error| Problem::malformed(format!("the body is not valid JSON: {error}")))?;
    Ok(parsed)
}

/// A serde error as a problem with a field.
pub(crate) fn bad_field(path: &str, message: &str) -> Problem {
    named(path, message).into()
}

/// Names the field of a serde error: the path to it, and for unknown and missing fields the name that the message has.
pub(crate) fn named(path: &str, message: &str) -> FieldError {
    let message = in_plain_words(message.split(" at line ").next().unwrap_or(message));
    let inside = path.trim_start_matches('.');
    let named = ["unknown field `", "missing field `", "duplicate field `"]
        .iter()
        .find_map(|start| message.strip_prefix(start))
        .and_then(|rest| rest.split('`').next())
        .map(str::to_owned);
    let field = match (inside, named) {
        ("" | ".", Some(named)) => named,
        ("" | ".", None) => "body".to_owned(),
        // serde_path_to_error has an unknown field's own name at the end of its path already.
        (inside, Some(named)) if *inside != *named && !inside.ends_with(&format!(".{named}")) => {
            format!("{inside}.{named}")
        }
        (inside, _) => inside.to_owned(),
    };
    FieldError::new(field, message)
}

/// The only UUIDs that callers give are those that a claim gave them.
const EXEC_ID: &str = "must be the exec_id of the claim";

/// A message without the names that a program has for its types.
fn in_plain_words(message: &str) -> String {
    if message.starts_with("UUID parsing failed") {
        return EXEC_ID.to_owned();
    }
    const WORDS: [(&str, &str); 8] = [
        ("expected i64", "expected a whole number"),
        ("expected u64", "expected a whole number from 0"),
        ("expected i32", "expected a whole number"),
        ("expected u32", "expected a whole number from 0"),
        ("expected u8", "expected a whole number from 0 to 255"),
        ("expected usize", "expected a whole number from 0"),
        ("expected a boolean", "expected true or false"),
        ("invalid type: ", "is of another type: "),
    ];
    WORDS.iter().fold(message.to_owned(), |message, (program, plain)| message.replace(program, plain))
}

/// The part of a path that names something; none where its bytes are no text.
async fn segment<S: Send + Sync>(parts: &mut Parts, state: &S) -> Option<String> {
    Path::from_request_parts(parts, state).await.ok().map(|Path(text)| text)
}

/// The name of a type in a path.
pub(crate) struct TypeName(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for TypeName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<TypeName, Problem> {
        let name = segment(parts, state).await.ok_or_else(|| Problem::field("type", "must be UTF-8"))?;
        Ok(TypeName(name))
    }
}

/// The id of a task in a path. What is no id names no task.
pub(crate) struct Id(pub(crate) TaskId);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Id, Problem> {
        let text = segment(parts, state).await.ok_or_else(Problem::nowhere)?;
        match text.parse::<i64>() {
            Ok(id) if id > 0 => Ok(Id(TaskId(id))),
            _ => Err(Problem::not_found(format!("there is no task {text}: an id is a number from 1"))),
        }
    }
}

/// The number of something else in a path. What is no number names nothing.
pub(crate) struct Number(pub(crate) i64);

impl<S: Send + Sync> FromRequestParts<S> for Number {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Number, Problem> {
        let text = segment(parts, state).await.ok_or_else(Problem::nowhere)?;
        match text.parse::<i64>() {
            Ok(number) if number > 0 => Ok(Number(number)),
            _ => Err(Problem::not_found(format!("there is nothing with the id {text}: an id is a number from 1"))),
        }
    }
}

/// The query of a call, by name. A name that comes twice is refused.
pub(crate) struct Query(pub(crate) serde_json::Map<String, serde_json::Value>);

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Query, Problem> {
        let mut map = serde_json::Map::new();
        for (name, value) in form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes()) {
            if map.insert(name.to_string(), value.into()).is_some() {
                return Err(Problem::field(&name, "must be given once"));
            }
        }
        // Whose tasks a call is about is the caller's to say, and known already.
        map.remove("tenant");
        Ok(Query(map))
    }
}

impl Query {
    /// Takes one value out.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        match self.0.remove(name) {
            Some(serde_json::Value::String(value)) => Some(value),
            _ => None,
        }
    }

    /// Takes a number of items out, which has a default and a maximum.
    pub(crate) fn limit(&mut self, name: &str, default: usize, max: usize) -> Result<usize, Problem> {
        let Some(text) = self.take(name) else { return Ok(default) };
        let number: i64 = text.parse().map_err(|_| Problem::field(name, "must be a whole number"))?;
        taskwheel_model::field::range(name, number, 1, i64::try_from(max).unwrap_or(i64::MAX))?;
        Ok(usize::try_from(number).unwrap_or(default))
    }

    /// Reads what is left.
    pub(crate) fn into<T: DeserializeOwned>(self) -> Result<T, Problem> {
        shape(serde_json::Value::Object(self.0))
    }
}

/// Reads a value; what does not fit is named.
pub(crate) fn shape<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(value)
        .map_err(|error| bad_field(&error.path().to_string(), &error.inner().to_string()))
}
