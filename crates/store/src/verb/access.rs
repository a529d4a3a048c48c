//! Access: tokens, quotas, and the log of who changed what. A change and its line in the log are one transaction.

use super::{Memory, broken, types};
use crate::access::{
    Actor, AuditEntry, AuditQuery, BulkAudit, BulkLine, Credential, NewToken, Quota, Token, TypeChange,
};
use crate::access::{audit_id, audit_ids_since, sha256};
use crate::people::{Acted, Action};
use crate::plain::{IDS, Kind, PlainRow, ids, plain};
use crate::session::{Attempted, Session};
use crate::task::TaskDetail;
use crate::verb::watermark::LaneDue;
use crate::verbs::{Label, TaskType};
use crate::{StoreError, export};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use taskwheel_model::{TaskId, Time, limits};

/// Longer texts are in the log in short.
const SHOWN_BYTES_MAX: usize = 4_096;

const CREATE: &str = "
INSERT INTO task_token (id, secret_hash, role, tenant, types, rate_per_s, created_at, expires_at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)";

pub(super) async fn create_token(
    session: &mut dyn Session,
    (id, hash): (i64, &str),
    new: &NewToken,
    by: &Actor,
) -> Attempted<Token> {
    let now = session.now();
    let token = Token {
        id,
        role: new.role,
        tenant: new.tenant.clone(),
        types: new.types.clone(),
        rate_per_s: new.rate_per_s,
        created_at: now,
        expires_at: new.expires_ms.map(|ms| now.plus_ms(ms)),
        last_used_at: None,
        revoked_at: None,
    };
    let types = token.types.as_ref().map(|types| json!(types).to_string());
    let create = plain(CREATE).bind(id).bind(hash).bind(token.role.as_str()).bind(token.tenant.clone()).bind(types);
    let create = create.bind(token.rate_per_s).bind(now.0).bind(token.expires_at.map(|time| time.0));
    session.execute(&create).await?;
    let line = AuditEntry::new(now, by, token.tenant.as_deref(), "token.create", id.to_string());
    write_line(session, AuditEntry { after: token_json(&token), ..line }).await?;
    Ok(token)
}

pub(super) async fn revoke_token(session: &mut dyn Session, id: i64, by: &Actor) -> Attempted<Option<Token>> {
    let now = session.now();
    let Some(Credential { token, .. }) = credential(session, id).await? else { return Ok(None) };
    if token.revoked_at.is_some() {
        return Ok(Some(token));
    }
    session.execute(&plain("UPDATE task_token SET revoked_at = ? WHERE id = ?").bind(now.0).bind(id)).await?;
    let revoked = Token { revoked_at: Some(now), ..token };
    let (before, after) = (json!({"revoked_at": null}), json!({"revoked_at": export::rfc3339(now)}));
    let line = AuditEntry::new(now, by, revoked.tenant.as_deref(), "token.revoke", id.to_string());
    write_line(session, AuditEntry { before, after, ..line }).await?;
    Ok(Some(revoked))
}

fn token_json(token: &Token) -> Value {
    json!({"role": token.role, "tenant": token.tenant, "types": token.types, "rate_per_s": token.rate_per_s,
           "expires_at": token.expires_at.map(export::rfc3339)})
}

const TOKENS: &str = "
SELECT id, secret_hash, role, tenant, types, rate_per_s, created_at, expires_at, last_used_at, revoked_at
FROM task_token WHERE (? IS NULL OR id = ?) ORDER BY created_at, id";
const TOKEN_KINDS: [Kind; 10] = {
    use Kind::{Number, Text};
    [Number, Text, Text, Text, Text, Number, Number, Number, Number, Number]
};

pub(super) async fn credential(session: &mut dyn Session, id: i64) -> Attempted<Option<Credential>> {
    let rows = session.rows(&plain(TOKENS).bind(id).bind(id), &TOKEN_KINDS).await?;
    let found = rows.into_iter().next().map(read_token).transpose()?;
    let now = session.now();
    Ok(found.map(|(token, secret_hash)| Credential { is_valid: token.is_valid(now), token, secret_hash }))
}

pub(super) async fn tokens(session: &mut dyn Session) -> Attempted<Vec<Token>> {
    let all = plain(TOKENS).bind(None::<i64>).bind(None::<i64>);
    session.rows(&all, &TOKEN_KINDS).await?.into_iter().map(|row| read_token(row).map(|(token, _)| token)).collect()
}

