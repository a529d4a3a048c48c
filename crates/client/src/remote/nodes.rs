//! The nodes of a server, and which of them is called.
//!
//! All calls go to one node. When that one does not answer, the next one is tried, and stays the one to be called: so a node that
//! is gone costs one failed connection, not one for each call. A call goes round the nodes once; whoever wants it tried for
//! longer calls again. A call that may have been carried out is repeated only where that changes nothing; the next call
//! goes to the next node all the same.

use super::wire::Problem;
use crate::backend::HURRIED_ANSWER_TIME_MAX;
use crate::error::{Error, Result};
use crate::execution::Bell;
use crate::task::Submitted;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use taskwheel_model::TaskId;
use tokio::time::{Instant, sleep};

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
/// Shorter than a server keeps an idle connection, so that no call goes into one that is just being closed.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);
/// How much of an answer that nobody understands is shown.
const STRANGE_CHARS_MAX: usize = 200;

/// The nodes.
pub(super) struct Nodes {
    client: Client,
    urls: Vec<Url>,
    /// The one that answered last.
    current: AtomicUsize,
    /// Whose tasks the calls are about, where that is said.
    tenant: Option<String>,
    /// How long a call may take, on top of what it waits for.
    pub(super) answer_time_max: Duration,
}

/// When a call may be made again on another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// A second call changes nothing.
    Always,
    /// Only when the first surely changed nothing.
    IfUndone,
}

impl Nodes {
    pub(super) fn new(
        servers: &[String],
        token: Option<&str>,
        tenant: Option<String>,
        answer_time_max: Duration,
    ) -> Result<Nodes> {
        // Only where the application has chosen none.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let urls = servers.iter().map(|server| url(server)).collect::<Result<Vec<_>>>()?;
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_| Error::field("token", "has characters that no token has"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let client = Client::builder()
            .default_headers(headers)
            .connect_timeout(CONNECT_TIME_MAX)
            .pool_idle_timeout(IDLE_TIME_MAX)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("taskwheel-client/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| Error::Unexpected(error.to_string()))?;
        Ok(Nodes { client, urls, current: AtomicUsize::new(0), tenant, answer_time_max })
    }

    /// Whether there is another node to go on with.
    pub(super) fn are_several(&self) -> bool {
        self.urls.len() > 1
    }

    /// Leaves a node that does not answer for the next one.
    fn leave(&self, node: usize) -> usize {
        let next = (node + 1) % self.urls.len();
        // Another call may have found a node that answers meanwhile.
        let _ = self.current.compare_exchange(node, next, Relaxed, Relaxed);
        next
    }

    /// A call of a path below `/v1`, given by its segments, which may have any characters.
    pub(super) fn call(&self, method: Method, path: &[&str]) -> Call<'_> {
        Call {
            nodes: self,
            method,
            path: path.iter().map(ToString::to_string).collect(),
            query: None,
            headers: HeaderMap::new(),
            body: None,
            repeat: Repeat::Always,
            time_max: self.answer_time_max,
            worker: None,
        }
    }
}

/// A node's address. Who calls is said by a token alone: an address is shown in errors and logs.
fn url(server: &str) -> Result<Url> {
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    let url = Url::parse(server).ok().filter(is_web).ok_or_else(|| {
        Error::field("server", format!("{} is no address as in http://127.0.0.1:9222", shown(server)))
    })?;
    if !url.username().is_empty() || url.password().is_some() {
        let message = "must be without user and password; a token is given by itself, or with TASKWHEEL_TOKEN";
        return Err(Error::field("server", message));
    }
    Ok(url)
}

/// An address that nobody has looked at yet: a password may be in it.
pub(crate) fn shown(server: &str) -> &str {
    if server.contains('@') { "what has an @ in it" } else { server }
}

/// A call to be made.
pub(super) struct Call<'n> {
    nodes: &'n Nodes,
    method: Method,
    path: Vec<String>,
    query: Option<Vec<(String, String)>>,
    headers: HeaderMap,
    body: Option<Vec<u8>>,
    repeat: Repeat,
    time_max: Duration,
    /// The worker that has less time when it stops.
    worker: Option<&'n Bell>,
}

impl<'n> Call<'n> {
    pub(super) fn repeat(mut self, repeat: Repeat) -> Self {
        self.repeat = repeat;
        self
    }

    pub(super) fn time_max(mut self, time_max: Duration) -> Self {
        self.time_max = time_max;
        self
    }

    pub(super) fn of_worker(mut self, worker: &'n Bell) -> Self {
        self.worker = Some(worker);
        self
    }

    pub(super) fn header(mut self, name: &'static str, value: &str) -> Result<Self> {
        let value = HeaderValue::from_str(value).map_err(|_| Error::field(name, "must be visible ASCII"))?;
        self.headers.insert(HeaderName::from_bytes(name.as_bytes()).map_err(unexpected)?, value);
        Ok(self)
    }

    pub(super) fn query(mut self, query: &impl Serialize) -> Result<Self> {
        let serde_json::Value::Object(map) = serde_json::to_value(query).map_err(unexpected)? else {
            return Err(unexpected("a query that is no map"));
        };
        let text = |value: serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        self.query = Some(map.into_iter().map(|(name, value)| (name, text(value))).collect());
        Ok(self)
    }

