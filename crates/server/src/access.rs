//! Who calls, and what they may.
//!
//! ```text
//!  request --> authenticate (401) --> the route's own scope (403) --> handler, which asks the caller for the tenant
//! ```
//!
//! The database is the authority on tokens; what it said is believed for a second and a half at most, so that a token that
//! was revoked anywhere is worth nothing two seconds later. What takes longer is looked at again: a call when its body has come, a
//! claim that waits and an action on many tasks all the while. While it does not answer nobody is let in, but to the metrics,
//! which are there to tell of it: who was known by then may read them for some minutes more. While no token has ever existed
//! everybody is let in as an admin, and the server listens on this machine alone. A route declares its scope when it is
//! added: see `scopes`.

use crate::App;
use crate::fresh::{Age, Need};
use crate::metrics;
use crate::problem::{Answer, Problem};
use crate::quota::Allowance;
use axum::extract::{FromRequestParts, Request};
use axum::http::HeaderName;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::request::Parts;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use taskwheel_model::{NewTask, Role, Scope, field, limits};
use taskwheel_store::Store;
use taskwheel_store::access::{Actor, Credential, Secret, Token};
use taskwheel_store::clock::here;

/// How often a claim that waits, or an action on many tasks, looks whether its token is still worth something: so often that,
/// with the age of what is believed, it ends within two seconds. Most looks go by what is known, and read nothing.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The same while the database does not answer: then nothing is known, and each look asks it.
const UNANSWERED_PAUSE: Duration = Duration::from_secs(1);
/// How often the last use of a token is written down.
const USED_EVERY: Duration = Duration::from_secs(60);
/// Tokens that are remembered; when there are more, all are forgotten.
const REMEMBERED_MAX: usize = 10_000;

/// How long who was known may read the metrics while the database does not answer.
const REMEMBERED_TIME_MAX: Duration = Duration::from_secs(300);
/// After so long it does not answer, for who reads the metrics: a scrape waits for ten seconds.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Whoever makes a call.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// None while there are no tokens.
    token: Option<Arc<Token>>,
    /// The tenant that the call names, by `?tenant=`.
    asked: Option<String>,
}