fn read_token(mut row: PlainRow) -> Attempted<(Token, String)> {
    let (id, hash, role) = (row.number()?, row.text()?, row.text()?);
    let spoilt = |what: &str| StoreError::Database(format!("the {what} of token {id} cannot be read"));
    let token = Token {
        id,
        role: role.parse().map_err(|_| spoilt("role"))?,
        tenant: row.maybe_text()?,
        types: row.maybe_text()?.map(|types| serde_json::from_str(&types).map_err(|_| spoilt("types"))).transpose()?,
        rate_per_s: row.maybe_number()?,
        created_at: Time(row.number()?),
        expires_at: row.maybe_number()?.map(Time),
        last_used_at: row.maybe_number()?.map(Time),
        revoked_at: row.maybe_number()?.map(Time),
    };
    Ok((token, hash))
}

/// Whether there has ever been a token: none is ever removed.
pub(super) async fn has_tokens(session: &mut dyn Session) -> Attempted<bool> {
    let found = session.rows(&plain("SELECT id FROM task_token LIMIT 1"), &[Kind::Number]).await?;
    Ok(!found.is_empty())
}

pub(super) async fn token_used(session: &mut dyn Session, id: i64) -> Attempted<()> {
    let now = session.now().0;
    let used = plain("UPDATE task_token SET last_used_at = ? WHERE id = ?").bind(now).bind(id);
    session.execute(&used).await.map(drop)
}

pub(super) async fn put_quota(session: &mut dyn Session, tenant: &str, quota: Quota, by: &Actor) -> Attempted<()> {
    let before = quotas(session).await?.into_iter().find(|(name, _)| name == tenant).map(|(_, quota)| quota);
    session.execute(&plain("DELETE FROM task_quota WHERE tenant = ?").bind(tenant)).await?;
    if quota != Quota::default() {
        let put = plain("INSERT INTO task_quota (tenant, live_max, submits_per_s) VALUES (?, ?, ?)");
        session.execute(&put.bind(tenant).bind(quota.live_max).bind(quota.submits_per_s)).await?;
    }
    let value = |quota: Quota| json!({"live_max": quota.live_max, "submits_per_s": quota.submits_per_s});
    let line = AuditEntry::new(session.now(), by, Some(tenant), "tenant.quota", tenant.to_owned());
    let (before, after) = (value(before.unwrap_or_default()), value(quota));
    write_line(session, AuditEntry { before, after, ..line }).await
}

pub(super) async fn quotas(session: &mut dyn Session) -> Attempted<Vec<(String, Quota)>> {
    let sql = "SELECT tenant, live_max, submits_per_s FROM task_quota ORDER BY tenant";
    let rows = session.rows(&plain(sql), &[Kind::Text, Kind::Number, Kind::Number]).await?;
    rows.into_iter()
        .map(|mut row| {
            let tenant = row.text()?;
            Ok((tenant, Quota { live_max: row.maybe_number()?, submits_per_s: row.maybe_number()? }))
        })
        .collect()
}

const LIVE: &str = "
SELECT (SELECT count(*) FROM task_waiting WHERE tenant = ?) + (SELECT count(*) FROM task_running WHERE tenant = ?)";

/// How many tasks of a tenant live.
pub(super) async fn live_tasks(session: &mut dyn Session, tenant: &str) -> Attempted<u64> {
    let rows = session.rows(&plain(LIVE).bind(tenant).bind(tenant), &[Kind::Number]).await?;
    rows.into_iter().next().map_or(Ok(0), |mut row| row.number().map(i64::unsigned_abs))
}

/// What tasks go by.
pub(super) async fn labels_of(session: &mut dyn Session, of: &[TaskId]) -> Attempted<HashMap<TaskId, Label>> {
    let rows = ids(of.iter().map(|id| id.0));
    let find = plain("SELECT t.id, t.tenant, t.type, t.trace_parent FROM ").rows(IDS, rows);
    let find = find.and(" JOIN task t ON t.id = n.id");
    let rows = session.rows(&find, &[Kind::Number, Kind::Text, Kind::Text, Kind::Text]).await?;
    let label = |mut row: PlainRow| {
        let id = TaskId(row.number()?);
        Ok((id, Label { tenant: row.text()?, task_type: row.text()?, trace_parent: row.maybe_text()? }))
    };
    rows.into_iter().map(label).collect()
}