    pub(super) fn body(mut self, body: &impl Serialize) -> Result<Self> {
        self.body = Some(serde_json::to_vec(body).map_err(unexpected)?);
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(self)
    }

    /// Makes the call and reads its answer.
    pub(super) async fn send<A: DeserializeOwned>(self) -> Result<A> {
        read(&self.answer().await?.1)
    }

    /// Makes a call that is answered with nothing.
    pub(super) async fn done(self) -> Result<()> {
        self.answer().await.map(drop)
    }

    /// Makes a call that is answered with a task, and asks no more than whether it is new.
    pub(super) async fn submitted(self) -> Result<Submitted> {
        #[derive(Deserialize)]
        struct Shown {
            id: TaskId,
        }
        let (status, body) = self.answer().await?;
        Ok(Submitted { id: read::<Shown>(&body)?.id, created: status == StatusCode::CREATED })
    }

    /// Goes round the nodes until one answers.
    async fn answer(self) -> Result<(StatusCode, Vec<u8>)> {
        let nodes = self.nodes;
        let mut current = nodes.current.load(Relaxed);
        let mut tried = 1;
        loop {
            let error = match self.answer_of(&nodes.urls[current]).await {
                Err(error) if error.is_transient() => error,
                answer => return answer,
            };
            let next = nodes.leave(current);
            let may_repeat = self.repeat == Repeat::Always || matches!(error, Error::Unavailable(_));
            if !may_repeat || tried >= nodes.urls.len() {
                return Err(error);
            }
            tracing::debug!(%error, next = %nodes.urls[next], "another node is called");
            current = next;
            tried += 1;
        }
    }

    async fn answer_of(&self, server: &Url) -> Result<(StatusCode, Vec<u8>)> {
        let mut url = server.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(&self.path);
        }
        let mut request = self.nodes.client.request(self.method.clone(), url).headers(self.headers.clone());
        if let Some(tenant) = &self.nodes.tenant {
            request = request.query(&[("tenant", tenant)]);
        }
        if let Some(query) = &self.query {
            request = request.query(query);
        }
        if let Some(body) = &self.body {
            request = request.body(body.clone());
        }
        let exchange = async {
            let response = request.send().await?;
            read_all(response).await
        };
        let begin = Instant::now();
        let exchanged = tokio::select! {
            biased;
            exchanged = exchange => exchanged,
            () = self.patience() => {
                return Err(Error::OutcomeUnknown(format!("{server} was silent for {:?}", begin.elapsed())));
            }
        };
        match exchanged {
            Ok((status, body)) if status.is_success() => Ok((status, body)),
            Ok((status, body)) => Err(Problem::read(status, &body)),
            Err(error) => Err(no_answer(server, &error)),
        }
    }

    /// Waits for as long as a node may take. Without another one there is nothing to hurry for.
    async fn patience(&self) {
        match self.worker.filter(|_| self.nodes.are_several()) {
            Some(worker) => worker.wait(self.time_max, HURRIED_ANSWER_TIME_MAX).await,
            None => sleep(self.time_max).await,
        }
    }
}

async fn read_all(response: Response) -> reqwest::Result<(StatusCode, Vec<u8>)> {
    Ok((response.status(), response.bytes().await?.to_vec()))
}

fn no_answer(server: &Url, error: &reqwest::Error) -> Error {
    // The innermost cause is the one that a person can do something about.
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let cause = cause.to_string();
    let text = match cause.strip_prefix("invalid peer certificate: ") {
        Some(cause) => format!(
            "the certificate of {server} is not trusted: {cause}; set SSL_CERT_FILE to the certificate of the authority \
             that signed it"
        ),
        None => format!("no server answers at {server}: {cause}"),
    };
    // A connection that was never made carried nothing there.
    if error.is_connect() { Error::Unavailable(text) } else { Error::OutcomeUnknown(text) }
}

/// Something as JSON.
pub(super) fn json(value: &impl Serialize) -> Result<Box<RawValue>> {
    to_raw_value(value).map_err(unexpected)
}

fn read<A: DeserializeOwned>(body: &[u8]) -> Result<A> {
    serde_json::from_slice(body).map_err(|error| {
        let shown: String = String::from_utf8_lossy(body).chars().take(STRANGE_CHARS_MAX).collect();
        unexpected(format!("the server answers what this version does not understand: {error} in {shown}"))
    })
}

fn unexpected(error: impl ToString) -> Error {
    Error::Unexpected(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_is_none_is_refused_by_name() {
        for bad in ["", "localhost:9222", "ftp://host", "http://"] {
            let error = Nodes::new(&[bad.into()], None, None, Duration::from_secs(1)).err();
            assert!(matches!(&error, Some(Error::Invalid(fields)) if fields[0].field == "server"), "{bad}: {error:?}");
        }
    }

    #[test]
    fn an_address_with_a_password_is_refused_and_shown_nowhere() {
        for bad in ["http://me:sesame@host", "https://sesame@host:9222/base", "http://me:sesame@", "me:sesame@host"] {
            let builder = crate::Client::builder().server(bad);
            let shown = format!("{builder:?}");
            let Err(error) = builder.build() else { panic!("{bad} is taken") };
            assert!(matches!(&error, Error::Invalid(fields) if fields[0].field == "server"), "{bad}: {error:?}");
            let told = format!("{shown} {error} {error:?}");
            assert!(!told.contains("sesame"), "{told}");
        }
    }
}
