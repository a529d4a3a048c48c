//! The verbs of access, as calls of the store.

use super::{SqlStore, access};
use crate::access::{Actor, AuditEntry, AuditQuery, Credential, NewToken, Quota, Secret, Token, TypeChange};
use crate::people::{Acted, Action};
use crate::session::{Database, Repeat};
use crate::verbs::{Access, Label, TaskType};
use crate::{Result, StoreError};
use async_trait::async_trait;
use std::collections::HashMap;
use taskwheel_model::field::{self, FieldError};
use taskwheel_model::{TaskId, limits};
use uuid::Uuid;

/// Numbers of tokens are below this, and random: two processes that make one do not meet.
const TOKEN_IDS: u64 = 1 << 31;

#[async_trait]
impl<D: Database> Access for SqlStore<D> {
    async fn create_token(&self, by: Actor, new: NewToken) -> Result<(Token, String)> {
        new.validate()?;
        let secret = Secret::random();
        let id = (Uuid::new_v4().as_u64_pair().1 % (TOKEN_IDS - 1) + 1).cast_signed();
        let input = (id, secret.hash(), new, by);
        let token = self
            .core
            .change("create_token", Repeat::Harmful, input, |session, input| {
                Box::pin(async move {
                    let (id, hash, new, by) = &*input;
                    access::create_token(session, (*id, hash), new, by).await
                })
            })
            .await?;
        Ok((token, secret.token(id)))
    }

    async fn tokens(&self) -> Result<Vec<Token>> {
        self.core.look("tokens", (), |session, _| Box::pin(access::tokens(session))).await
    }

    async fn credential(&self, id: i64) -> Result<Option<Credential>> {
        self.core
            .look("credential", id, |session, id| Box::pin(async move { access::credential(session, *id).await }))
            .await
    }

    async fn revoke_token(&self, by: Actor, id: i64) -> Result<Option<Token>> {
        self.core
            .change("revoke_token", Repeat::Harmless, (by, id), |session, input| {
                Box::pin(async move { access::revoke_token(session, input.1, &input.0).await })
            })
            .await
    }

    async fn has_tokens(&self) -> Result<bool> {
        self.core.look("has_tokens", (), |session, _| Box::pin(access::has_tokens(session))).await
    }

    async fn token_used(&self, id: i64) -> Result<()> {
        self.core
            .change("token_used", Repeat::Harmless, id, |session, id| {
                Box::pin(async move { access::token_used(session, *id).await })
            })
            .await
    }

    async fn put_quota(&self, by: Actor, tenant: String, quota: Quota) -> Result<()> {
        field::name("tenant", &tenant, limits::NAME_CHARS_MAX)?;
        for (name, limit) in [("live_max", quota.live_max), ("submits_per_s", quota.submits_per_s)] {
            limit.map_or(Ok(()), |limit| field::range(name, limit, 0, i64::MAX))?;
        }
        let work = self.core.change("put_quota", Repeat::Harmless, (by, tenant, quota), |session, input| {
            Box::pin(async move { access::put_quota(session, &input.1, input.2, &input.0).await })
        });
        work.await?;
        self.core.memory.quotas.forget();
        Ok(())
    }

    async fn quotas(&self) -> Result<Vec<(String, Quota)>> {
        self.core.look("quotas", (), |session, _| Box::pin(access::quotas(session))).await
    }

    async fn live_tasks(&self, tenant: String) -> Result<u64> {
        self.core
            .look("live_tasks", tenant, |session, tenant| {
                Box::pin(async move { access::live_tasks(session, &tenant).await })
            })
            .await
    }

    async fn labels_of(&self, ids: Vec<TaskId>) -> Result<HashMap<TaskId, Label>> {
        self.core
            .look("labels_of", ids, |session, ids| Box::pin(async move { access::labels_of(session, &ids).await }))
            .await
    }

    async fn keys_of_others(&self, tenant: String, token_id: i64, keys: Vec<(String, String)>) -> Result<Vec<usize>> {
        self.core
            .look("keys_of_others", (tenant, token_id, keys), |session, input| {
                Box::pin(async move { access::keys_of_others(session, &input.0, input.1, &input.2).await })
            })
            .await
    }

    async fn act_as(&self, by: Actor, tenant: Option<String>, id: TaskId, action: Action) -> Result<Acted> {
        action.validate()?;
        let input = (by, tenant, id, action, self.core.memory.clone());
        let work = self.core.change("act_as", Repeat::Harmful, input, |session, input| {
            Box::pin(async move {
                let (by, tenant, id, action, memory) = &*input;
                access::act_as(session, memory, by, (tenant.as_deref(), *id), action).await
            })
        });
        self.core.made_due(work).await
    }

    async fn change_type(&self, by: Option<Actor>, change: TypeChange) -> Result<TaskType> {
        field::task_type("type", &change.task_type)?;
        if let Some(settings) = &change.settings {
            settings.validate()?;
        }
        let work = self.core.change("change_type", Repeat::Harmless, (by, change), |session, input| {
            Box::pin(async move { access::change_type(session, input.0.as_ref(), &input.1).await })
        });
        let changed = work.await?;
        self.core.memory.types.forget();
        Ok(changed)
    }

    async fn audit(&self, query: AuditQuery) -> Result<Vec<AuditEntry>> {
        if !(1..=limits::PAGE_ROWS_MAX).contains(&query.limit) {
            let message = format!("must be 1 to {}", limits::PAGE_ROWS_MAX);
            return Err(StoreError::field(FieldError::new("limit", message)));
        }
        for (name, value) in [("action", &query.action), ("target", &query.target)] {
            value.as_ref().map_or(Ok(()), |value| field::text(name, value, limits::KEY_CHARS_MAX))?;
        }
        if query.before.as_ref().is_some_and(|before| Uuid::try_parse(before).is_err()) {
            let message = "must be a next_cursor of an earlier answer";
            return Err(StoreError::field(FieldError::new("cursor", message)));
        }
        self.core
            .look("audit", query, |session, query| Box::pin(async move { access::audit(session, &query).await }))
            .await
    }

    async fn purge_audit(&self, keep_ms: i64) -> Result<u64> {
        self.core
            .change("purge_audit", Repeat::Harmless, keep_ms, |session, keep_ms| {
                Box::pin(async move { access::purge_audit(session, *keep_ms).await })
            })
            .await
    }
}
