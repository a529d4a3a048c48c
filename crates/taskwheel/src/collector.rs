//! Sends spans to a collector of OpenTelemetry, as OTLP over HTTP in JSON.
//!
//! It is set up by the environment, as OpenTelemetry names things: `OTEL_EXPORTER_OTLP_ENDPOINT` (http://host:4318) switches it on,
//! `OTEL_EXPORTER_OTLP_HEADERS` (`name=value,…`) and `OTEL_SERVICE_NAME` are optional. Spans that cannot be sent are dropped, with a
//! word in the log.

use anyhow::{Context, Result};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use std::env;
use std::time::Duration;
use taskwheel_server::{Span, Spans};
use tokio::sync::mpsc;

/// Most spans in one call.
const BATCH_MAX: usize = 512;
/// How long spans are gathered for a call.
const EVERY: Duration = Duration::from_secs(1);
const CALL_TIME_MAX: Duration = Duration::from_secs(10);

/// Spans for the collector that the environment names; none without one.
pub(crate) fn spans() -> Result<Spans> {
    let Some(endpoint) = env::var("OTEL_EXPORTER_OTLP_ENDPOINT").ok().filter(|url| !url.is_empty()) else {
        return Ok(Spans::default());
    };
    let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
    let client = reqwest::Client::builder().timeout(CALL_TIME_MAX).default_headers(headers()?).build()?;
    let service = env::var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "taskwheel".into());
    let (spans, taken) = Spans::collected();
    tokio::spawn(send(taken, client, url, service));
    Ok(spans)
}

fn headers() -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for pair in env::var("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default().split(',').filter(|pair| !pair.is_empty()) {
        let bad = "OTEL_EXPORTER_OTLP_HEADERS must be like name=value,name=value";
        let (name, value) = pair.split_once('=').context(bad)?;
        let mut value = HeaderValue::from_str(value.trim()).context(bad)?;
        value.set_sensitive(true);
        headers.insert(HeaderName::try_from(name.trim()).context(bad)?, value);
    }
    Ok(headers)
}

async fn send(mut taken: mpsc::Receiver<Span>, client: reqwest::Client, url: String, service: String) {
    let mut batch = Vec::new();
    while taken.recv_many(&mut batch, BATCH_MAX).await > 0 {
        if batch.len() < BATCH_MAX {
            tokio::time::sleep(EVERY).await;
            while batch.len() < BATCH_MAX
                && let Ok(span) = taken.try_recv()
            {
                batch.push(span);
            }
        }
        let body = body(&service, &batch);
        let sent = client.post(&url).json(&body).send().await.and_then(reqwest::Response::error_for_status);
        if let Err(error) = sent {
            tracing::warn!(%error, spans = batch.len(), "spans could not be sent, and are dropped");
        }
        batch.clear();
    }
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