/// The places of those unique keys that are live in tasks which were not submitted with this token.
pub(super) async fn keys_of_others(
    session: &mut dyn Session,
    tenant: &str,
    token_id: i64,
    keys: &[(String, String)],
) -> Attempted<Vec<usize>> {
    let keys: Vec<_> = keys.iter().map(|(task_type, key)| (tenant, &**task_type, &**key)).collect();
    let live = session.live_unique(&keys).await?;
    let find = plain("SELECT t.id FROM ").rows(IDS, ids(live.iter().flatten().map(|id| id.0)));
    let find = find.and(" JOIN task t ON t.id = n.id WHERE t.token_id = ?").bind(token_id);
    let rows = session.rows(&find, &[Kind::Number]).await?;
    let own = rows.into_iter().map(|mut row| row.number().map(TaskId)).collect::<Attempted<HashSet<_>>>()?;
    let is_of_another = |id: &Option<TaskId>| id.is_some_and(|id| !own.contains(&id));
    Ok((0..live.len()).filter(|place| is_of_another(&live[*place])).collect())
}

/// Does something to a task, with a line in the log that says what is otherwise now.
pub(super) async fn act_as(
    session: &mut dyn Session,
    memory: &Memory,
    by: &Actor,
    (tenant, id): (Option<&str>, TaskId),
    action: &Action,
) -> Attempted<(Acted, Vec<LaneDue>)> {
    let before = session.show(id).await?;
    if let Some(acted) = broken::action(action, tenant, before.as_ref()) {
        return Ok((acted, Vec::new()));
    }
    let (answers, dues) = super::act::act(session, memory, tenant, &[id], action).await?;
    let acted = answers.first().copied().unwrap_or(Acted::NotFound);
    if let (Acted::Changed(_), Some(before)) = (acted, before) {
        let after = session.show(id).await?;
        let (was, became) = difference(shown(&before), after.as_ref().map(shown));
        if was != became {
            let action = format!("task.{}", action.word());
            let line = AuditEntry::new(session.now(), by, Some(&before.task.tenant), &action, id.0.to_string());
            write_line(session, AuditEntry { before: was, after: became, ..line }).await?;
        }
    }
    Ok((acted, dues))
}

/// A task as the log compares and shows it: JSON that came from outside as the text it is, so that no difference is lost by
/// reading it, and what is long in short.
fn shown(detail: &TaskDetail) -> Value {
    let mut value = export::value(detail);
    let task = &detail.task;
    for (name, text) in [("payload", &task.payload), ("result", &task.result), ("checkpoint", &task.checkpoint)] {
        value[name] = text.as_deref().map_or(Value::Null, in_short);
    }
    value
}

/// A text, or where it is long, its beginning, its length and its hash.
fn in_short(text: &str) -> Value {
    if text.len() <= SHOWN_BYTES_MAX {
        return text.into();
    }
    let begins: String = text.chars().take(200).collect();
    json!({"begins": begins, "bytes": text.len(), "sha256": sha256(text)})
}

/// What differs between two objects, of each; all of the first where there is no second.
pub(super) fn difference(before: Value, after: Option<Value>) -> (Value, Value) {
    let (Value::Object(before), Some(Value::Object(after))) = (before.clone(), after) else {
        return (before, Value::Null);
    };
    let changed = |name: &&String| before.get(*name) != after.get(*name);
    let names: Vec<_> = after.keys().filter(|name| *name != "updated_at").filter(changed).cloned().collect();
    let of = |from: &Map<String, Value>| {
        names.iter().map(|name| (name.clone(), from.get(name).cloned().unwrap_or_default())).collect()
    };
    (Value::Object(of(&before)), Value::Object(of(&after)))
}

/// Writes the lines of an action on many tasks, each in the place of the one that an earlier chunk wrote: of whose task it was, and
/// whether that changed.
pub(super) async fn bulk_lines<'t>(
    session: &mut dyn Session,
    audit: &BulkAudit,
    acted: impl Iterator<Item = (&'t str, bool)>,
) -> Attempted<BTreeMap<String, BulkLine>> {
    let now = session.now();
    let mut lines: BTreeMap<String, BulkLine> = BTreeMap::new();
    for (tenant, is_changed) in acted {
        let earlier = || audit.lines.get(tenant).cloned();
        let line = lines
            .entry(tenant.to_owned())
            .or_insert_with(|| earlier().unwrap_or_else(|| BulkLine { id: audit_id(now), matched: 0, changed: 0 }));
        line.matched += 1;
        line.changed += u64::from(is_changed);
    }
    for (tenant, BulkLine { id, matched, changed }) in &lines {
        session.execute(&plain("DELETE FROM task_audit WHERE id = ?").bind(&**id)).await?;
        let counts = json!({"matched": matched, "changed": changed});
        let mut detail = Map::new();
        for part in [&audit.call, &counts] {
            detail.extend(part.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), value.clone())));
        }
        let line = AuditEntry::new(now, &audit.by, Some(tenant), "task.bulk", String::new());
        write_line(session, AuditEntry { id: id.clone(), detail: Value::Object(detail), ..line }).await?;
    }
    Ok(lines)
}

