//! `taskwheel tokens` and `taskwheel tenants`: who may call, and what tenants may have. They work on the database itself, so
//! that the first token can be made before a server starts.

use crate::database::{self, DatabaseArgs};
use crate::duration::milliseconds;
use crate::output;
use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use taskwheel_model::{NewTask, Role, field, limits};
use taskwheel_store::access::{Actor, NewToken, Quota, Token};
use taskwheel_store::export::rfc3339;

const COLUMNS: [&str; 9] =
    ["id", "role", "tenant", "types", "rate_per_s", "created_at", "expires_at", "last_used_at", "revoked_at"];

#[derive(Subcommand)]
pub(crate) enum TokensCommand {
    /// Make a token. It is shown once.
    Create(Box<CreateArgs>),
    /// List all tokens, without their secrets.
    List(DatabaseArgs),
    /// Make a token worth nothing, within two seconds on every node.
    Revoke {
        /// The number of the token.
        id: i64,
        #[command(flatten)]
        database: DatabaseArgs,
    },
}

/// A token to be made. Its tenant is the global --tenant: without one, tokens of admins and workers are for all tenants, and
/// others for the tenant `default`.
#[derive(Args)]
pub(crate) struct CreateArgs {
    /// What it may do: admin, operator, submitter, worker or viewer.
    #[arg(long)]
    role: Role,
    /// The types that a worker may claim, with commas between them; without, all.
    #[arg(long, value_delimiter = ',')]
    types: Option<Vec<String>>,
    /// How long it is valid, like 90d; without, until it is revoked.
    #[arg(long = "expires", value_name = "DURATION", value_parser = milliseconds)]
    expires_ms: Option<i64>,
    /// Most calls a second, on each node.
    #[arg(long, value_name = "CALLS")]
    rate_per_s: Option<i64>,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(crate) async fn tokens(command: TokensCommand, tenant: Option<String>, is_json: bool) -> Result<()> {
    match command {
        TokensCommand::Create(args) => create(*args, tenant, is_json).await,
        TokensCommand::List(database) => {
            let tokens = database::open_existing(&database).await?.tokens().await?;
            if is_json {
                let items: Vec<_> = tokens.iter().map(shown).collect();
                return output::print(&json!({"items": items}));
            }
            if tokens.is_empty() {
                output::say("there are no tokens: the server listens on this machine alone, and asks for none");
                return Ok(());
            }
            let rows = tokens.iter().map(|token| output::fields(&shown(token))).collect::<Result<Vec<_>>>()?;
            output::print(&output::table(&COLUMNS, &rows))
        }
        TokensCommand::Revoke { id, database } => {
            let revoked = database::open_existing(&database).await?.revoke_token(Actor::command_line(), id).await?;
            let Some(token) = revoked else { bail!("there is no token {id}: see `taskwheel tokens list`") };
            if is_json {
                return output::print(&shown(&token));
            }
            output::print(&format!("token {id} is worth nothing from now on"))
        }
    }
}

async fn create(args: CreateArgs, tenant: Option<String>, is_json: bool) -> Result<()> {
    let tenant = tenant.or_else(|| (!args.role.may_have_no_tenant()).then(|| NewTask::TENANT_DEFAULT.to_owned()));
    let new = NewToken {
        role: args.role,
        tenant,
        types: args.types,
        rate_per_s: args.rate_per_s,
        expires_ms: args.expires_ms,
    };
    new.validate().map_err(|error| database::by_flag(error.into()))?;
    let missing = database::missing_file(&args.database);
    let store = database::open(&args.database, true).await?;
    // The first token is made before a server has made the database; who meant another database must hear of it.
    if let Some(file) = missing {
        output::say(&format!(
            "warning: there was no database {file}: it was made, and the token is for a server on it alone; if it was \
             mistyped, remove it and name the server's with --database"
        ));
    }
    let (token, secret) = store.create_token(Actor::command_line(), new).await?;
    if is_json {
        let mut shown = shown(&token);
        shown["token"] = secret.into();
        return output::print(&shown);
    }
    output::say(&format!("token {} for the role {}; it is shown this once:", token.id, token.role));
    output::print(&secret)
}

fn shown(token: &Token) -> Value {
    json!({
        "id": token.id, "role": token.role, "tenant": token.tenant, "types": token.types,
        "rate_per_s": token.rate_per_s, "created_at": rfc3339(token.created_at),
        "expires_at": token.expires_at.map(rfc3339), "last_used_at": token.last_used_at.map(rfc3339),
        "revoked_at": token.revoked_at.map(rfc3339),
    })
}

#[derive(Subcommand)]
pub(crate) enum TenantsCommand {
    /// List what tenants may have, where that is limited.
    List(DatabaseArgs),
    /// Set what a tenant may have. What is not given is not limited.
    Limit {
        /// The tenant.
        #[arg(value_parser = tenant_name)]
        name: String,
        /// Most live tasks.
        #[arg(long, value_name = "TASKS")]
        live_max: Option<i64>,
        /// Most submitted tasks a second, on each node.
        #[arg(long, value_name = "TASKS")]
        submits_per_s: Option<i64>,
        #[command(flatten)]
        database: DatabaseArgs,
    },
}

pub(crate) async fn tenants(command: TenantsCommand, is_json: bool) -> Result<()> {
    match command {
        TenantsCommand::List(database) => {
            let quotas = database::open_existing(&database).await?.quotas().await?;
            let items: Vec<_> = quotas.iter().map(|(tenant, quota)| limits_of(tenant, *quota)).collect();
            if is_json {
                return output::print(&json!({"items": items}));
            }
            if items.is_empty() {
                output::say("no tenant is limited");
                return Ok(());
            }
            let rows = items.iter().map(output::fields).collect::<Result<Vec<_>>>()?;
            output::print(&output::table(&["tenant", "live_max", "submits_per_s"], &rows))
        }
        TenantsCommand::Limit { name, live_max, submits_per_s, database } => {
            let quota = Quota { live_max, submits_per_s };
            let store = database::open_existing(&database).await?;
            let put = store.put_quota(Actor::command_line(), name.clone(), quota).await;
            put.map_err(database::by_flag)?;
            if is_json {
                return output::print(&limits_of(&name, quota));
            }
            output::print(&format!("tenant {name} may have {}", allowance(quota)))
        }
    }
}

fn tenant_name(text: &str) -> Result<String, String> {
    field::name("tenant", text, limits::NAME_CHARS_MAX).map(|()| text.to_owned()).map_err(|error| error.message)
}

fn limits_of(tenant: &str, quota: Quota) -> Value {
    json!({"tenant": tenant, "live_max": quota.live_max, "submits_per_s": quota.submits_per_s})
}

/// What a tenant may have, in words.
fn allowance(quota: Quota) -> String {
    let most = |limit: Option<i64>| limit.map_or("any number of".to_owned(), |limit| format!("at most {limit}"));
    let (live, submits) = (most(quota.live_max), most(quota.submits_per_s));
    format!("{live} live tasks, and submit {submits} tasks a second on each node")
}
