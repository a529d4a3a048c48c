-- Tasks: what was submitted (task, once and for all), and how it stands, in the one of three places where it is:
-- task_waiting, task_running or task_history. docs/schema.md describes them; docs/decisions/0002 says why they are split so.
-- Only functions that SQLite 3.37 has, since plain SQL comes from whatever SQLite its writer has.
-- All times are milliseconds since 1970. Tables are STRICT, so that a time or a number given as text is refused. Checks spell
-- out their lists with OR: for an IN of more than two values SQLite makes a temporary table at each insert.

CREATE TABLE task (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    tenant       TEXT NOT NULL DEFAULT 'default' CHECK (length(tenant) BETWEEN 1 AND 64),
    type         TEXT NOT NULL CHECK (length(type) BETWEEN 1 AND 200 AND type NOT GLOB '*[^A-Za-z0-9_.:-]*'),
    task_key     TEXT CHECK (length(task_key) <= 200),
    payload      TEXT CHECK (payload IS NULL OR json_valid(payload) AND length(CAST(payload AS BLOB)) <= 262144),
    priority     INTEGER NOT NULL DEFAULT 1 CHECK (priority BETWEEN 1 AND 9),
    run_at       INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER))
                     CHECK (run_at BETWEEN -140737488355328 AND 9224318015999999),
    expire_at    INTEGER,
    max_attempts INTEGER CHECK (max_attempts = -1 OR max_attempts BETWEEN 1 AND 2147483647),
    retry        TEXT CHECK (retry IS NULL OR json_valid(retry)),
    timeout_ms   INTEGER CHECK (timeout_ms = -1 OR timeout_ms >= 1),
    category     TEXT CHECK (length(category) BETWEEN 1 AND 200),
    creator      TEXT CHECK (length(creator) BETWEEN 1 AND 64),
    route_key    TEXT CHECK (length(route_key) <= 200),
    slot         INTEGER CHECK (slot BETWEEN 0 AND 1023),
    unique_key   TEXT CHECK (length(unique_key) BETWEEN 1 AND 200),
    affinity     TEXT CHECK (length(affinity) BETWEEN 1 AND 64),
    schedule_id  INTEGER,
    run_id       INTEGER,
    parent_id    INTEGER,
    root_id      INTEGER,
    token_id     INTEGER,
    trace_parent TEXT,
    context      TEXT,
    remark       TEXT,
    created_at   INTEGER NOT NULL DEFAULT (CAST(round((julianday('now') - 2440587.5) * 86400000) AS INTEGER))
) STRICT;
CREATE INDEX task_by_id ON task (tenant, id);
CREATE INDEX task_by_type ON task (tenant, type, id);
CREATE INDEX task_by_run_at ON task (tenant, run_at, id);
CREATE INDEX task_by_created_at ON task (created_at, id);
CREATE INDEX task_by_key ON task (tenant, task_key, id) WHERE task_key IS NOT NULL;
CREATE INDEX task_by_creator ON task (tenant, creator, id) WHERE creator IS NOT NULL;
CREATE INDEX task_by_category ON task (tenant, category, id) WHERE category IS NOT NULL;
CREATE INDEX task_by_schedule ON task (tenant, schedule_id, id) WHERE schedule_id IS NOT NULL;

