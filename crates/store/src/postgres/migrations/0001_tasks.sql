-- Tasks: what was submitted (task, once and for all), and how it stands, in the one of three places where it is:
-- task_waiting, task_running or task_history. docs/schema.md describes them; docs/decisions/0002 says why they are split so.
--
-- Where another index ends with the id, the primary key is made last. Of a table that was empty when it was last vacuumed, the planner
-- expects no rows: then all indexes in which it finds a column cost the same, and it takes the youngest.

CREATE TABLE task (
    id           bigint GENERATED ALWAYS AS IDENTITY,
    tenant       text COLLATE "C" NOT NULL DEFAULT 'default' CHECK (char_length(tenant) BETWEEN 1 AND 64),
    -- A regular expression would cost more than an index.
    type         text COLLATE "C" NOT NULL CHECK (char_length(type) BETWEEN 1 AND 200
                     AND ltrim(type, 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:-') = ''),
    task_key     text COLLATE "C" CHECK (char_length(task_key) <= 200),
    payload      json CHECK (octet_length(payload::text) <= 262144),
    priority     smallint NOT NULL DEFAULT 1 CHECK (priority BETWEEN 1 AND 9),
    run_at       timestamptz(3) NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp()),
    expire_at    timestamptz(3),
    max_attempts integer CHECK (max_attempts = -1 OR max_attempts >= 1),
    retry        json,
    timeout_ms   bigint CHECK (timeout_ms = -1 OR timeout_ms >= 1),
    category     text COLLATE "C" CHECK (char_length(category) BETWEEN 1 AND 200),
    creator      text COLLATE "C" CHECK (char_length(creator) BETWEEN 1 AND 64),
    route_key    text COLLATE "C" CHECK (char_length(route_key) <= 200),
    slot         smallint CHECK (slot BETWEEN 0 AND 1023),
    unique_key   text COLLATE "C" CHECK (char_length(unique_key) BETWEEN 1 AND 200),
    affinity     text COLLATE "C" CHECK (char_length(affinity) BETWEEN 1 AND 64),
    schedule_id  bigint,
    run_id       bigint,
    parent_id    bigint,
    root_id      bigint,
    token_id     bigint,
    trace_parent text,
    context      text,
    remark       text,
    created_at   timestamptz(3) NOT NULL DEFAULT date_trunc('milliseconds', clock_timestamp())
);
CREATE INDEX task_by_id ON task (tenant, id);
CREATE INDEX task_by_type ON task (tenant, type, id);
CREATE INDEX task_by_run_at ON task (tenant, run_at, id);
CREATE INDEX task_by_created_at ON task (created_at, id);
CREATE INDEX task_by_key ON task (tenant, task_key, id) WHERE task_key IS NOT NULL;
CREATE INDEX task_by_creator ON task (tenant, creator, id) WHERE creator IS NOT NULL;
CREATE INDEX task_by_category ON task (tenant, category, id) WHERE category IS NOT NULL;
CREATE INDEX task_by_schedule ON task (tenant, schedule_id, id) WHERE schedule_id IS NOT NULL;
ALTER TABLE task ADD PRIMARY KEY (id);

-- Tasks that wait: for their time, for a worker (1 New, 5 Error), or parked for a callback or a person (4 Completed,
-- 7 Pending; their lane is empty, so that no claim looks there). Times are milliseconds since 1970.
CREATE TABLE task_waiting (
    id           bigint NOT NULL,
    tenant       text COLLATE "C" NOT NULL,
    type         text COLLATE "C" NOT NULL,
    lane         text COLLATE "C" NOT NULL,
    rank         smallint NOT NULL,
    due          bigint NOT NULL,
    status       smallint NOT NULL CHECK (status IN (1, 4, 5, 7)),
    round        integer NOT NULL,
    attempts     integer NOT NULL,
    error_count  integer NOT NULL,
    error_info   text,
    checkpoint   text,
    progress     text,
    result       text,
    expire_at    bigint,
    category     text COLLATE "C",
    creator      text COLLATE "C",
    unique_key   text COLLATE "C",
    run_id       bigint,
    affinity     text COLLATE "C",
    hold_exec_id uuid,
    hold_until   bigint,
    check_at     bigint,
    updated_at   bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX task_waiting_claim ON task_waiting (lane, rank, due, id);
CREATE INDEX task_waiting_claim_tenant ON task_waiting (tenant, lane, rank, due, id) WHERE tenant <> 'default';
CREATE INDEX task_waiting_claim_category ON task_waiting (category, rank, due, id) WHERE category IS NOT NULL AND lane <> '';
CREATE INDEX task_waiting_check ON task_waiting (check_at) WHERE check_at IS NOT NULL;
CREATE INDEX task_waiting_by_status ON task_waiting (tenant, status, id) WHERE status <> 1;
ALTER TABLE task_waiting ADD PRIMARY KEY (id);

-- Tasks that a worker has: status 2, Executing. The primary key is the promise of at most one execution.
CREATE TABLE task_running (
    id           bigint PRIMARY KEY,
    tenant       text COLLATE "C" NOT NULL,
    type         text COLLATE "C" NOT NULL,
    rank         smallint NOT NULL,
    due          bigint NOT NULL,
    status       smallint NOT NULL CHECK (status = 2),
    round        integer NOT NULL,
    attempts     integer NOT NULL,
    error_count  integer NOT NULL,
    error_info   text,
    checkpoint   text,
    progress     text,
    result       text,
    expire_at    bigint,
    category     text COLLATE "C",
    creator      text COLLATE "C",
    unique_key   text COLLATE "C",
    run_id       bigint,
    affinity     text COLLATE "C",
    exec_id      uuid NOT NULL,
    worker_id    text COLLATE "C" NOT NULL,
    host         text COLLATE "C" NOT NULL,
    started_at   bigint NOT NULL,
    deadline     bigint,
    heartbeat_ms bigint,
    named        smallint NOT NULL,
    lease_until  bigint,
    check_at     bigint NOT NULL,
    updated_at   bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX task_running_check ON task_running (check_at);

-- The unique keys of live tasks.
CREATE TABLE task_unique (
    tenant     text COLLATE "C" NOT NULL,
    type       text COLLATE "C" NOT NULL,
    unique_key text COLLATE "C" NOT NULL,
    id         bigint NOT NULL,
    CONSTRAINT task_unique_key PRIMARY KEY (tenant, type, unique_key)
);

-- What calls with an idempotency key were answered, and a number for what they asked for.
CREATE TABLE task_answer (
    tenant          text COLLATE "C" NOT NULL,
    idempotency_key text COLLATE "C" NOT NULL,
    id              bigint NOT NULL,
    created         boolean NOT NULL,
    answered_at     bigint NOT NULL,
    fingerprint     bigint NOT NULL,
    CONSTRAINT task_answer_key PRIMARY KEY (tenant, idempotency_key)
);
CREATE INDEX task_answer_by_time ON task_answer (answered_at);

-- Statuses: 3 Success, 6 Failure, 8 ManuallyProcessed, 9 Cancelled.
CREATE TABLE task_history (
    id           bigint PRIMARY KEY,
    tenant       text COLLATE "C" NOT NULL,
    status       smallint NOT NULL CHECK (status IN (3, 6, 8, 9)),
    round        integer NOT NULL,
    attempts     integer NOT NULL,
    error_count  integer NOT NULL,
    error_info   text,
    checkpoint   text,
    progress     text,
    result       text,
    affinity     text COLLATE "C",
    hold_until   bigint,
    exec_id      uuid,
    worker_id    text COLLATE "C",
    host         text COLLATE "C",
    started_at   bigint,
    outcome      smallint,
    finished_at  bigint NOT NULL,
    updated_at   bigint NOT NULL
);
CREATE INDEX task_history_by_status ON task_history (tenant, status, id) WHERE status <> 3;
-- Finished tasks lie in the order of their ends, so that a few bytes per megabyte say where the old ones are.
CREATE INDEX task_history_by_end ON task_history USING brin (finished_at) WITH (pages_per_range = 128, autosummarize = on);

-- Where the tasks of a host ('host:' and its name) and those that succeeded ('Success') are in the history: a bucket is 256 ids. What ends
-- together makes one row for each bucket, where an index over the history would have an entry for each task. A row may be there twice.
CREATE TABLE task_history_mark (
    tenant text COLLATE "C" NOT NULL,
    mark   text COLLATE "C" NOT NULL,
    bucket bigint NOT NULL
);
CREATE INDEX task_history_mark_by_bucket ON task_history_mark (tenant, mark, bucket);
-- Its rows have no key, and those who replicate all tables could not remove any.
ALTER TABLE task_history_mark REPLICA IDENTITY FULL;

-- Attempts that did not end their task. The last attempt of a finished task is in its row of history.
CREATE TABLE task_attempt (
    task_id     bigint NOT NULL,
    exec_id     uuid NOT NULL,
    round       integer NOT NULL,
    attempt     integer NOT NULL,
    host        text COLLATE "C",
    worker_id   text COLLATE "C",
    started_at  bigint NOT NULL,
    finished_at bigint NOT NULL,
    outcome     smallint NOT NULL,
    error       text,
    PRIMARY KEY (task_id, exec_id)
);

CREATE TABLE task_type (
    type         text COLLATE "C" PRIMARY KEY,
    name         text,
    category     text COLLATE "C",
    retry        text,
    max_attempts bigint,
    timeout_ms   bigint,
    need_manual  boolean NOT NULL DEFAULT false,
    priority     bigint,
    paused       boolean NOT NULL DEFAULT false,
    updated_at   bigint NOT NULL
);

CREATE TABLE task_worker (
    worker_id    text COLLATE "C" PRIMARY KEY,
    host         text COLLATE "C" NOT NULL,
    app          text COLLATE "C",
    types        text NOT NULL,
    categories   text NOT NULL,
    heartbeat_ms bigint,
    started_at   bigint NOT NULL,
    seen_at      bigint NOT NULL,
    tenant       text COLLATE "C"
);

-- When somebody last looked after the clocks of executions: while nobody does, the silence of workers says nothing.
CREATE TABLE task_watch (
    only_row  boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    looked_at bigint NOT NULL
);
INSERT INTO task_watch (looked_at) VALUES (0);

-- How executions went, by minute, type and the engine that saw them. They outlive the tasks.
CREATE TABLE task_statistics (
    minute         bigint NOT NULL,
    tenant         text COLLATE "C" NOT NULL,
    type           text COLLATE "C" NOT NULL,
    node           text COLLATE "C" NOT NULL,
    success_first  bigint NOT NULL,
    success_second bigint NOT NULL,
    success_later  bigint NOT NULL,
    errors         bigint NOT NULL,
    failures       bigint NOT NULL,
    wait_ms        text NOT NULL,
    run_ms         text NOT NULL,
    PRIMARY KEY (minute, tenant, type, node)
);

-- Who may call. Only the hash of a secret is kept, and a row is never removed: a token that was revoked has existed.
CREATE TABLE task_token (
    id           bigint NOT NULL PRIMARY KEY,
    secret_hash  text COLLATE "C" NOT NULL,
    role         text COLLATE "C" NOT NULL,
    tenant       text COLLATE "C",
    types        text,
    rate_per_s   bigint,
    created_at   bigint NOT NULL,
    expires_at   bigint,
    last_used_at bigint,
    revoked_at   bigint
);

-- What a tenant may have.
CREATE TABLE task_quota (
    tenant        text COLLATE "C" NOT NULL PRIMARY KEY,
    live_max      bigint,
    submits_per_s bigint
);

-- Who changed what. The ids grow with time.
CREATE TABLE task_audit (
    id       text COLLATE "C" NOT NULL PRIMARY KEY,
    made_at  bigint NOT NULL,
    token_id bigint,
    actor    text COLLATE "C" NOT NULL,
    tenant   text COLLATE "C",
    action   text COLLATE "C" NOT NULL,
    target   text COLLATE "C" NOT NULL,
    was      text,
    became   text,
    detail   text
);
CREATE INDEX task_audit_by_tenant ON task_audit (tenant, id);
CREATE INDEX task_audit_by_action ON task_audit (action, id);
CREATE INDEX task_audit_by_target ON task_audit (target, id);

-- The ids of schedules, timers and runs.
CREATE TABLE task_sequence (
    only_row bigint NOT NULL PRIMARY KEY CHECK (only_row = 1),
    next_id  bigint NOT NULL
);
INSERT INTO task_sequence (only_row, next_id) VALUES (1, 1);

-- What fires, and when. The definition is JSON; each edit is a new version of it and of all its timers.
CREATE TABLE task_schedule (
    id         bigint NOT NULL,
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    type       text COLLATE "C" NOT NULL,
    status     text COLLATE "C" NOT NULL,
    definition text NOT NULL,
    version    bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL
);
CREATE INDEX task_schedule_by_tenant ON task_schedule (tenant, id);
ALTER TABLE task_schedule ADD PRIMARY KEY (id);

-- The timers of schedules. cursor_at is the due time that comes next; next_due is the same while the timer can fire.
CREATE TABLE task_timer (
    id          bigint NOT NULL PRIMARY KEY,
    schedule_id bigint NOT NULL,
    version     bigint NOT NULL,
    place       bigint NOT NULL,
    spec        text NOT NULL,
    has_begun   bigint NOT NULL,
    cursor_at   bigint,
    next_due    bigint
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX task_timer_due ON task_timer (next_due, id) WHERE next_due IS NOT NULL;
CREATE INDEX task_timer_by_schedule ON task_timer (schedule_id, place);

-- Firings. 1 Queued, 2 Running, 3 Done, 4 Failed, 5 TimedOut, 6 Skipped, 7 Cancelled. A run of one task names it; what
-- another is made of is kept with it, so that an edit of its schedule does not reach it.
CREATE TABLE task_run (
    id          bigint NOT NULL,
    tenant      text COLLATE "C" NOT NULL,
    schedule_id bigint NOT NULL,
    timer_id    bigint,
    task_id     bigint,
    due_at      bigint NOT NULL,
    status      bigint NOT NULL CHECK (status BETWEEN 1 AND 7),
    log         text COLLATE "C" NOT NULL,
    overlap     text COLLATE "C" NOT NULL,
    rearms      bigint NOT NULL,
    reason      text,
    error       text,
    host        text COLLATE "C",
    definition  text,
    started_at  bigint,
    finished_at bigint,
    CONSTRAINT task_run_once UNIQUE (timer_id, due_at)
);
CREATE INDEX task_run_by_schedule ON task_run (schedule_id, id);
CREATE INDEX task_run_by_tenant ON task_run (tenant, id);
CREATE INDEX task_run_by_end ON task_run (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX task_run_live ON task_run (schedule_id, status, id) WHERE status <= 2;
ALTER TABLE task_run ADD PRIMARY KEY (id);

-- The tasks of runs that have more than one, or may have. The path is the place of a task's node in the tree: empty at the root, then 0, 0.2 and so on.
CREATE TABLE task_step (
    run_id  bigint NOT NULL,
    task_id bigint NOT NULL,
    path    text COLLATE "C" NOT NULL,
    shard   bigint,
    status  bigint NOT NULL,
    result  text,
    PRIMARY KEY (run_id, task_id)
);

-- A plain INSERT INTO task is a whole submit: this puts the task where claims find it, in the same transaction.
CREATE FUNCTION task_goes_live() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO task_waiting (id, tenant, type, lane, rank, due, status, round, attempts, error_count, expire_at,
                              category, creator, unique_key, run_id, affinity, check_at, updated_at)
    SELECT id, tenant, type, CASE WHEN affinity IS NULL THEN type ELSE type || '@' || affinity END, 9 - priority,
           (date_part('epoch', run_at) * 1000)::bigint, 1, 1, 0, 0, (date_part('epoch', expire_at) * 1000)::bigint,
           category, creator, unique_key, run_id, affinity,
           LEAST((date_part('epoch', expire_at) * 1000)::bigint,
                 CASE WHEN affinity IS NOT NULL THEN (date_part('epoch', run_at) * 1000)::bigint END),
           (date_part('epoch', created_at) * 1000)::bigint
    FROM fresh;
    INSERT INTO task_unique (tenant, type, unique_key, id)
    SELECT tenant, type, unique_key, id FROM fresh WHERE unique_key IS NOT NULL;
    -- Wakes who waits for such tasks at any node, when this commits: who says it, from when on (0 is now), which type. Transactions that
    -- notify commit one after the other, so of those that insert tasks of a type at once only one does: a lock says which. There are 16 of
    -- them (of the letters "task"), because a transaction can have only so many.
    IF COALESCE(current_setting('taskwheel.notify', true), '') <> 'off' THEN
        PERFORM pg_notify('taskwheel', '- ' || CASE WHEN due <= clock_timestamp() THEN 0
                                                    ELSE (date_part('epoch', due) * 1000)::bigint END || ' ' || type)
        FROM (SELECT type, min(run_at) AS due FROM fresh WHERE run_at <= clock_timestamp() + interval '5 seconds'
              GROUP BY type LIMIT 100) AS soon
        WHERE pg_try_advisory_xact_lock(1952543595, hashtext(type) & 15);
    END IF;
    RETURN NULL;
END $$;
-- Where a statement of the store begins a task as it inserts it, the task waits nowhere: that statement says so.
CREATE TRIGGER task_goes_live AFTER INSERT ON task
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT
    WHEN (current_setting('taskwheel.begun', true) IS DISTINCT FROM 'on') EXECUTE FUNCTION task_goes_live();

CREATE FUNCTION task_time(ms bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
    $$ SELECT to_timestamp(ms / 1000.0) $$;

-- Everything about every task, for people: live and finished, the status as a word, times as times.
CREATE VIEW task_view AS
SELECT t.id, t.tenant, t.type, t.task_key, t.payload,
       (ARRAY['New', 'Executing', 'Success', 'Completed', 'Error', 'Failure', 'Pending', 'ManuallyProcessed', 'Cancelled'])
           [COALESCE(w.status, r.status, h.status)] AS status,
       t.priority, t.run_at, t.expire_at, t.max_attempts, t.retry, t.timeout_ms, t.category, t.creator, t.route_key,
       COALESCE(t.slot, (t.id % 1024)::smallint) AS slot, t.unique_key,
       COALESCE(w.affinity, r.affinity, h.affinity) AS affinity,
       COALESCE(w.round, r.round, h.round) AS round,
       COALESCE(w.attempts, r.attempts, h.attempts) AS attempts,
       COALESCE(w.error_count, r.error_count, h.error_count) AS error_count,
       COALESCE(w.error_info, r.error_info, h.error_info) AS error_info,
       COALESCE(w.result, r.result, h.result)::json AS result,
       COALESCE(w.checkpoint, r.checkpoint, h.checkpoint)::json AS checkpoint,
       COALESCE(w.progress, r.progress, h.progress)::json AS progress,
       COALESCE(r.host, h.host) AS host, COALESCE(r.worker_id, h.worker_id) AS worker_id,
       COALESCE(r.exec_id, h.exec_id) AS exec_id,
       task_time(r.started_at) AS locked_at,
       task_time(COALESCE(r.lease_until, GREATEST(r.started_at, CASE WHEN r.named = 1 THEN k.seen_at END) + 3 * r.heartbeat_ms))
           AS lease_until,
       task_time(COALESCE(r.started_at, h.started_at)) AS started_at, task_time(h.finished_at) AS finished_at,
       h.finished_at - h.started_at AS exec_ms, t.created_at,
       task_time(COALESCE(w.updated_at, r.updated_at, h.updated_at)) AS updated_at,
       t.remark, t.schedule_id, t.run_id, t.parent_id, t.root_id, t.token_id, t.trace_parent, t.context::json AS context
FROM task t
LEFT JOIN task_waiting w ON w.id = t.id
LEFT JOIN task_running r ON r.id = t.id
LEFT JOIN task_history h ON h.id = t.id
LEFT JOIN task_worker k ON k.worker_id = r.worker_id;
