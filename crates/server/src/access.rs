//! Who calls, and what they may.
//!
//! ```text
//!  request --> authenticate (401) --> the route's own scope (403) --> handler, which asks the caller for the tenant
//! ```
//!
//! The database is the authority on tokens; what it said is believed for a second, so that a token that was revoked anywhere is
//! worth nothing two seconds later. While no token has ever existed everybody is let in as an admin, and the server listens on
//! this machine alone. A route declares its scope when it is added, or it cannot be added: see [`Routes`].

use crate::App;
use crate::problem::{Answer, Problem};
use axum::extract::{FromRequestParts, Request};
use axum::http::HeaderName;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use taskwheel_model::{NewTask, Role, Scope, field, limits};
use taskwheel_store::Store;
use taskwheel_store::access::{Actor, Credential, Secret, Token};
use utoipa::openapi::RefOr;
use utoipa::openapi::path::ParameterIn;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter, UtoipaMethodRouterExt};

/// How long an answer of the database about a token is believed.
const FRESH: Duration = Duration::from_secs(1);
/// How often the last use of a token is written down.
const USED_EVERY: Duration = Duration::from_secs(60);
/// Tokens that are remembered; when there are more, all are forgotten.
const REMEMBERED_MAX: usize = 10_000;

/// Whoever makes a call.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// None while there are no tokens.
    token: Option<Arc<Token>>,
    /// The tenant that the call names, by `?tenant=`.
    asked: Option<String>,
}

impl Caller {
    fn role(&self) -> Role {
        self.token.as_ref().map_or(Role::Admin, |token| token.role)
    }

    /// Whose tasks it sees and changes; `None` is everybody's.
    pub(crate) fn tenant(&self) -> Option<String> {
        let own = match &self.token {
            None => Some(NewTask::TENANT_DEFAULT.to_owned()),
            Some(token) => token.tenant.clone(),
        };
        self.asked.clone().or(own)
    }

    /// Whose workers it speaks for; `None` is those that are nobody's in particular.
    pub(crate) fn owner(&self) -> Option<String> {
        self.token.as_ref().and_then(|token| token.tenant.clone())
    }

    /// Whose tasks it submits.
    pub(crate) fn submits_for(&self) -> String {
        self.tenant().unwrap_or_else(|| NewTask::TENANT_DEFAULT.to_owned())
    }

    pub(crate) fn token_id(&self) -> Option<i64> {
        self.token.as_ref().map(|token| token.id)
    }

    /// The token whose tasks alone it may read.
    pub(crate) fn reads_only(&self) -> Option<i64> {
        self.token_id().filter(|_| self.role() == Role::Submitter)
    }

    /// Whether it may claim tasks of these types and categories.
    pub(crate) fn may_claim(&self, types: &[String], categories: &[String]) -> Answer<()> {
        let Some(own) = self.token.as_ref().and_then(|token| token.types.as_ref()) else { return Ok(()) };
        if !categories.is_empty() {
            return Err(Problem::forbidden("a token for some types alone cannot claim by category"));
        }
        match types.iter().find(|one| !own.contains(one)) {
            Some(foreign) => Err(Problem::forbidden(format!("this token is not for the type {foreign}"))),
            None => Ok(()),
        }
    }

    /// In whose name it changes something.
    pub(crate) fn actor(&self) -> Actor {
        let name = self.token.as_ref().map_or("no token".into(), |token| token.role.to_string());
        Actor { token_id: self.token_id(), name }
    }

    /// Whether it may know how the server as a whole is doing: for all tenants, or of the one that exists without being named.
    pub(crate) fn looks_after_the_server(&self) -> bool {
        let own = self.token.as_ref().and_then(|token| token.tenant.as_deref());
        own.is_none_or(|tenant| tenant == NewTask::TENANT_DEFAULT)
    }

    /// Whether its role allows a call. What is global is not for an admin of one tenant.
    fn may(&self, scope: Scope) -> bool {
        let is_everybodys = self.token.as_ref().is_none_or(|token| token.tenant.is_none());
        self.role().may(scope) && (scope != Scope::Administer || is_everybodys)
    }

    /// Takes the tenant that a call names: any for who is for all tenants, else the own.
    fn asking_for(mut self, tenant: Option<String>) -> Answer<Caller> {
        let Some(tenant) = tenant else { return Ok(self) };
        field::name("tenant", &tenant, limits::NAME_CHARS_MAX)?;
        match self.token.as_ref().and_then(|token| token.tenant.as_ref()) {
            Some(own) if *own != tenant => Err(Problem::forbidden("this token is for another tenant")),
            _ => {
                self.asked = Some(tenant);
                Ok(self)
            }
        }
    }