/// Changes a type, with a line in the log.
pub(super) async fn change_type(
    session: &mut dyn Session,
    by: Option<&Actor>,
    change: &TypeChange,
) -> Attempted<TaskType> {
    let find = |types: Vec<TaskType>| types.into_iter().find(|one| one.task_type == change.task_type);
    let before = find(types::all(session).await?);
    types::put(session, change).await?;
    let Some(after) = find(types::all(session).await?) else {
        return Err(StoreError::Database("a type was not stored".into()).into());
    };
    if let Some(by) = by {
        let action = match change.paused {
            None => "type.put",
            Some(true) => "type.pause",
            Some(false) => "type.resume",
        };
        let (was, became) = difference(type_json(before.as_ref()), Some(type_json(Some(&after))));
        let line = AuditEntry::new(session.now(), by, None, action, change.task_type.clone());
        write_line(session, AuditEntry { before: was, after: became, ..line }).await?;
    }
    Ok(after)
}

fn type_json(one: Option<&TaskType>) -> Value {
    let Some(TaskType { settings, paused, .. }) = one else { return json!({}) };
    json!({"name": settings.name, "category": settings.category, "retry": settings.retry,
           "max_attempts": settings.max_attempts, "timeout_ms": settings.timeout_ms,
           "need_manual": settings.need_manual, "priority": settings.priority, "paused": paused})
}

const WRITE: &str = "
INSERT INTO task_audit (id, made_at, token_id, actor, tenant, action, target, was, became, detail)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

pub(super) async fn write_line(session: &mut dyn Session, line: AuditEntry) -> Attempted<()> {
    let text = |value: &Value| (!value.is_null()).then(|| value.to_string());
    let write = plain(WRITE).bind(line.id).bind(line.at.0).bind(line.actor.token_id).bind(line.actor.name);
    let write = write.bind(line.tenant).bind(line.action).bind(line.target);
    let write = write.bind(text(&line.before)).bind(text(&line.after)).bind(text(&line.detail));
    session.execute(&write).await.map(drop)
}

const LINES: &str =
    "SELECT id, made_at, token_id, actor, tenant, action, target, was, became, detail FROM task_audit WHERE id < ?";

/// Each filter has an index of its own, and only what is asked for is in the statement.
pub(super) async fn audit(session: &mut dyn Session, query: &AuditQuery) -> Attempted<Vec<AuditEntry>> {
    use Kind::{Number, Text};
    // Behind every id.
    let before = query.before.clone().unwrap_or_else(|| "~".into());
    let mut lines = plain(LINES).bind(before);
    let filters =
        [(" AND tenant = ?", &query.tenant), (" AND action = ?", &query.action), (" AND target = ?", &query.target)];
    for (condition, value) in filters {
        if let Some(value) = value {
            lines = lines.and(condition).bind(&**value);
        }
    }
    let lines = lines.and(" ORDER BY id DESC LIMIT ?").bind(query.limit as i64);
    let kinds = [Text, Number, Number, Text, Text, Text, Text, Text, Text, Text];
    session.rows(&lines, &kinds).await?.into_iter().map(read_line).collect()
}

/// The ids grow with time, so that the oldest lines are the first of the primary key.
pub(super) async fn purge_audit(session: &mut dyn Session, keep_ms: i64) -> Attempted<u64> {
    let end = audit_ids_since(session.now().plus_ms(-keep_ms));
    let find = plain("SELECT id FROM task_audit WHERE id < ? ORDER BY id LIMIT ?").bind(end);
    let old = session.rows(&find.bind(limits::CHUNK_ROWS_MAX as i64), &[Kind::Text]).await?;
    let Some(mut last) = old.into_iter().next_back() else { return Ok(0) };
    session.execute(&plain("DELETE FROM task_audit WHERE id <= ?").bind(last.text()?)).await
}

fn read_line(mut row: PlainRow) -> Attempted<AuditEntry> {
    let (id, at) = (row.text()?, Time(row.number()?));
    let actor = Actor { token_id: row.maybe_number()?, name: row.text()? };
    let (tenant, action, target) = (row.maybe_text()?, row.text()?, row.text()?);
    let mut value = || {
        let text = row.maybe_text()?;
        Ok::<_, crate::session::Fault>(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    };
    let (before, after, detail) = (value()?, value()?, value()?);
    Ok(AuditEntry { id, at, actor, tenant, action, target, before, after, detail })
}
