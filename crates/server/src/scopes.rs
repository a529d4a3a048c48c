//! The routes, each with what a caller needs to take it.
//!
//! There is one way to add a route, and it asks for the scope. A test sees to it that there is no other way: see `crates/tidy`. What a
//! call may name in its query comes from the document, so that nothing misspelt is passed over.

use crate::App;
use crate::access::Caller;
use crate::problem::Problem;
use crate::schedules::centre;
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use taskwheel_model::Scope;
use utoipa::openapi::RefOr;
use utoipa::openapi::path::ParameterIn;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt};

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

/// The routes of the API. One is added with its scope.
pub(crate) struct Routes(OpenApiRouter<Arc<App>>);

impl Routes {
    pub(crate) fn new(document: utoipa::openapi::OpenApi) -> Routes {
        Routes(OpenApiRouter::with_openapi(document))
    }

    /// Adds routes that whoever may do this may call, and says so in the document.
    pub(crate) fn add(self, scope: Scope, routes: UtoipaMethodRouter<Arc<App>>) -> Routes {
        let (schemas, mut paths, router) = routes;
        paths.paths.values_mut().for_each(document_problems);
        for (path, item) in &mut paths.paths {
            if scope == Scope::Open {
                operations(item).for_each(|operation| operation.security = Some(Vec::new()));
            } else {
                document_refusals(path, item);
            }
        }
        let names = Arc::new(query_names(&paths));
        let allow = middleware::from_fn(move |request, next| allow(scope, names.clone(), request, next));
        Routes(self.0.routes((schemas, paths, router).layer(allow)))
    }

    pub(crate) fn into_parts(self) -> (axum::Router<Arc<App>>, utoipa::openapi::OpenApi) {
        self.0.split_for_parts()
    }
}

fn operations(item: &mut utoipa::openapi::PathItem) -> impl Iterator<Item = &mut utoipa::openapi::path::Operation> {
    let methods = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
    methods.into_iter().filter_map(Option::as_mut)
}

/// Problems have a media type of their own, which the routes need not say each time.
fn document_problems(item: &mut utoipa::openapi::PathItem) {
    let responses = operations(item).flat_map(|operation| operation.responses.responses.values_mut());
    for response in responses {
        let RefOr::T(response) = response else { continue };
        let is_problem = |content: &RefOr<utoipa::openapi::Content>| match content {
            RefOr::T(content) => {
                matches!(&content.schema, Some(RefOr::Ref(shape)) if shape.ref_location.ends_with("/Problem"))
            }
            RefOr::Ref(_) => false,
        };
        if response.content.get(JSON).is_some_and(is_problem)
            && let Some(content) = response.content.shift_remove(JSON)
        {
            response.content.insert(PROBLEM.to_owned(), content);
        }
    }
}

/// Every call but the open ones can be refused for want of a token, or by its role.
fn document_refusals(path: &str, item: &mut utoipa::openapi::PathItem) {
    use utoipa::openapi::{ContentBuilder, Ref, ResponseBuilder};
    let (shape, media) = match path.starts_with(centre::PATH) {
        true => ("CentreAnswer", JSON),
        false => ("Problem", PROBLEM),
    };
    for operation in operations(item) {
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

/// The methods of each route.
pub(crate) fn methods(paths: &utoipa::openapi::Paths) -> HashMap<String, String> {
    let of = |item: &utoipa::openapi::PathItem| {
        let operations = [
            ("GET, HEAD", &item.get),
            ("PUT", &item.put),
            ("POST", &item.post),
            ("DELETE", &item.delete),
            ("PATCH", &item.patch),
        ];
        operations.iter().filter(|(_, taken)| taken.is_some()).map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
    };
    paths.paths.iter().map(|(path, item)| (path.clone(), of(item))).collect()
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
        let known = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        return Problem::field(&name, format!("is not known to this call, expected one of {known}")).into_response();
    }
    match request.extensions().get::<Caller>() {
        None => Problem::unauthorized().into_response(),
        Some(caller) if !caller.may(scope) => {
            Problem::forbidden(format!("the role {} does not allow this call", caller.role())).into_response()
        }
        Some(_) => next.run(request).await,
    }
}