    /// The same for a tenant in the body of a call.
    pub(crate) fn for_tenant(self, tenant: Option<String>) -> Answer<Caller> {
        self.asking_for(tenant)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Caller, Problem> {
        parts.extensions.get().cloned().ok_or_else(Problem::unauthorized)
    }
}

/// What is known about tokens.
#[derive(Default)]
pub(crate) struct Gate {
    known: Mutex<HashMap<i64, Known>>,
    /// There has been a token: from then on one is needed, for ever.
    is_closed: AtomicBool,
    looked_at: Mutex<Option<Instant>>,
}

struct Known {
    credential: Arc<Credential>,
    token: Arc<Token>,
    read_at: Instant,
    used_at: Option<Instant>,
    allowance: Allowance,
}

impl Gate {
    /// Who shows this header. A token that is wrong, revoked or expired is the same as none.
    async fn caller(&self, app: &Arc<App>, header: Option<&str>) -> Answer<Caller> {
        let Some(header) = header else {
            return if self.is_open(app.engine.store()).await? {
                Ok(Caller { token: None, asked: None })
            } else {
                Err(Problem::unauthorized())
            };
        };
        let shown = header.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let (id, secret) =
            shown.and_then(|(_, token)| Secret::of_token(token.trim())).ok_or_else(Problem::unauthorized)?;
        let credential = self.credential(app.engine.store(), id).await?;
        let valid = credential.filter(|one| secret.has_hash(&one.secret_hash) && one.is_valid);
        if valid.is_none() {
            return Err(Problem::unauthorized());
        }
        let (token, is_to_be_noted) = self.let_in(id)?;
        if is_to_be_noted {
            let app = app.clone();
            tokio::spawn(async move {
                if let Err(error) = app.engine.store().token_used(id).await {
                    tracing::warn!(%error, token_id = id, "the last use of a token was not written down");
                }
            });
        }
        Ok(Caller { token: Some(token), asked: None })
    }

    /// Whether no token has ever existed.
    async fn is_open(&self, store: &dyn Store) -> Answer<bool> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let known = {
            let mut looked_at = self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
            let known = looked_at.is_some();
            if looked_at.is_some_and(|at| at.elapsed() < FRESH) {
                return Ok(true);
            }
            // One call looks, and the others go by what was known.
            if known {
                *looked_at = Some(Instant::now());
            }
            known
        };
        let at = Instant::now();
        if store.has_tokens().await? {
            self.is_closed.store(true, Ordering::Relaxed);
            return Ok(false);
        }
        if !known {
            *self.looked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
        }
        Ok(true)
    }

    /// Waits until a caller's token is worth nothing any more. While the database does not answer nobody knows.
    pub(crate) async fn ends(&self, app: &App, caller: &Caller) {
        let Some(id) = caller.token_id() else { return std::future::pending().await };
        loop {
            tokio::time::sleep(FRESH).await;
            if let Ok(credential) = self.credential(app.engine.store(), id).await
                && credential.is_none_or(|one| !one.is_valid)
            {
                return;
            }
        }
    }

    async fn credential(&self, store: &dyn Store, id: i64) -> Answer<Option<Arc<Credential>>> {
        let read_at = Instant::now();
        if let Some(known) = self.known().get_mut(&id) {
            if known.read_at.elapsed() < FRESH {
                return Ok(Some(known.credential.clone()));
            }
            // One call looks, and the others go by what was known.
            known.read_at = read_at;
        }
        let Some(credential) = store.credential(id).await?.map(Arc::new) else { return Ok(None) };
        let mut known = self.known();
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        let token = Arc::new(credential.token.clone());
        let one = known.entry(id).or_insert_with(|| Known {
            credential: credential.clone(),
            token: token.clone(),
            read_at,
            used_at: None,
            allowance: Allowance::default(),
        });
        (one.credential, one.token, one.read_at) = (credential.clone(), token, read_at);
        Ok(Some(credential))
    }

