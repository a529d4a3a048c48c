//! Errors, in the one shape of `application/problem+json`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use taskwheel_model::FieldError;
use taskwheel_store::StoreError;
use utoipa::ToSchema;

/// Why a call was refused.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Problem {
    /// Always `about:blank`: the code says what it is.
    r#type: &'static str,
    title: &'static str,
    status: u16,
    /// What is wrong and what to do, in words for a person.
    detail: String,
    /// A stable word for programs.
    code: &'static str,
    /// Every field that is wrong.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<BadField>,
}

/// A field that was refused.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct BadField {
    /// Which item of a batch, counted from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) index: Option<usize>,
    pub(crate) field: String,
    pub(crate) message: String,
}

impl BadField {
    pub(crate) fn of(index: Option<usize>, error: FieldError) -> BadField {
        BadField { index, field: error.field, message: error.message }
    }
}

/// The answer to a call, or why it was refused.
pub(crate) type Answer<T> = Result<T, Problem>;

impl Problem {
    fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Problem {
        Problem {
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.into(),
            code,
            errors: Vec::new(),
        }
    }

    pub(crate) fn malformed(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, "malformed", detail)
    }

    pub(crate) fn fields(errors: Vec<BadField>) -> Problem {
        let word = |error: &BadField| match error.index {
            Some(index) => format!("item {index}, {}: {}", error.field, error.message),
            None => format!("{}: {}", error.field, error.message),
        };
        let detail = errors.iter().map(word).collect::<Vec<_>>().join("; ");
        Problem { errors, ..Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_field", detail) }
    }

    pub(crate) fn field(field: &str, message: impl Into<String>) -> Problem {
        Problem::fields(vec![BadField { index: None, field: field.to_owned(), message: message.into() }])
    }

    /// What is wrong, in words for a person.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Every field that is wrong.
    pub(crate) fn errors(&self) -> &[BadField] {
        &self.errors
    }

    pub(crate) fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    pub(crate) fn nowhere() -> Problem {
        Problem::not_found("there is nothing at this address; /openapi.json says what there is")
    }

    pub(crate) fn method_not_allowed(allowed: &str) -> Problem {
        let detail = format!("this address does not take that method; it takes {allowed}");
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
    }

    pub(crate) fn conflict(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, "conflict", detail)
    }

    pub(crate) fn too_large(bytes_max: usize) -> Problem {
        let detail = format!("the body may have at most {bytes_max} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", detail)
    }

    pub(crate) fn too_slow() -> Problem {
        Problem::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body did not arrive in time")
    }

    pub(crate) fn busy() -> Problem {
        Problem::too_often("too many calls are under way; come again in a second")
    }

    pub(crate) fn too_often(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", detail)
    }

    pub(crate) fn unauthorized() -> Problem {
        let detail = "give a valid token in the header: Authorization: Bearer TOKEN";
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail)
    }

    pub(crate) fn forbidden(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::FORBIDDEN, "forbidden", detail)
    }

    pub(crate) fn unready(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
    }

    /// Whether the server cannot answer for now.
    pub(crate) fn is_unready(&self) -> bool {
        self.status == StatusCode::SERVICE_UNAVAILABLE.as_u16()
    }
}

impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Problem {
        Problem::fields(vec![BadField::of(None, error)])
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        match error {
            StoreError::Invalid { errors, .. } => {
                Problem::fields(errors.into_iter().map(|error| BadField::of(None, error)).collect())
            }
            StoreError::Unavailable(_) => {
                tracing::warn!(%error, "a call was turned away");
                Problem::unready(
                    "the database cannot be used for now, the log says why; nothing was changed; come again in a second",
                )
            }
            StoreError::OutcomeUnknown(_) => {
                tracing::warn!(%error, "a call was answered without knowing its outcome");
                let detail = "the connection to the database broke during the commit: it may have happened or not";
                Problem::new(StatusCode::SERVICE_UNAVAILABLE, "outcome_unknown", detail)
            }
            StoreError::Schema(_) | StoreError::Configuration(_) | StoreError::Database(_) => {
                tracing::error!(%error, "a call failed");
                let detail = "something is wrong with the server; its log says what";
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(&self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // For who answers the same in another shape.
        response.extensions_mut().insert(self);
        response
    }
}
