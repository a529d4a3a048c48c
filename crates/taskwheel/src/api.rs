//! The HTTP client: one way to call the server, and errors that say what to do next.

use crate::tls;
use anyhow::{Context, Result};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::{Client, Method, RequestBuilder, StatusCode, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::env;
use std::error::Error;
use std::path::Path;
use std::time::Duration;
use thiserror::Error;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Shorter than a server keeps an idle connection, so that no call goes into one that is just being closed.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);
/// How much of an answer that nobody understands is shown.
const STRANGE_CHARS_MAX: usize = 200;

/// A server to call.
pub(crate) struct Api {
    client: Client,
    server: Url,
    tenant: Option<String>,
}

/// The answer to a call that went well: JSON as the server wrote it.
pub(crate) struct Answer {
    pub(crate) json: String,
    /// Whether something new was made.
    pub(crate) is_created: bool,
}

/// Why a call failed.
#[derive(Debug, Error)]
pub(crate) enum ApiError {
    /// Nothing came back.
    #[error("no server answers at {server}: {cause}")]
    Unreachable { server: String, cause: String },
    /// Who answers is not known to be the server.
    #[error("the certificate of {server} is not trusted: {cause}")]
    Untrusted { server: String, cause: String },
    /// The server says no.
    #[error("{message}")]
    Refused {
        status: StatusCode,
        message: String,
        /// The command that shows what it is about.
        seen_by: Option<String>,
    },
    /// Something else than Taskwheel answers, or another version of it.
    #[error("{server} answers what this command does not understand: {what}")]
    Strange { server: String, what: String },
}

/// A refusal as `application/problem+json`.
#[derive(Deserialize)]
struct Problem {
    title: String,
    detail: Option<String>,
    #[serde(default)]
    errors: Vec<BadField>,
}

#[derive(Deserialize)]
struct BadField {
    field: String,
    message: String,
}

impl Api {
    /// A client of a server, with the token of the environment.
    pub(crate) fn new(server: Url, tenant: Option<String>) -> Result<Api> {
        if let Some(file) = env::var_os("SSL_CERT_FILE").filter(|_| server.scheme() == "https") {
            // Without this, nothing would be trusted, and nobody would know why.
            tls::check_certificate(Path::new(&file)).context("SSL_CERT_FILE")?;
        }
        let mut headers = HeaderMap::new();
        if let Some(token) = env::var("TASKWHEEL_TOKEN").ok().filter(|token| !token.is_empty()) {
            let mut value = HeaderValue::try_from(format!("Bearer {token}"))
                .context("TASKWHEEL_TOKEN has characters that no token has")?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let client = Client::builder()
            .default_headers(headers)
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(IDLE_TIME_MAX)
            .user_agent(concat!("taskwheel/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Api { client, server, tenant })
    }

    /// A request for a path below `/v1`, given by its segments, which may have any characters.
    pub(crate) fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.server.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(path);
        }
        if let Some(tenant) = &self.tenant {
            url.query_pairs_mut().append_pair("tenant", tenant);
        }
        self.client.request(method, url)
    }

    /// Sends a request and waits for its answer.
    pub(crate) async fn answer(&self, request: RequestBuilder) -> Result<Answer, ApiError> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let (status, seen_by) = (response.status(), seen_by(response.url()));
        let json = response.text().await.map_err(|error| self.unreachable(&error))?;
        if status.is_success() {
            return Ok(Answer { json, is_created: status == StatusCode::CREATED });
        }
        match serde_json::from_str::<Problem>(&json) {
            Ok(problem) => Err(ApiError::Refused { status, message: problem.message(), seen_by }),
            // A proxy in between has no problem+json, but its status says the same.
            Err(_) if status.is_server_error() => {
                Err(ApiError::Refused { status, message: status.to_string(), seen_by })
            }
            Err(_) => Err(self.strange(&format!("{status} {json}"))),
        }
    }

    /// Sends a request and reads its answer.
    pub(crate) async fn read<A: DeserializeOwned>(&self, request: RequestBuilder) -> Result<A, ApiError> {
        let answer = self.answer(request).await?;
        self.decode(&answer)
    }

    /// Reads an answer. Fields that it does not ask for are ignored.
    pub(crate) fn decode<A: DeserializeOwned>(&self, answer: &Answer) -> Result<A, ApiError> {
        serde_json::from_str(&answer.json).map_err(|error| self.strange(&format!("{error} in {}", answer.json)))
    }

    /// The error of a call that was not answered in time.
    pub(crate) fn silent(&self, waited: Duration) -> ApiError {
        ApiError::Unreachable { server: self.name(), cause: format!("it was silent for {waited:?}") }
    }

    fn unreachable(&self, error: &reqwest::Error) -> ApiError {
        // The innermost cause is the one that a person can do something about.
        let mut cause: &dyn Error = error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        let (server, cause) = (self.name(), cause.to_string());
        match cause.strip_prefix("invalid peer certificate: ") {
            Some(cause) => ApiError::Untrusted { server, cause: cause.to_owned() },
            // The first bytes of an alert where those of an answer were to come.
            None if cause == "invalid HTTP version parsed" => self.strange("is it one with TLS, at https://?"),
            None if cause.ends_with("InvalidContentType") => self.strange("is it one without TLS, at http://?"),
            None => ApiError::Unreachable { server, cause },
        }
    }

