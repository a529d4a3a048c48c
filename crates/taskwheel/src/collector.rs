//! Sends spans to a collector of OpenTelemetry, as OTLP over HTTP in JSON.
//!
//! It is set up by the environment, as OpenTelemetry names things: `OTEL_EXPORTER_OTLP_ENDPOINT` (http://host:4318) switches it on, or
//! `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, which is used as it is; `OTEL_EXPORTER_OTLP_HEADERS` (`name=value,…`) and `OTEL_SERVICE_NAME` are
//! optional. Spans that cannot be sent are dropped, with a word in the log. A binary without the feature `opentelemetry` refuses to start so.

use anyhow::{Context, Result, ensure};
use percent_encoding::percent_decode_str;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use std::env;
use std::time::Duration;
use taskwheel_server::{Span, Spans};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Most spans in one call.
const BATCH_MAX: usize = 512;
/// How long spans are gathered for a call.
const EVERY: Duration = Duration::from_secs(1);
const CALL_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the last spans may take at the end.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(2);

/// Where spans go.
pub(crate) struct Collector {
    client: reqwest::Client,
    url: Url,
    service: String,
}

/// Spans on their way. They end when nobody can make any more.
pub(crate) struct Sending(JoinHandle<()>);

impl Collector {
    /// The one that the environment names.
    pub(crate) fn of_environment() -> Result<Option<Collector>> {
        let Some(url) = url(variable(ENDPOINT), variable(TRACES_ENDPOINT))? else { return Ok(None) };
        ensure!(cfg!(feature = "opentelemetry"), "spans cannot be sent: this binary was built without opentelemetry");
        let headers = headers(&variable(HEADERS).unwrap_or_default())?;
        let client = reqwest::Client::builder().timeout(CALL_TIME_MAX).default_headers(headers).build()?;
        let service = variable("OTEL_SERVICE_NAME").unwrap_or_else(|| "taskwheel".into());
        Ok(Some(Collector { client, url, service }))
    }

    /// Takes spans from now on.
    pub(crate) fn start(self) -> (Spans, Sending) {
        let (spans, taken) = Spans::collected();
        (spans, Sending(tokio::spawn(self.send(taken))))
    }

    async fn send(self, mut taken: mpsc::Receiver<Span>) {
        let mut batch = Vec::new();
        while taken.recv_many(&mut batch, BATCH_MAX).await > 0 {
            let gather = async {
                while batch.len() < BATCH_MAX
                    && let Some(span) = taken.recv().await
                {
                    batch.push(span);
                }
            };
            // Whether time is over, the call is full or no more will come: what there is goes.
            let _ = timeout(EVERY, gather).await;
            let call = self.client.post(self.url.clone()).json(&body(&self.service, &batch));
            if let Err(error) = call.send().await.and_then(reqwest::Response::error_for_status) {
                let error = format!("{:#}", anyhow::Error::from(error.without_url()));
                tracing::warn!(error, spans = batch.len(), "spans could not be sent, and are dropped");
            }
            batch.clear();
        }
    }
}

impl Sending {
    /// Waits until the last spans are sent, but not for long.
    pub(crate) async fn flush(self) {
        if timeout(FLUSH_TIME_MAX, self.0).await.is_err() {
            tracing::warn!("the last spans could not be sent in time, and are dropped");
        }
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// Where traces go: to what is named for them, or below what is named for everything.
fn url(endpoint: Option<String>, traces: Option<String>) -> Result<Option<Url>> {
    if let Some(traces) = traces {
        return web(TRACES_ENDPOINT, &traces).map(Some);
    }
    let Some(endpoint) = endpoint else { return Ok(None) };
    let mut url = web(ENDPOINT, &endpoint)?;
    if !url.path().trim_end_matches('/').ends_with("/v1/traces")
        && let Ok(mut segments) = url.path_segments_mut()
    {
        segments.pop_if_empty().extend(["v1", "traces"]);
    }
    Ok(Some(url))
}

/// It is not repeated: a secret may be in it.
fn web(name: &str, text: &str) -> Result<Url> {
    let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    Url::parse(text)
        .ok()
        .filter(is_web)
        .with_context(|| format!("{name} must be a URL like http://collector:4318: correct it, or unset it"))
}

/// Headers as `name=value,name=value`, with %20 and the like in values.
fn headers(text: &str) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
        let bad = || format!("{HEADERS} must be like name=value,name=value");
        let (name, value) = pair.split_once('=').with_context(bad)?;
        let value = percent_decode_str(value.trim()).decode_utf8().with_context(bad)?;
        let mut value = HeaderValue::from_str(&value).with_context(bad)?;
        value.set_sensitive(true);
        headers.insert(HeaderName::try_from(name.trim()).with_context(bad)?, value);
    }
    Ok(headers)
}

