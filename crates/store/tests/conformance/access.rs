//! Access: tokens, quotas, and the log of who changed what.

use crate::facts;
use crate::support::{Platform, task};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use taskwheel_model::{NewTask, Outcome, Role, TaskId, TypeSettings};
use taskwheel_store::Label;
use taskwheel_store::access::{
    Actor, AuditEntry, AuditQuery, BulkAudit, Credential, NewToken, Quota, Secret, TypeChange, audit_id,
};
use taskwheel_store::people::{Acted, Action, BulkRequest, Edit};
use taskwheel_store::search::{Filter, Listing, Sort};

fn admin() -> NewToken {
    NewToken { role: Role::Admin, tenant: None, types: None, rate_per_s: None, expires_ms: None }
}

fn somebody() -> Actor {
    Actor { token_id: Some(7), name: "operator".into() }
}

async fn log(platform: &Platform) -> Vec<AuditEntry> {
    platform.store.audit(AuditQuery { limit: 100, ..AuditQuery::default() }).await.unwrap()
}

async fn a_token_is_kept_without_its_secret(platform: &Platform) {
    let new = NewToken {
        role: Role::Worker,
        tenant: Some("acme".into()),
        types: Some(vec!["mail".into(), "sms".into()]),
        rate_per_s: Some(50),
        expires_ms: Some(60_000),
    };
    let (token, shown) = platform.store.create_token(Actor::command_line(), new.clone()).await.unwrap();
    assert_eq!((token.role, &token.tenant, &token.types), (new.role, &new.tenant, &new.types));
    let (id, secret) = Secret::of_token(&shown).unwrap();
    assert_eq!(id, token.id);
    let Credential { token: found, secret_hash: hash, is_valid } =
        platform.store.credential(id).await.unwrap().unwrap();
    assert_eq!((&found, is_valid), (&token, true));
    assert!(secret.has_hash(&hash));
    assert!(!hash.contains(shown.rsplit('_').next().unwrap()));
    assert_eq!(platform.store.tokens().await.unwrap(), [token]);
    platform.advance_ms(60_000);
    assert!(!platform.store.credential(id).await.unwrap().unwrap().is_valid);
    assert_eq!(platform.store.credential(id + 1).await.unwrap(), None);
}

async fn a_revoked_or_expired_token_is_worth_nothing_and_has_existed(platform: &Platform) {
    assert!(!platform.store.has_tokens().await.unwrap());
    let (short, _) = platform
        .store
        .create_token(Actor::command_line(), NewToken { expires_ms: Some(1_000), ..admin() })
        .await
        .unwrap();
    assert!(short.is_valid(short.created_at) && !short.is_valid(short.created_at.plus_ms(1_000)));
    let revoked = platform.store.revoke_token(somebody(), short.id).await.unwrap().unwrap();
    assert!(!revoked.is_valid(short.created_at));
    platform.advance_ms(5);
    assert_eq!(platform.store.revoke_token(somebody(), short.id).await.unwrap(), Some(revoked.clone()));
    assert_eq!(platform.store.tokens().await.unwrap(), [revoked]);
    assert!(platform.store.has_tokens().await.unwrap());
    assert_eq!(platform.store.revoke_token(somebody(), short.id + 1).await.unwrap(), None);
}

async fn the_last_use_of_a_token_is_shown(platform: &Platform) {
    let (token, _) = platform.store.create_token(Actor::command_line(), admin()).await.unwrap();
    assert_eq!(token.last_used_at, None);
    platform.advance_ms(1_000);
    platform.store.token_used(token.id).await.unwrap();
    let used = platform.store.tokens().await.unwrap()[0].last_used_at.unwrap();
    assert!(used >= token.created_at.plus_ms(1_000));
}