    /// The error of an answer that makes no sense.
    pub(crate) fn strange(&self, what: &str) -> ApiError {
        ApiError::Strange { server: self.name(), what: what.chars().take(STRANGE_CHARS_MAX).collect() }
    }

    fn name(&self) -> String {
        self.server.as_str().trim_end_matches('/').to_owned()
    }
}

/// The command that shows what a call is about: that of `/v1/tasks/7/cancel` is `taskwheel tasks show 7`.
fn seen_by(url: &Url) -> Option<String> {
    let mut segments = url.path_segments()?.skip_while(|segment| *segment != "v1").skip(1);
    let (noun, id) = (segments.next()?, segments.next()?);
    let is_id = id.bytes().all(|byte| byte.is_ascii_digit());
    (matches!(noun, "tasks" | "schedules" | "runs") && is_id).then(|| format!("taskwheel {noun} show {id}"))
}

impl Problem {
    /// The refusal in one line, with the fields that it is about.
    fn message(self) -> String {
        let fields: Vec<String> =
            self.errors.iter().map(|BadField { field, message }| format!("{field}: {message}")).collect();
        match (fields.is_empty(), self.detail) {
            (false, _) => fields.join("; "),
            (true, Some(detail)) => detail,
            (true, None) => self.title,
        }
    }
}

impl ApiError {
    pub(crate) fn is_not_found(&self) -> bool {
        matches!(self, ApiError::Refused { status: StatusCode::NOT_FOUND, .. })
    }

    /// Whether the same call may go well a little later.
    pub(crate) fn is_passing(&self) -> bool {
        match self {
            ApiError::Unreachable { .. } | ApiError::Untrusted { .. } => true,
            ApiError::Refused { status, .. } => {
                status.is_server_error()
                    || matches!(*status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
            }
            ApiError::Strange { .. } => false,
        }
    }

    /// What to do next.
    pub(crate) fn advice(&self) -> Cow<'static, str> {
        match self {
            ApiError::Unreachable { .. } => "start one with `taskwheel serve`, or name it with --server".into(),
            ApiError::Untrusted { cause, .. } if cause.contains("CaUsedAsEndEntity") => {
                "the server shows the certificate of an authority: let that authority sign one for the server, and give it to \
                 --tls-cert; docs/security.md has the commands"
                    .into()
            }
            ApiError::Untrusted { .. } => {
                "set SSL_CERT_FILE to the certificate of the authority that signed the server's".into()
            }
            ApiError::Strange { .. } => "look whether --server names a Taskwheel server of this version".into(),
            ApiError::Refused { status: StatusCode::CONFLICT, seen_by: Some(command), .. } => {
                format!("see how it stands with `{command}`").into()
            }
            ApiError::Refused { status, .. } => ApiError::advice_by(*status).into(),
        }
    }

    fn advice_by(status: StatusCode) -> &'static str {
        match status {
            StatusCode::UNAUTHORIZED => "set TASKWHEEL_TOKEN to a token made by `taskwheel tokens create`",
            StatusCode::FORBIDDEN => "set TASKWHEEL_TOKEN to a token whose role allows this",
            StatusCode::NOT_FOUND => {
                "look whether it is spelled right, and whether --server names the server that has it"
            }
            StatusCode::CONFLICT => "look at what is there already",
            StatusCode::PAYLOAD_TOO_LARGE => "send less: put large data elsewhere, and where it is into the payload",
            status if status.is_server_error() => "try again in a moment; the server's log says more",
            StatusCode::TOO_MANY_REQUESTS => "try again in a moment",
            _ => "correct this and try again; --help says what each flag takes",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_its_fields() {
        let problem = r#"{"type":"about:blank","title":"Unprocessable","status":422,"detail":"2 fields","code":"invalid_field",
            "errors":[{"field":"priority","message":"must be between 1 and 9"},{"field":"key","message":"too long"}]}"#;
        let problem: Problem = serde_json::from_str(problem).unwrap();
        assert_eq!(problem.message(), "priority: must be between 1 and 9; key: too long");
    }

    #[test]
    fn a_conflict_names_the_command_that_shows_it() {
        let seen = |path: &str| seen_by(&Url::parse("http://host/prefix/").unwrap().join(path).unwrap());
        assert_eq!(seen("v1/tasks/7/cancel").as_deref(), Some("taskwheel tasks show 7"));
        assert_eq!(seen("v1/schedules/5/run?tenant=a").as_deref(), Some("taskwheel schedules show 5"));
        assert_eq!(seen("v1/tasks/bulk"), None);
        assert_eq!(seen("v1/tasks"), None);
    }

    #[test]
    fn a_path_keeps_odd_characters_in_their_segment() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let api = Api::new(Url::parse("http://host/prefix/").unwrap(), None).unwrap();
        let request = api.request(Method::GET, &["types", "a/b?c"]).build().unwrap();
        assert_eq!(request.url().as_str(), "http://host/prefix/v1/types/a%2Fb%3Fc");
    }
}