fn body(service: &str, spans: &[Span]) -> Value {
    let attribute = |name: &str, value: &str| json!({"key": name, "value": {"stringValue": value}});
    let nanoseconds = |ms: i64| format!("{}", i128::from(ms) * 1_000_000);
    let span = |span: &Span| {
        json!({
            "traceId": span.trace_id, "spanId": span.span_id, "parentSpanId": span.parent_id.as_deref().unwrap_or(""),
            "name": span.name, "kind": 1, "startTimeUnixNano": nanoseconds(span.from.0),
            "endTimeUnixNano": nanoseconds(span.to.0.max(span.from.0)),
            "attributes": span.attributes.iter().map(|(name, value)| attribute(name, value)).collect::<Vec<_>>(),
            "status": {"code": if span.is_error { 2 } else { 0 }},
        })
    };
    json!({"resourceSpans": [{
        "resource": {"attributes": [attribute("service.name", service)]},
        "scopeSpans": [{"scope": {"name": "taskwheel"}, "spans": spans.iter().map(span).collect::<Vec<_>>()}],
    }]})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url_of(endpoint: &str, traces: &str) -> Result<Option<String>, String> {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let url = url(given(endpoint), given(traces)).map_err(|error| error.to_string())?;
        Ok(url.map(|url| url.to_string()))
    }

    #[test]
    fn spans_go_below_the_endpoint_or_to_that_of_traces() {
        for (endpoint, traces, expected) in [
            ("", "", None),
            ("http://c:4318", "", Some("http://c:4318/v1/traces")),
            ("https://c/otlp/", "", Some("https://c/otlp/v1/traces")),
            ("http://c:4318/v1/traces", "", Some("http://c:4318/v1/traces")),
            ("http://c:4318/v1/traces/", "", Some("http://c:4318/v1/traces/")),
            ("http://c:4318", "http://d/own", Some("http://d/own")),
        ] {
            assert_eq!(url_of(endpoint, traces).unwrap().as_deref(), expected, "{endpoint} {traces}");
        }
    }

    #[test]
    fn an_endpoint_that_is_no_web_address_is_refused_by_its_name() {
        for bad in ["collector:4317", "grpc://collector:4317", "nonsense", "user:secret@host"] {
            let refused = url_of(bad, "").unwrap_err();
            assert!(refused.contains(ENDPOINT) && !refused.contains(bad), "{refused}");
            assert!(url_of("http://c", bad).unwrap_err().contains(TRACES_ENDPOINT));
        }
    }

    #[test]
    fn values_of_headers_are_percent_decoded() {
        let headers = headers("authorization=Basic%20YTpi%3D, x-team = a b,").unwrap();
        assert_eq!(
            (headers["authorization"].to_str().unwrap(), headers["x-team"].to_str().unwrap()),
            ("Basic YTpi=", "a b")
        );
        for bad in ["nothing", "a b=c", "a=%0A", "a=%FF"] {
            assert!(super::headers(bad).unwrap_err().to_string().contains(HEADERS), "{bad}");
        }
    }
}