async fn bad_tokens_are_refused_by_field(platform: &Platform) {
    let viewer = NewToken { role: Role::Viewer, ..admin() };
    let bad = [
        ("tenant", viewer.clone()),
        ("tenant", NewToken { tenant: Some(String::new()), ..admin() }),
        ("types", NewToken { types: Some(vec!["mail".into()]), ..admin() }),
        ("types", NewToken { role: Role::Worker, types: Some(vec!["a b".into()]), ..admin() }),
        ("rate_per_s", NewToken { rate_per_s: Some(0), ..admin() }),
        ("expires", NewToken { expires_ms: Some(0), ..admin() }),
    ];
    for (field, new) in bad {
        let error = platform.store.create_token(Actor::command_line(), new).await.unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
    assert!(!platform.store.has_tokens().await.unwrap());
}

async fn a_change_of_a_task_is_in_the_log_with_what_was_before(platform: &Platform) {
    let id = platform.submit(NewTask { tenant: "acme".into(), ..task("mail") }).await;
    let edit = Action::Edit(Edit { priority: Some(7), remark: Some(Some("soon".into())), ..Edit::default() });
    let acted = platform.store.act_as(somebody(), Some("acme".into()), id, edit.clone()).await.unwrap();
    assert!(matches!(acted, Acted::Changed(_)));
    let again = platform.store.act_as(somebody(), Some("acme".into()), id, edit).await.unwrap();
    assert!(matches!(again, Acted::Unchanged(_)));
    let lines = log(platform).await;
    assert_eq!(lines.len(), 1, "what changed nothing is not in the log");
    let line = &lines[0];
    assert_eq!(
        (&line.actor, line.action.as_str(), line.target.as_str()),
        (&somebody(), "task.edit", &*id.0.to_string())
    );
    assert_eq!(line.tenant.as_deref(), Some("acme"));
    assert_eq!(line.before, json!({"priority": 1, "remark": null}));
    assert_eq!(line.after, json!({"priority": 7, "remark": "soon"}));
}

async fn another_tenants_task_is_neither_changed_nor_in_the_log(platform: &Platform) {
    let id = platform.submit(NewTask { tenant: "acme".into(), ..task("mail") }).await;
    let acted = platform.store.act_as(somebody(), Some("other".into()), id, Action::Cancel).await.unwrap();
    assert_eq!(acted, Acted::NotFound);
    assert_eq!(log(platform).await, []);
}

async fn a_removed_task_is_in_the_log_as_it_was(platform: &Platform) {
    let claimed = platform.start(NewTask { payload: Some("{\"a\":1}".into()), ..task("mail") }).await;
    platform.finish(&claimed, Outcome::Success).await;
    platform.store.act_as(somebody(), None, claimed.id, Action::Delete).await.unwrap();
    let lines = log(platform).await;
    assert_eq!(
        (lines[0].action.as_str(), &lines[0].before["payload"], &lines[0].after),
        ("task.delete", &json!("{\"a\":1}"), &Value::Null)
    );
}

async fn an_action_on_many_is_a_line_of_each_tenant_with_its_filter_and_counts(platform: &Platform) {
    for tenant in ["acme", "other", "acme"] {
        platform.submit(NewTask { tenant: tenant.into(), ..task("mail") }).await;
    }
    /// The digits of an id that are its time.
    const TIME: usize = 13;
    let mut audit = BulkAudit::new(somebody(), json!({"action": "cancel", "filter": {"type": "mail"}}));
    let mut ids = BTreeSet::new();
    for _chunk in 0..2 {
        let request = BulkRequest {
            tenant: None,
            filter: Filter { task_type: Some("mail".into()), ..Filter::default() },
            action: Action::Cancel,
            after: TaskId(0),
            up_to: TaskId(i64::MAX),
            dry_run: false,
            audit: Some(audit.clone()),
        };
        audit.lines.extend(platform.store.bulk(request).await.unwrap().lines);
        ids.extend(audit.lines.values().map(|line| line.id.clone()));
    }
    let lines = log(platform).await;
    assert_eq!((lines.len(), ids.len()), (2, 2), "a later chunk writes the same lines again: {lines:?}");
    for (tenant, matched, changed) in [("acme", 4, 2), ("other", 2, 1)] {
        let line = lines.iter().find(|line| line.tenant.as_deref() == Some(tenant)).unwrap();
        assert_eq!(line.action, "task.bulk");
        let counted = json!({"action": "cancel", "filter": {"type": "mail"}, "matched": matched, "changed": changed});
        assert_eq!(line.detail, counted, "{tenant}");
        assert_eq!(line.id[..TIME], audit_id(platform.now())[..TIME], "its id is of the database's time");
    }
}

async fn changes_of_types_and_tokens_are_in_the_log(platform: &Platform) {
    let (token, shown) = platform.store.create_token(Actor::command_line(), admin()).await.unwrap();
    platform.advance_ms(1);
    let settings = TypeSettings { max_attempts: Some(9), ..TypeSettings::default() };
    let change = TypeChange { task_type: "mail".into(), settings: Some(settings), paused: None };
    platform.store.change_type(Some(somebody()), change).await.unwrap();
    platform.advance_ms(1);
    let pause = TypeChange { task_type: "mail".into(), settings: None, paused: Some(true) };
    platform.store.change_type(Some(somebody()), pause).await.unwrap();
    platform.advance_ms(1);
    platform.store.revoke_token(somebody(), token.id).await.unwrap();
    let lines = log(platform).await;
    let actions: Vec<_> = lines.iter().map(|line| line.action.as_str()).collect();
    assert_eq!(actions, ["token.revoke", "type.pause", "type.put", "token.create"], "newest first");
    assert_eq!(lines[1].before, json!({"paused": false}));
    assert_eq!(lines[1].after, json!({"paused": true}));
    assert_eq!(lines[2].after["max_attempts"], 9);
    let secret = shown.rsplit('_').next().unwrap();
    assert!(lines.iter().all(|line| !format!("{line:?}").contains(secret)), "no secret is in the log");
}

async fn old_lines_of_the_log_are_purged(platform: &Platform) {
    for _ in 0..3 {
        let id = platform.submit(task("mail")).await;
        platform.store.act_as(somebody(), None, id, Action::Cancel).await.unwrap();
        platform.advance_ms(1_000);
    }
    assert_eq!(platform.store.purge_audit(3_000).await.unwrap(), 0);
    assert_eq!(platform.store.purge_audit(1_999).await.unwrap(), 2);
    assert_eq!(platform.store.purge_audit(1_999).await.unwrap(), 0);
    let left = platform.store.audit(AuditQuery { limit: 9, ..AuditQuery::default() }).await.unwrap();
    assert_eq!(left.iter().map(|line| line.at).collect::<Vec<_>>(), [platform.now().plus_ms(-1_000)]);
}

async fn the_log_has_pages_and_can_be_searched(platform: &Platform) {
    let mut ids = Vec::new();
    for tenant in ["acme", "other", "acme"] {
        let id = platform.submit(NewTask { tenant: tenant.into(), ..task("mail") }).await;
        platform.store.act_as(somebody(), None, id, Action::Cancel).await.unwrap();
        platform.advance_ms(1);
        ids.push(id.0.to_string());
    }
    let page = async |query: AuditQuery| {
        let lines = platform.store.audit(AuditQuery { limit: query.limit.max(1), ..query }).await.unwrap();
        (lines.iter().map(|line| line.target.clone()).collect::<Vec<_>>(), lines.last().map(|line| line.id.clone()))
    };
    let (first, end) = page(AuditQuery { limit: 2, ..AuditQuery::default() }).await;
    assert_eq!(first, [ids[2].clone(), ids[1].clone()]);
    let (second, _) = page(AuditQuery { limit: 2, before: end, ..AuditQuery::default() }).await;
    assert_eq!(second, [ids[0].clone()]);
    let (acme, _) = page(AuditQuery { limit: 9, tenant: Some("acme".into()), ..AuditQuery::default() }).await;
    assert_eq!(acme, [ids[2].clone(), ids[0].clone()]);
    let (one, _) = page(AuditQuery { limit: 9, target: Some(ids[1].clone()), ..AuditQuery::default() }).await;
    assert_eq!(one, [ids[1].clone()]);
    assert!(platform.store.audit(AuditQuery { limit: 0, ..AuditQuery::default() }).await.is_err());
    let bad = AuditQuery { limit: 9, before: Some("x".into()), ..AuditQuery::default() };
    assert!(platform.store.audit(bad).await.unwrap_err().to_string().contains("cursor: must be a next_cursor"));
}

async fn quotas_are_kept_and_live_tasks_are_counted(platform: &Platform) {
    let quota = Quota { live_max: Some(10), submits_per_s: None };
    platform.store.put_quota(Actor::command_line(), "acme".into(), quota).await.unwrap();
    assert_eq!(platform.store.quotas().await.unwrap(), [("acme".to_owned(), quota)]);
    platform.store.put_quota(Actor::command_line(), "acme".into(), Quota::default()).await.unwrap();
    assert_eq!(platform.store.quotas().await.unwrap(), []);
    let of_acme = || NewTask { tenant: "acme".into(), ..task("mail") };
    platform.submit(of_acme()).await;
    platform.submit(task("mail")).await;
    let claimed = platform.start(NewTask { task_type: "sms".into(), ..of_acme() }).await;
    assert_eq!(platform.store.live_tasks("acme".into()).await.unwrap(), 2);
    platform.finish(&claimed, Outcome::Success).await;
    assert_eq!(platform.store.live_tasks("acme".into()).await.unwrap(), 1);
}

async fn a_task_knows_the_token_it_was_submitted_with(platform: &Platform) {
    let own = platform.submit(NewTask { token_id: Some(5), ..task("mail") }).await;
    let batch = vec![NewTask { token_id: Some(6), ..task("mail") }, task("mail")];
    platform.store.submit(batch).await.unwrap();
    let filter = Filter { token_id: Some(5), ..Filter::default() };
    let listing = Listing { tenant: None, filter, sort: Sort::IdAscending, limit: 10, cursor: None };
    let found = platform.store.list(listing).await.unwrap().items;
    assert_eq!(found.iter().map(|task| (task.id, task.token_id)).collect::<Vec<_>>(), [(own, Some(5))]);
}

async fn labels_of_tasks_and_who_has_unique_keys_are_told(platform: &Platform) {
    let unique =
        |task_type: &str, key: &str, token_id| NewTask { unique_key: Some(key.into()), token_id, ..task(task_type) };
    let own = platform.submit(unique("mail", "a", Some(5))).await;
    let other = platform.submit(unique("sms", "a", Some(6))).await;
    let traced = NewTask { trace_parent: Some("00-trace".into()), ..unique("mail", "b", None) };
    let nobodys = platform.submit(traced).await;
    let labels = platform.store.labels_of(vec![own, other, nobodys, own, TaskId(other.0 + 1_000)]).await.unwrap();
    let label = |name: &str, trace: Option<&str>| Label {
        tenant: "default".to_owned(),
        task_type: name.to_owned(),
        trace_parent: trace.map(str::to_owned),
    };
    let wanted = [(own, label("mail", None)), (other, label("sms", None)), (nobodys, label("mail", Some("00-trace")))];
    assert_eq!(labels, wanted.into());
    let keys = [("mail", "a"), ("sms", "a"), ("mail", "b"), ("mail", "c"), ("sms", "a")];
    let keys: Vec<_> = keys.iter().map(|(name, key)| ((*name).to_owned(), (*key).to_owned())).collect();
    let others = platform.store.keys_of_others("default".into(), 5, keys.clone()).await.unwrap();
    assert_eq!(others, [1, 2, 4], "the own and the free ones are not among them");
    assert_eq!(platform.store.keys_of_others("acme".into(), 5, keys).await.unwrap(), [0_usize; 0]);
}

facts![
    labels_of_tasks_and_who_has_unique_keys_are_told,
    a_token_is_kept_without_its_secret,
    a_revoked_or_expired_token_is_worth_nothing_and_has_existed,
    the_last_use_of_a_token_is_shown,
    bad_tokens_are_refused_by_field,
    a_change_of_a_task_is_in_the_log_with_what_was_before,
    another_tenants_task_is_neither_changed_nor_in_the_log,
    a_removed_task_is_in_the_log_as_it_was,
    an_action_on_many_is_a_line_of_each_tenant_with_its_filter_and_counts,
    changes_of_types_and_tokens_are_in_the_log,
    the_log_has_pages_and_can_be_searched,
    old_lines_of_the_log_are_purged,
    quotas_are_kept_and_live_tasks_are_counted,
    a_task_knows_the_token_it_was_submitted_with,
];
