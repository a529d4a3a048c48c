//! The routes, each with what a caller needs to take it.
//!
//! There is one way to add a route, and it asks for the scope: one without does not compile. What a call may name in its query comes
//! from the document, so that nothing misspelt is passed over.

use crate::App;
use crate::access::Caller;
use crate::problem::Problem;
use crate::schedules::centre;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use std::collections::BTreeSet;
use std::sync::Arc;
use taskwheel_model::Scope;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::ParameterIn;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt};

/// The routes of the API. One can only be added with its scope.
pub(crate) struct Routes(OpenApiRouter<Arc<App>>);

impl Routes {
    pub(crate) fn new(document: utoipa::openapi::OpenApi) -> Routes {
        Routes(OpenApiRouter::with_openapi(document))
    }

    /// Adds routes that whoever may do this may call, and says so in the document.
    pub(crate) fn add(self, scope: Scope, routes: UtoipaMethodRouter<Arc<App>>) -> Routes {
        let (schemas, mut paths, router) = routes;
        if scope != Scope::Open {
            paths.paths.iter_mut().for_each(|(path, item)| document_refusals(path, item));
        }
        let names = Arc::new(query_names(&paths));
        let allow = middleware::from_fn(move |request, next| allow(scope, names.clone(), request, next));
        Routes(self.0.routes((schemas, paths, router).layer(allow)))
    }

    pub(crate) fn into_parts(self) -> (axum::Router<Arc<App>>, utoipa::openapi::OpenApi) {
        self.0.split_for_parts()
    }
}

/// Every call but the open ones can be refused for want of a token, or by its role.
fn document_refusals(path: &str, item: &mut utoipa::openapi::PathItem) {
    use utoipa::openapi::{ContentBuilder, Ref, ResponseBuilder};
    let (shape, media) = match path.starts_with(centre::PATH) {
        true => ("CentreAnswer", "application/json"),
        false => ("Problem", "application/problem+json"),
    };
    let methods = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
    for operation in methods.into_iter().flatten() {
        for (status, description) in [
            ("401", "no token, or one that is worth nothing"),
            ("403", "the token's role does not allow it"),
            ("429", "too many calls"),
        ] {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(shape))).build();
            let response = ResponseBuilder::new().description(description).content(media, content).build();
            operation.responses.responses.insert(status.into(), response.into());
        }
    }
}

/// What the queries of some routes may name: what the document says, and the tenant.
fn query_names(paths: &utoipa::openapi::Paths) -> BTreeSet<String> {
    let operations =
        paths.paths.values().flat_map(|path| [&path.get, &path.put, &path.post, &path.delete, &path.patch]);
    let parameters = operations.flatten().flat_map(|operation| operation.parameters.iter().flatten());
    let queries = parameters.filter_map(|parameter| match parameter {
        RefOr::T(parameter) if parameter.parameter_in == ParameterIn::Query => Some(parameter.name.clone()),
        _ => None,
    });
    queries.chain(["tenant".to_owned()]).collect()
}

async fn allow(scope: Scope, names: Arc<BTreeSet<String>>, request: Request, next: Next) -> Response {
    if scope == Scope::Open {
        return next.run(request).await;
    }
    let query = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
    if let Some((name, _)) = query.into_iter().find(|(name, _)| !names.contains(&**name)) {
        return Problem::field(&name, "is not known to this call").into_response();
    }
    match request.extensions().get::<Caller>() {
        None => Problem::unauthorized().into_response(),
        Some(caller) if !caller.may(scope) => {
            Problem::forbidden(format!("the role {} does not allow this call", caller.role())).into_response()
        }
        Some(_) => next.run(request).await,
    }
}