    /// Counts a call of a token against its rate, and says whether its use is to be written down.
    fn let_in(&self, id: i64) -> Answer<(Arc<Token>, bool)> {
        let mut known = self.known();
        let Some(one) = known.get_mut(&id) else { return Err(Problem::unauthorized()) };
        let token = one.token.clone();
        if let Some(rate) = token.rate_per_s
            && !one.allowance.take(rate, 1)
        {
            return Err(Problem::too_often("this token makes more calls than it may; come again in a second"));
        }
        let is_to_be_noted = one.used_at.is_none_or(|at| at.elapsed() > USED_EVERY);
        if is_to_be_noted {
            one.used_at = Some(Instant::now());
        }
        Ok((token, is_to_be_noted))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<i64, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// So many a second, saved up for a second at most.
#[derive(Default)]
pub(crate) struct Allowance {
    left: f64,
    filled_at: Option<Instant>,
}

impl Allowance {
    /// Takes some, if as many are left.
    pub(crate) fn take(&mut self, per_s: i64, wanted: usize) -> bool {
        let (now, most) = (Instant::now(), per_s as f64);
        let passed = self.filled_at.map_or(1.0, |at| now.duration_since(at).as_secs_f64());
        self.left = (self.left + passed * most).min(most);
        self.filled_at = Some(now);
        let enough = self.left >= wanted as f64;
        if enough {
            self.left -= wanted as f64;
        }
        enough
    }
}

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
            paths.paths.values_mut().for_each(document_refusals);
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
fn document_refusals(path: &mut utoipa::openapi::PathItem) {
    use utoipa::openapi::{ContentBuilder, Ref, ResponseBuilder};
    let methods = [&mut path.get, &mut path.put, &mut path.post, &mut path.delete, &mut path.patch];
    for operation in methods.into_iter().flatten() {
        for (status, description) in [
            ("401", "no token, or one that is worth nothing"),
            ("403", "the token's role does not allow it"),
            ("429", "too many calls"),
        ] {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
            let response =
                ResponseBuilder::new().description(description).content("application/problem+json", content).build();
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

/// Finds out who calls, and notes it in the call. Only whether the server lives can be asked without saying.
pub(crate) async fn authenticate(app: &Arc<App>, request: &mut Request) -> Answer<()> {
    if matches!(request.uri().path(), "/healthz" | "/readyz") {
        return Ok(());
    }
    let (header, from_here, asked) = (authorization(request), comes_from_here(request), tenant(request));
    let caller = app.gate.caller(app, header.as_deref()).await?;
    if caller.token.is_none() {
        from_here?;
    }
    request.extensions_mut().insert(caller.asking_for(asked?)?);
    Ok(())
}

/// What is shown as a token: none is nobody; what is no text, or comes twice, is no token.
fn authorization(request: &Request) -> Option<String> {
    let mut shown = request.headers().get_all(AUTHORIZATION).iter();
    let first = shown.next()?;
    Some(first.to_str().ok().filter(|_| shown.next().is_none()).unwrap_or_default().to_owned())
}

/// The tenant that a call names.
fn tenant(request: &Request) -> Answer<Option<String>> {
    let query = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
    let mut named = query.into_iter().filter(|(name, _)| name == "tenant").map(|(_, value)| value.into_owned());
    let first = named.next();
    if named.next().is_some() {
        return Err(Problem::field("tenant", "must be given once"));
    }
    Ok(first)
}

/// While nobody is asked who they are, a page of some web site must not reach the server through the browser of somebody on this
/// machine: neither by calling it from elsewhere nor by a name of its own for this machine.
fn comes_from_here(request: &Request) -> Answer<()> {
    let is_here = |host: &str| {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    };
    let header = |name: HeaderName| request.headers().get(name).map(|value| value.to_str().unwrap_or_default());
    let origin = header(ORIGIN).map(|origin| origin.split_once("://").map_or(origin, |(_, host)| host));
    match [header(HOST), origin].into_iter().flatten().find(|host| !is_here(host)) {
        Some(_) => Err(Problem::forbidden(
            "while there are no tokens the server answers calls from this machine to this machine alone: make a token with \
             `taskwheel tokens create --role admin`",
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_is_used_up_and_fills_again() {
        let mut allowance = Allowance::default();
        assert!((0..5).all(|_| allowance.take(5, 1)));
        assert!(!allowance.take(5, 1), "a second's worth is gone");
        allowance.filled_at = Instant::now().checked_sub(Duration::from_millis(500));
        assert!(allowance.take(5, 2) && !allowance.take(5, 2), "half a second fills half of it");
    }
}