impl Caller {
    pub(crate) fn role(&self) -> Role {
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

    /// Whether it sees a worker of a tenant, or of none, which serves all: its own, or those that serve the tenant it asks for.
    pub(crate) fn sees_worker(&self, tenant: Option<&str>) -> bool {
        match (&self.asked, self.owner()) {
            (Some(asked), _) => tenant.is_none_or(|tenant| tenant == asked),
            (None, Some(owner)) => tenant == Some(&*owner),
            (None, None) => true,
        }
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
        let Some(own) = self.types() else { return Ok(()) };
        if !categories.is_empty() {
            return Err(Problem::forbidden("a token for some types alone cannot claim by category"));
        }
        match types.iter().find(|one| !own.contains(one)) {
            Some(foreign) => Err(Problem::forbidden(format!("this token is not for the type {foreign}"))),
            None => Ok(()),
        }
    }

    /// The types that it works for, where that is limited.
    pub(crate) fn types(&self) -> Option<&[String]> {
        self.token.as_ref().and_then(|token| token.types.as_deref())
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
    pub(crate) fn may(&self, scope: Scope) -> bool {
        let is_everybodys = self.token.as_ref().is_none_or(|token| token.tenant.is_none());
        self.role().may(scope) && (scope != Scope::Administer || is_everybodys)
    }

    /// Takes the tenant that a call names: any for who is for all tenants, else the own.
    pub(crate) fn asking_for(mut self, tenant: Option<String>) -> Answer<Caller> {
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
    openness: Mutex<Age>,
}

struct Known {
    token: Arc<Token>,
    secret_hash: String,
    is_valid: bool,
    age: Age,
    used_at: Option<Instant>,
    allowance: Allowance,
}

impl Gate {
    /// Who shows this header. A token that is wrong, revoked or expired is the same as none.
    async fn caller(&self, app: &Arc<App>, header: Option<&str>, may_remember: bool) -> Answer<Caller> {
        let Some(header) = header else {
            let was_open = || self.openness().is_within(REMEMBERED_TIME_MAX).then_some(true);
            return if or_remembered(may_remember, self.is_open(app), was_open).await? {
                Ok(Caller { token: None, asked: None })
            } else {
                Err(Problem::unauthorized())
            };
        };
        let shown = header.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let (id, secret) =
            shown.and_then(|(_, token)| Secret::of_token(token.trim())).ok_or_else(Problem::unauthorized)?;
        or_remembered(may_remember, self.look(app, id), || self.remembers(id).then_some(())).await?;
        let (token, is_to_be_noted) = self.let_in(id, &secret)?;
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
    async fn is_open(&self, app: &Arc<App>) -> Answer<bool> {
        if !self.is_closed.load(Ordering::Relaxed) {
            let need = self.openness().need();
            need.meet(app, |app| async move { app.gate.read_openness(app.engine.store()).await }).await?;
        }
        Ok(!self.is_closed.load(Ordering::Relaxed))
    }

    async fn read_openness(&self, store: &dyn Store) -> Answer<()> {
        let at = Instant::now();
        if store.has_tokens().await? {
            self.is_closed.store(true, Ordering::Relaxed);
        }
        self.openness().read(at);
        Ok(())
    }

    /// Looks what the database says about a token, where that is not known.
    async fn look(&self, app: &Arc<App>, id: i64) -> Answer<()> {
        let need = self.known().get_mut(&id).map_or(Need::Read, |known| known.age.need());
        need.meet(app, move |app| async move { app.gate.read_token(app.engine.store(), id).await }).await
    }

    async fn read_token(&self, store: &dyn Store, id: i64) -> Answer<()> {
        let at = Instant::now();
        let found = store.credential(id).await?;
        let mut known = self.known();
        let Some(Credential { token, secret_hash, is_valid }) = found else {
            known.remove(&id);
            return Ok(());
        };
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        let (used_at, allowance) = known.remove(&id).map(|one| (one.used_at, one.allowance)).unwrap_or_default();
        let mut age = Age::default();
        age.read(at);
        known.insert(id, Known { token: Arc::new(token), secret_hash, is_valid, age, used_at, allowance });
        Ok(())
    }

    /// Lets in who shows the secret of a token that is worth something, counts it against the token's rate, and says whether its use
    /// is to be written down.
    fn let_in(&self, id: i64, secret: &Secret) -> Answer<(Arc<Token>, bool)> {
        let mut known = self.known();
        let one = known.get_mut(&id).filter(|one| secret.has_hash(&one.secret_hash) && one.is_valid);
        let one = one.ok_or_else(Problem::unauthorized)?;
        if let Some(rate) = one.token.rate_per_s
            && !one.allowance.take(rate, 1)
        {
            return Err(Problem::too_often("this token makes more calls than it may; come again in a second"));
        }
        let is_to_be_noted = one.used_at.is_none_or(|at| at.elapsed() > USED_EVERY);
        if is_to_be_noted {
            one.used_at = Some(Instant::now());
        }
        Ok((one.token.clone(), is_to_be_noted))
    }

    /// Whether a caller that was let in still would be.
    pub(crate) async fn lets_stay(&self, app: &Arc<App>, caller: &Caller) -> Answer<bool> {
        let Some(id) = caller.token_id() else { return self.is_open(app).await };
        self.look(app, id).await?;
        Ok(self.known().get(&id).is_some_and(|one| one.is_valid))
    }

    /// Waits until a caller would not be let in any more. While the database does not answer nobody knows.
    pub(crate) async fn ends(&self, app: &Arc<App>, caller: &Caller) {
        let mut pause = LOOK_EVERY;
        loop {
            tokio::time::sleep(pause).await;
            pause = match self.lets_stay(app, caller).await {
                Ok(true) => LOOK_EVERY,
                Ok(false) => return,
                Err(_) => UNANSWERED_PAUSE,
            };
        }
    }

    /// Whether a token is known from before, and its time has not run out since.
    fn remembers(&self, id: i64) -> bool {
        let is_good = |one: &Known| one.age.is_within(REMEMBERED_TIME_MAX) && one.token.is_valid(here());
        self.known().get(&id).is_some_and(is_good)
    }

    fn known(&self) -> MutexGuard<'_, HashMap<i64, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn openness(&self) -> MutexGuard<'_, Age> {
        self.openness.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a look into the database says; where it does not answer and the call may go by it, what is remembered.
async fn or_remembered<T>(
    may_remember: bool,
    look: impl Future<Output = Answer<T>>,
    remembered: impl FnOnce() -> Option<T>,
) -> Answer<T> {
    if !may_remember {
        return look.await;
    }
    let late = |_| Err(Problem::unready("the database does not answer"));
    let looked = tokio::time::timeout(ANSWER_TIME_MAX, look).await.unwrap_or_else(late);
    looked.or_else(|problem| remembered().ok_or(problem))
}

/// Finds out who calls, and notes it in the call.
pub(crate) async fn authenticate(app: &Arc<App>, request: &mut Request) -> Answer<()> {
    let (header, from_here, asked) = (authorization(request), comes_from_here(request), tenant(request));
    let may_remember = request.uri().path() == metrics::PATH;
    let caller = app.gate.caller(app, header.as_deref(), may_remember).await?;
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
    use taskwheel_model::Time;

    #[test]
    fn a_token_is_remembered_for_some_minutes_and_never_past_its_end() {
        let gate = Gate::default();
        let remembers = |ago: Duration, expires_at: Option<Time>| {
            let token = Token {
                id: 1,
                role: Role::Viewer,
                tenant: None,
                types: None,
                rate_per_s: None,
                created_at: Time(0),
                expires_at,
                last_used_at: None,
                revoked_at: None,
            };
            let mut age = Age::default();
            age.read(Instant::now().checked_sub(ago).expect("there was such a time"));
            let (token, secret_hash, allowance) = (Arc::new(token), String::new(), Allowance::default());
            gate.known().insert(1, Known { token, secret_hash, is_valid: true, age, used_at: None, allowance });
            gate.remembers(1)
        };
        let lately = Duration::from_secs(60);
        assert!(remembers(lately, None) && remembers(lately, Some(here().plus_ms(60_000))));
        assert!(!remembers(lately, Some(here())), "its time ran out meanwhile");
        assert!(!remembers(REMEMBERED_TIME_MAX, None), "that was long ago");
        assert!(!gate.remembers(2), "who was never known is not remembered");
    }

    #[tokio::test(start_paused = true)]
    async fn only_who_may_remember_goes_on_without_the_database() {
        let hangs = std::future::pending::<Answer<()>>;
        let away = async || Err::<(), _>(Problem::unready("away"));
        assert!(or_remembered(true, hangs(), || Some(())).await.is_ok());
        assert!(or_remembered(true, away(), || Some(())).await.is_ok());
        assert!(or_remembered(true, away(), || None).await.is_err());
        assert!(or_remembered(false, away(), || Some(())).await.is_err());
    }
}