-- Tasks that wait: for their time, for a worker (1 New, 5 Error), or parked for a callback or a person (4 Completed,
-- 7 Pending; their lane is empty, so that no claim looks there).
CREATE TABLE task_waiting (
    id           INTEGER PRIMARY KEY,
    tenant       TEXT NOT NULL,
    type         TEXT NOT NULL,
    lane         TEXT NOT NULL,
    rank         INTEGER NOT NULL,
    due          INTEGER NOT NULL,
    status       INTEGER NOT NULL CHECK (status = 1 OR status = 4 OR status = 5 OR status = 7),
    round        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    error_count  INTEGER NOT NULL,
    error_info   TEXT,
    checkpoint   TEXT,
    progress     TEXT,
    result       TEXT,
    expire_at    INTEGER,
    category     TEXT,
    creator      TEXT,
    unique_key   TEXT,
    run_id       INTEGER,
    affinity     TEXT,
    hold_exec_id TEXT,
    hold_until   INTEGER,
    check_at     INTEGER,
    updated_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX task_waiting_claim ON task_waiting (lane, rank, due, id);
CREATE INDEX task_waiting_claim_tenant ON task_waiting (tenant, lane, rank, due, id) WHERE tenant <> 'default';
CREATE INDEX task_waiting_claim_category ON task_waiting (category, rank, due, id) WHERE category IS NOT NULL AND lane <> '';
CREATE INDEX task_waiting_check ON task_waiting (check_at, id) WHERE check_at IS NOT NULL;
-- One for each rare status: SQLite uses a partial index only where the query repeats its condition word by word.
CREATE INDEX task_waiting_by_completed ON task_waiting (tenant, id) WHERE status = 4;
CREATE INDEX task_waiting_by_error ON task_waiting (tenant, id) WHERE status = 5;
CREATE INDEX task_waiting_by_pending ON task_waiting (tenant, id) WHERE status = 7;

-- Tasks that a worker has: status 2, Executing. The primary key is the promise of at most one execution.
CREATE TABLE task_running (
    id           INTEGER PRIMARY KEY,
    tenant       TEXT NOT NULL,
    type         TEXT NOT NULL,
    rank         INTEGER NOT NULL,
    due          INTEGER NOT NULL,
    status       INTEGER NOT NULL CHECK (status = 2),
    round        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    error_count  INTEGER NOT NULL,
    error_info   TEXT,
    checkpoint   TEXT,
    progress     TEXT,
    result       TEXT,
    expire_at    INTEGER,
    category     TEXT,
    creator      TEXT,
    unique_key   TEXT,
    run_id       INTEGER,
    affinity     TEXT,
    exec_id      TEXT NOT NULL,
    worker_id    TEXT NOT NULL,
    host         TEXT NOT NULL,
    started_at   INTEGER NOT NULL,
    deadline     INTEGER,
    heartbeat_ms INTEGER,
    named        INTEGER NOT NULL,
    lease_until  INTEGER,
    check_at     INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX task_running_check ON task_running (check_at, id);

-- The unique keys of live tasks.
CREATE TABLE task_unique (
    tenant     TEXT NOT NULL,
    type       TEXT NOT NULL,
    unique_key TEXT NOT NULL,
    id         INTEGER NOT NULL,
    PRIMARY KEY (tenant, type, unique_key)
) STRICT, WITHOUT ROWID;

-- What calls with an idempotency key were answered, and a number for what they asked for.
CREATE TABLE task_answer (
    tenant          TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    id              INTEGER NOT NULL,
    created         INTEGER NOT NULL,
    answered_at     INTEGER NOT NULL,
    fingerprint     INTEGER NOT NULL,
    PRIMARY KEY (tenant, idempotency_key)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_answer_by_time ON task_answer (answered_at);

-- Statuses: 3 Success, 6 Failure, 8 ManuallyProcessed, 9 Cancelled.
CREATE TABLE task_history (
    id           INTEGER PRIMARY KEY,
    tenant       TEXT NOT NULL,
    status       INTEGER NOT NULL CHECK (status = 3 OR status = 6 OR status = 8 OR status = 9),
    round        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    error_count  INTEGER NOT NULL,
    error_info   TEXT,
    checkpoint   TEXT,
    progress     TEXT,
    result       TEXT,
    affinity     TEXT,
    hold_until   INTEGER,
    exec_id      TEXT,
    worker_id    TEXT,
    host         TEXT,
    started_at   INTEGER,
    outcome      INTEGER,
    finished_at  INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX task_history_by_status ON task_history (tenant, status, id);
CREATE INDEX task_history_by_host ON task_history (tenant, host, id) WHERE host IS NOT NULL;
-- For retention alone, which asks for it by this very expression: searches by status shall keep to the order of ids.
CREATE INDEX task_history_by_end ON task_history (status + 0, finished_at);

-- Attempts that did not end their task. The last attempt of a finished task is in its row of history.
CREATE TABLE task_attempt (
    task_id     INTEGER NOT NULL,
    exec_id     TEXT NOT NULL,
    round       INTEGER NOT NULL,
    attempt     INTEGER NOT NULL,
    host        TEXT,
    worker_id   TEXT,
    started_at  INTEGER NOT NULL,
    finished_at INTEGER NOT NULL,
    outcome     INTEGER NOT NULL,
    error       TEXT,
    PRIMARY KEY (task_id, exec_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE task_type (
    type         TEXT PRIMARY KEY NOT NULL,
    name         TEXT,
    category     TEXT,
    retry        TEXT,
    max_attempts INTEGER,
    timeout_ms   INTEGER,
    need_manual  INTEGER NOT NULL DEFAULT 0 CHECK (need_manual IN (0, 1)),
    priority     INTEGER,
    paused       INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    updated_at   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE task_worker (
    worker_id    TEXT PRIMARY KEY NOT NULL,
    host         TEXT NOT NULL,
    app          TEXT,
    types        TEXT NOT NULL,
    categories   TEXT NOT NULL,
    heartbeat_ms INTEGER,
    started_at   INTEGER NOT NULL,
    seen_at      INTEGER NOT NULL,
    tenant       TEXT
) STRICT, WITHOUT ROWID;

-- When somebody last looked after the clocks of executions: while nobody does, the silence of workers says nothing.
CREATE TABLE task_watch (
    only_row  INTEGER PRIMARY KEY DEFAULT 1 CHECK (only_row = 1),
    looked_at INTEGER NOT NULL
) STRICT;
INSERT INTO task_watch (only_row, looked_at) VALUES (1, 0);

-- How executions went, by minute, type and the engine that saw them. They outlive the tasks.
CREATE TABLE task_statistics (
    minute         INTEGER NOT NULL,
    tenant         TEXT NOT NULL,
    type           TEXT NOT NULL,
    node           TEXT NOT NULL,
    success_first  INTEGER NOT NULL,
    success_second INTEGER NOT NULL,
    success_later  INTEGER NOT NULL,
    errors         INTEGER NOT NULL,
    failures       INTEGER NOT NULL,
    wait_ms        TEXT NOT NULL,
    run_ms         TEXT NOT NULL,
    PRIMARY KEY (minute, tenant, type, node)
) STRICT, WITHOUT ROWID;

-- Who may call. Only the hash of a secret is kept, and a row is never removed: a token that was revoked has existed.
CREATE TABLE task_token (
    id           INTEGER NOT NULL PRIMARY KEY,
    secret_hash  TEXT NOT NULL,
    role         TEXT NOT NULL,
    tenant       TEXT,
    types        TEXT,
    rate_per_s   INTEGER,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    last_used_at INTEGER,
    revoked_at   INTEGER
) STRICT;

-- What a tenant may have.
CREATE TABLE task_quota (
    tenant        TEXT NOT NULL PRIMARY KEY,
    live_max      INTEGER,
    submits_per_s INTEGER
) STRICT;

-- Who changed what. The ids grow with time.
CREATE TABLE task_audit (
    id       TEXT NOT NULL PRIMARY KEY,
    made_at  INTEGER NOT NULL,
    token_id INTEGER,
    actor    TEXT NOT NULL,
    tenant   TEXT,
    action   TEXT NOT NULL,
    target   TEXT NOT NULL,
    was      TEXT,
    became   TEXT,
    detail   TEXT
) STRICT;
CREATE INDEX task_audit_by_tenant ON task_audit (tenant, id);
CREATE INDEX task_audit_by_action ON task_audit (action, id);
CREATE INDEX task_audit_by_target ON task_audit (target, id);

-- The ids of schedules, timers and runs.
CREATE TABLE task_sequence (
    only_row INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    next_id  INTEGER NOT NULL
) STRICT;
INSERT INTO task_sequence (only_row, next_id) VALUES (1, 1);

-- What fires, and when. The definition is JSON; each edit is a new version of it and of all its timers.
CREATE TABLE task_schedule (
    id         INTEGER NOT NULL PRIMARY KEY,
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    type       TEXT NOT NULL,
    status     TEXT NOT NULL,
    definition TEXT NOT NULL,
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX task_schedule_by_tenant ON task_schedule (tenant, id);

-- The timers of schedules. cursor_at is the due time that comes next; next_due is the same while the timer can fire.
CREATE TABLE task_timer (
    id          INTEGER NOT NULL PRIMARY KEY,
    schedule_id INTEGER NOT NULL,
    version     INTEGER NOT NULL,
    place       INTEGER NOT NULL,
    spec        TEXT NOT NULL,
    has_begun   INTEGER NOT NULL,
    cursor_at   INTEGER,
    next_due    INTEGER
) STRICT;
CREATE INDEX task_timer_due ON task_timer (next_due, id) WHERE next_due IS NOT NULL;
CREATE INDEX task_timer_by_schedule ON task_timer (schedule_id, place);

-- Firings. 1 Queued, 2 Running, 3 Done, 4 Failed, 5 TimedOut, 6 Skipped, 7 Cancelled. A run of one task names it; what
-- another is made of is kept with it, so that an edit of its schedule does not reach it.
CREATE TABLE task_run (
    id          INTEGER NOT NULL PRIMARY KEY,
    tenant      TEXT NOT NULL,
    schedule_id INTEGER NOT NULL,
    timer_id    INTEGER,
    task_id     INTEGER,
    due_at      INTEGER NOT NULL,
    status      INTEGER NOT NULL CHECK (status BETWEEN 1 AND 7),
    log         TEXT NOT NULL,
    overlap     TEXT NOT NULL,
    rearms      INTEGER NOT NULL,
    reason      TEXT,
    error       TEXT,
    host        TEXT,
    definition  TEXT,
    started_at  INTEGER,
    finished_at INTEGER,
    UNIQUE (timer_id, due_at)
) STRICT;
CREATE INDEX task_run_by_schedule ON task_run (schedule_id, id);
CREATE INDEX task_run_by_tenant ON task_run (tenant, id);
CREATE INDEX task_run_by_end ON task_run (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX task_run_live ON task_run (schedule_id, status, id) WHERE status <= 2;

-- The tasks of runs that have more than one, or may have. The path is the place of a task's node in the tree: empty at the root, then 0, 0.2 and so on.
CREATE TABLE task_step (
    run_id  INTEGER NOT NULL,
    task_id INTEGER NOT NULL,
    path    TEXT NOT NULL,
    shard   INTEGER,
    status  INTEGER NOT NULL,
    result  TEXT,
    PRIMARY KEY (run_id, task_id)
) STRICT;

-- A plain INSERT INTO task is a whole submit: this puts the task where claims find it, in the same transaction.
CREATE TRIGGER task_goes_live AFTER INSERT ON task
BEGIN
    INSERT INTO task_waiting (id, tenant, type, lane, rank, due, status, round, attempts, error_count, expire_at,
                              category, creator, unique_key, run_id, affinity, check_at, updated_at)
    VALUES (NEW.id, NEW.tenant, NEW.type,
            CASE WHEN NEW.affinity IS NULL THEN NEW.type ELSE NEW.type || '@' || NEW.affinity END, 9 - NEW.priority,
            NEW.run_at, 1, 1, 0, 0, NEW.expire_at, NEW.category, NEW.creator, NEW.unique_key, NEW.run_id,
            NEW.affinity,
            CASE WHEN NEW.affinity IS NULL THEN NEW.expire_at ELSE min(NEW.run_at, coalesce(NEW.expire_at, NEW.run_at)) END,
            NEW.created_at);
END;

-- An INSERT OR IGNORE or OR REPLACE hands its choice down to the statements of a trigger, and would leave two live tasks
-- with one key. RAISE is not subject to that, and says what the constraint would say.
CREATE TRIGGER task_takes_its_key AFTER INSERT ON task WHEN NEW.unique_key IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'UNIQUE constraint failed: task_unique.tenant, task_unique.type, task_unique.unique_key')
    FROM task_unique WHERE tenant = NEW.tenant AND type = NEW.type AND unique_key = NEW.unique_key;
    INSERT INTO task_unique (tenant, type, unique_key, id) VALUES (NEW.tenant, NEW.type, NEW.unique_key, NEW.id);
END;

-- Everything about every task, for people: live and finished, the status as a word, times as times in UTC.
CREATE VIEW task_view AS
SELECT t.id, t.tenant, t.type, t.task_key, t.payload,
       CASE COALESCE(w.status, r.status, h.status)
           WHEN 1 THEN 'New' WHEN 2 THEN 'Executing' WHEN 3 THEN 'Success' WHEN 4 THEN 'Completed' WHEN 5 THEN 'Error'
           WHEN 6 THEN 'Failure' WHEN 7 THEN 'Pending' WHEN 8 THEN 'ManuallyProcessed' WHEN 9 THEN 'Cancelled' END AS status,
       t.priority,
       strftime('%Y-%m-%dT%H:%M:%fZ', t.run_at / 1000.0, 'unixepoch') AS run_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', t.expire_at / 1000.0, 'unixepoch') AS expire_at,
       t.max_attempts, t.retry, t.timeout_ms, t.category, t.creator, t.route_key,
       COALESCE(t.slot, t.id % 1024) AS slot, t.unique_key,
       COALESCE(w.affinity, r.affinity, h.affinity) AS affinity,
       COALESCE(w.round, r.round, h.round) AS round,
       COALESCE(w.attempts, r.attempts, h.attempts) AS attempts,
       COALESCE(w.error_count, r.error_count, h.error_count) AS error_count,
       COALESCE(w.error_info, r.error_info, h.error_info) AS error_info,
       COALESCE(w.result, r.result, h.result) AS result,
       COALESCE(w.checkpoint, r.checkpoint, h.checkpoint) AS checkpoint,
       COALESCE(w.progress, r.progress, h.progress) AS progress,
       COALESCE(r.host, h.host) AS host, COALESCE(r.worker_id, h.worker_id) AS worker_id,
       COALESCE(r.exec_id, h.exec_id) AS exec_id,
       strftime('%Y-%m-%dT%H:%M:%fZ', r.started_at / 1000.0, 'unixepoch') AS locked_at,
       strftime('%Y-%m-%dT%H:%M:%fZ',
                COALESCE(r.lease_until, max(r.started_at, CASE WHEN r.named = 1 THEN COALESCE(k.seen_at, 0) ELSE 0 END)
                                        + 3 * r.heartbeat_ms) / 1000.0, 'unixepoch') AS lease_until,
       strftime('%Y-%m-%dT%H:%M:%fZ', COALESCE(r.started_at, h.started_at) / 1000.0, 'unixepoch') AS started_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', h.finished_at / 1000.0, 'unixepoch') AS finished_at,
       h.finished_at - h.started_at AS exec_ms,
       strftime('%Y-%m-%dT%H:%M:%fZ', t.created_at / 1000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', COALESCE(w.updated_at, r.updated_at, h.updated_at) / 1000.0, 'unixepoch') AS updated_at,
       t.remark, t.schedule_id, t.run_id, t.parent_id, t.root_id, t.token_id, t.trace_parent, t.context
FROM task t
LEFT JOIN task_waiting w ON w.id = t.id
LEFT JOIN task_running r ON r.id = t.id
LEFT JOIN task_history h ON h.id = t.id
LEFT JOIN task_worker k ON k.worker_id = r.worker_id;
