//! Bodies that nobody read. A call can be answered before its body has come: for want of a token, or because there is too much of it.
//!
//! What is left of a body would be taken for the next call on its connection. A small rest is read and dropped; otherwise the answer
//! says that the connection ends, so that the client does not send its next call into it.

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::header::{CONNECTION, EXPECT};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

/// Of a body that nobody wants, so much is read.
const REST_BYTES_MAX: usize = 64 * 1024;
/// How long that may take.
const REST_TIME_MAX: Duration = Duration::from_secs(1);

/// Where a body comes back to that was not read to its end.
#[derive(Clone, Default)]
pub(crate) struct Unread(Arc<Mutex<Option<Body>>>);

/// A body that comes back when it is dropped, unless it was read to its end.
struct Lent {
    body: Option<Body>,
    back: Unread,
}

impl Unread {
    /// Lends the body of a call, where it has one.
    pub(crate) fn of(request: &mut Request) -> Unread {
        let back = Unread::default();
        if !request.body().is_end_stream() {
            let body = Some(std::mem::take(request.body_mut()));
            *request.body_mut() = Body::new(Lent { body, back: back.clone() });
        }
        back
    }

    /// Clears the connection for the next call, or says in the answer that there will be none. A client that asked whether to send
    /// its body is not to be told so now.
    pub(crate) async fn clear(self, has_asked: bool, answer: &mut Response) {
        let Some(rest) = self.put(None) else { return };
        let may_read = !has_asked && rest.size_hint().lower() <= REST_BYTES_MAX as u64;
        let reading = Limited::new(rest, REST_BYTES_MAX).collect();
        if !(may_read && matches!(tokio::time::timeout(REST_TIME_MAX, reading).await, Ok(Ok(_)))) {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }

    fn put(&self, body: Option<Body>) -> Option<Body> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), body)
    }
}

/// Whether a client waits for a word before it sends the body.
pub(crate) fn has_asked(headers: &HeaderMap) -> bool {
    headers.contains_key(EXPECT)
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.body = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), HttpBody::size_hint)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.is_end_stream() {
            self.back.put(self.body.take());
        }
    }
}
