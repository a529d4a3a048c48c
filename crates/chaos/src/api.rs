//! Calls to the servers, as any client makes them: to one of several, with a token, and never for ever.

use crate::history::Fact;
use anyhow::Result;
use rand::RngExt;
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// Longer than a call takes that is not lost, and so short that a server which does not answer costs no lease: another is asked.
const CALL_MAX: Duration = Duration::from_secs(2);

/// A client of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    client: Client,
    servers: Vec<String>,
    token: String,
}

impl Api {
    pub(crate) fn new(servers: Vec<String>, token: String) -> Result<Api> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Api { client: Client::builder().timeout(CALL_MAX).build()?, servers, token })
    }

    /// What any of the servers answers. An error of the server is as good as no answer.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(StatusCode, Value)> {
        self.call_once(method, path, body, None).await
    }

    /// The same with an idempotency key.
    pub(crate) async fn call_once(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Result<(StatusCode, Value)> {
        let server = &self.servers[rand::rng().random_range(0..self.servers.len())];
        let mut request = self.client.request(method, format!("{server}{path}")).bearer_auth(&self.token);
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        let response = request.send().await?;
        let status = response.status();
        let text = response.text().await?;
        let answer = serde_json::from_str(&text).unwrap_or(Value::String(text));
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(Trouble { status, answer }.into());
        }
        Ok((status, answer))
    }
}

/// What a server says that could not do what it was asked.
#[derive(Debug)]
struct Trouble {
    status: StatusCode,
    answer: Value,
}

impl fmt::Display for Trouble {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.status, self.answer)
    }
}

impl std::error::Error for Trouble {}

/// What is noted of a call that did not get the answer it should, with the code of the problem where a server told one.
pub(crate) fn unanswered(call: &str, came: Result<(StatusCode, Value)>) -> Fact {
    let answer = match came {
        Ok((_, answer)) => Some(answer),
        Err(error) => error.downcast::<Trouble>().ok().map(|trouble| trouble.answer),
    };
    let code = answer.and_then(|answer| answer["code"].as_str().map(str::to_owned));
    Fact::Unanswered { call: call.to_owned(), code }
}
