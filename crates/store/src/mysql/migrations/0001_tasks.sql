-- Tasks: what was submitted (task, once and for all), and how it stands, in the one of three places where it is:
-- task_waiting, task_running or task_history. docs/schema.md describes them; docs/decisions/0002 says why they are split so.
--
-- DDL commits by itself here, so that every statement can be run again after a start that was killed in the middle.
-- {bin} is the collation that compares bytes and does not ignore trailing spaces: MySQL and MariaDB name it differently.
-- `rank` is a reserved word in MySQL 8.

CREATE TABLE IF NOT EXISTS task (
    id           BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    tenant       VARCHAR(64) NOT NULL DEFAULT 'default' CHECK (CHAR_LENGTH(tenant) >= 1),
    type         VARCHAR(200) NOT NULL CHECK (CHAR_LENGTH(type) >= 1 AND type NOT REGEXP '[^A-Za-z0-9_.:-]'),
    task_key     VARCHAR(200),
    -- MariaDB cannot judge JSON that is nested more than 31 deep; with less than 32 brackets it is not.
    payload      LONGTEXT CHECK (JSON_VALID(payload)
                     OR CHAR_LENGTH(payload) - CHAR_LENGTH(REPLACE(REPLACE(payload, '[', ''), '{', '')) >= 32),
    priority     SMALLINT NOT NULL DEFAULT 1 CHECK (priority BETWEEN 1 AND 9),
    run_at       DATETIME(3) NOT NULL DEFAULT (UTC_TIMESTAMP(3)),
    expire_at    DATETIME(3),
    max_attempts INT CHECK (max_attempts = -1 OR max_attempts >= 1),
    retry        TEXT CHECK (JSON_VALID(retry)),
    timeout_ms   BIGINT CHECK (timeout_ms = -1 OR timeout_ms >= 1),
    category     VARCHAR(200) CHECK (CHAR_LENGTH(category) >= 1),
    creator      VARCHAR(64) CHECK (CHAR_LENGTH(creator) >= 1),
    route_key    VARCHAR(200),
    slot         SMALLINT CHECK (slot BETWEEN 0 AND 1023),
    unique_key   VARCHAR(200) CHECK (CHAR_LENGTH(unique_key) >= 1),
    affinity     VARCHAR(64) CHECK (CHAR_LENGTH(affinity) >= 1),
    schedule_id  BIGINT,
    run_id       BIGINT,
    parent_id    BIGINT,
    root_id      BIGINT,
    token_id     BIGINT,
    trace_parent VARCHAR(55),
    context      LONGTEXT,
    remark       TEXT,
    created_at   DATETIME(3) NOT NULL DEFAULT (UTC_TIMESTAMP(3)),
    CONSTRAINT task_payload_bytes CHECK (OCTET_LENGTH(payload) <= 262144),
    KEY task_by_id (tenant, id),
    KEY task_by_type (tenant, type, id),
    KEY task_by_run_at (tenant, run_at, id),
    KEY task_by_created_at (created_at, id),
    KEY task_by_key (tenant, task_key, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- Tasks that wait: for their time, for a worker (1 New, 5 Error), or parked for a callback or a person (4 Completed,
-- 7 Pending; their lane is empty, so that no claim looks there). Times are milliseconds since 1970.
--
-- The defaults are those of a new task: what an INSERT need not say, nobody need read.
--
-- The table is its own claim index: a claim reads and locks the very rows it takes and nothing else. No statement of ours
-- locks a row by way of another index, so that two of them cannot lock the same row from two sides.
--
-- That an id waits once is not a unique key: a task that comes back while somebody's snapshot keeps what its claim removed would be held
-- against that, and the entry behind it locked, which may be the uncommitted one of a stranger.
CREATE TABLE IF NOT EXISTS task_waiting (
    id           BIGINT NOT NULL,
    tenant       VARCHAR(64) NOT NULL DEFAULT 'default',
    type         VARCHAR(200) NOT NULL,
    lane         VARCHAR(265) NOT NULL,
    `rank`       SMALLINT NOT NULL DEFAULT 8,
    due          BIGINT NOT NULL,
    status       SMALLINT NOT NULL DEFAULT 1 CHECK (status IN (1, 4, 5, 7)),
    round        INT NOT NULL DEFAULT 1,
    attempts     INT NOT NULL DEFAULT 0,
    error_count  INT NOT NULL DEFAULT 0,
    error_info   TEXT,
    checkpoint   LONGTEXT,
    progress     TEXT,
    result       LONGTEXT,
    expire_at    BIGINT,
    category     VARCHAR(200),
    creator      VARCHAR(64),
    unique_key   VARCHAR(200),
    run_id       BIGINT,
    affinity     VARCHAR(64),
    hold_exec_id CHAR(36) CHARACTER SET ascii COLLATE ascii_bin,
    hold_until   BIGINT,
    check_at     BIGINT,
    updated_at   BIGINT NOT NULL,
    PRIMARY KEY (lane, `rank`, due, id),
    KEY task_waiting_id (tenant, id),
    KEY task_waiting_claim_tenant (tenant, lane, `rank`, due, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- There are no partial indexes here: an index has an entry for each NULL too, which costs every insert as much as any other. So what
-- most tasks do not have is found by tables of its own, which triggers keep.

-- By whom and what tasks are: creator:…, category:… and schedule:….
CREATE TABLE IF NOT EXISTS task_label (
    tenant VARCHAR(64) NOT NULL,
    label  VARCHAR(210) NOT NULL,
    id     BIGINT NOT NULL,
    PRIMARY KEY (tenant, label, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- Waiting tasks that must be looked at, and when.
CREATE TABLE IF NOT EXISTS task_waiting_check (
    check_at BIGINT NOT NULL,
    id       BIGINT NOT NULL,
    PRIMARY KEY (check_at, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- Waiting tasks that are not New.
CREATE TABLE IF NOT EXISTS task_waiting_status (
    tenant VARCHAR(64) NOT NULL,
    status SMALLINT NOT NULL,
    id     BIGINT NOT NULL,
    PRIMARY KEY (tenant, status, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- Waiting tasks that name a category and are not parked, with what claims ask of them.
CREATE TABLE IF NOT EXISTS task_waiting_category (
    category VARCHAR(200) NOT NULL,
    `rank`   SMALLINT NOT NULL,
    due      BIGINT NOT NULL,
    id       BIGINT NOT NULL,
    tenant   VARCHAR(64) NOT NULL,
    type     VARCHAR(200) NOT NULL,
    lane     VARCHAR(265) NOT NULL,
    creator  VARCHAR(64),
    PRIMARY KEY (category, `rank`, due, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- Tasks that a worker has: status 2, Executing. The primary key is the promise of at most one execution.
CREATE TABLE IF NOT EXISTS task_running (
    id           BIGINT NOT NULL PRIMARY KEY,
    tenant       VARCHAR(64) NOT NULL,
    type         VARCHAR(200) NOT NULL,
    `rank`       SMALLINT NOT NULL,
    due          BIGINT NOT NULL,
    status       SMALLINT NOT NULL CHECK (status = 2),
    round        INT NOT NULL,
    attempts     INT NOT NULL,
    error_count  INT NOT NULL,
    error_info   TEXT,
    checkpoint   LONGTEXT,
    progress     TEXT,
    result       LONGTEXT,
    expire_at    BIGINT,
    category     VARCHAR(200),
    creator      VARCHAR(64),
    unique_key   VARCHAR(200),
    run_id       BIGINT,
    affinity     VARCHAR(64),
    exec_id      CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    worker_id    VARCHAR(64) NOT NULL,
    host         VARCHAR(64) NOT NULL,
    started_at   BIGINT NOT NULL,
    deadline     BIGINT,
    heartbeat_ms BIGINT,
    named        SMALLINT NOT NULL,
    lease_until  BIGINT,
    check_at     BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    KEY task_running_check (check_at, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- The unique keys of live tasks.
CREATE TABLE IF NOT EXISTS task_unique (
    tenant     VARCHAR(64) NOT NULL,
    type       VARCHAR(200) NOT NULL,
    unique_key VARCHAR(200) NOT NULL,
    id         BIGINT NOT NULL,
    PRIMARY KEY (tenant, type, unique_key)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- What calls with an idempotency key were answered, and a number for what they asked for.
CREATE TABLE IF NOT EXISTS task_answer (
    tenant          VARCHAR(64) NOT NULL,
    idempotency_key VARCHAR(200) NOT NULL,
    id              BIGINT NOT NULL,
    created         BOOLEAN NOT NULL,
    answered_at     BIGINT NOT NULL,
    fingerprint     BIGINT NOT NULL,
    PRIMARY KEY (tenant, idempotency_key),
    KEY task_answer_by_time (answered_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- Statuses: 3 Success, 6 Failure, 8 ManuallyProcessed, 9 Cancelled.
CREATE TABLE IF NOT EXISTS task_history (
    id           BIGINT NOT NULL PRIMARY KEY,
    tenant       VARCHAR(64) NOT NULL,
    status       SMALLINT NOT NULL CHECK (status IN (3, 6, 8, 9)),
    round        INT NOT NULL,
    attempts     INT NOT NULL,
    error_count  INT NOT NULL,
    error_info   TEXT,
    checkpoint   LONGTEXT,
    progress     TEXT,
    result       LONGTEXT,
    affinity     VARCHAR(64),
    hold_until   BIGINT,
    exec_id      CHAR(36) CHARACTER SET ascii COLLATE ascii_bin,
    worker_id    VARCHAR(64),
    host         VARCHAR(64),
    started_at   BIGINT,
    outcome      SMALLINT,
    finished_at  BIGINT NOT NULL,
    updated_at   BIGINT NOT NULL,
    KEY task_history_by_status (tenant, status, id),
    KEY task_history_by_host (tenant, host, id),
    KEY task_history_by_end (status, finished_at, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- Attempts that did not end their task. The last attempt of a finished task is in its row of history.
CREATE TABLE IF NOT EXISTS task_attempt (
    task_id     BIGINT NOT NULL,
    exec_id     CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    round       INT NOT NULL,
    attempt     INT NOT NULL,
    host        VARCHAR(64),
    worker_id   VARCHAR(64),
    started_at  BIGINT NOT NULL,
    finished_at BIGINT NOT NULL,
    outcome     SMALLINT NOT NULL,
    error       TEXT,
    PRIMARY KEY (task_id, exec_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

CREATE TABLE IF NOT EXISTS task_type (
    type         VARCHAR(200) NOT NULL PRIMARY KEY,
    name         TEXT,
    category     VARCHAR(200),
    retry        TEXT,
    max_attempts BIGINT,
    timeout_ms   BIGINT,
    need_manual  BOOLEAN NOT NULL DEFAULT FALSE,
    priority     BIGINT,
    paused       BOOLEAN NOT NULL DEFAULT FALSE,
    updated_at   BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

CREATE TABLE IF NOT EXISTS task_worker (
    worker_id    VARCHAR(64) NOT NULL PRIMARY KEY,
    host         VARCHAR(64) NOT NULL,
    app          VARCHAR(64),
    types        LONGTEXT NOT NULL,
    categories   LONGTEXT NOT NULL,
    heartbeat_ms BIGINT,
    started_at   BIGINT NOT NULL,
    seen_at      BIGINT NOT NULL,
    tenant       VARCHAR(64)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- When somebody last looked after the clocks of executions: while nobody does, the silence of workers says nothing.
CREATE TABLE IF NOT EXISTS task_watch (
    only_row  TINYINT NOT NULL DEFAULT 1 PRIMARY KEY CHECK (only_row = 1),
    looked_at BIGINT NOT NULL
) ENGINE = InnoDB;
INSERT IGNORE INTO task_watch (only_row, looked_at) VALUES (1, 0);

-- How executions went, by minute, type and the engine that saw them. They outlive the tasks.
CREATE TABLE IF NOT EXISTS task_statistics (
    minute         BIGINT NOT NULL,
    tenant         VARCHAR(64) NOT NULL,
    type           VARCHAR(200) NOT NULL,
    node           VARCHAR(64) NOT NULL,
    success_first  BIGINT NOT NULL,
    success_second BIGINT NOT NULL,
    success_later  BIGINT NOT NULL,
    errors         BIGINT NOT NULL,
    failures       BIGINT NOT NULL,
    wait_ms        TEXT NOT NULL,
    run_ms         TEXT NOT NULL,
    PRIMARY KEY (minute, tenant, type, node)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- Who may call. Only the hash of a secret is kept, and a row is never removed: a token that was revoked has existed.
CREATE TABLE IF NOT EXISTS task_token (
    id           BIGINT NOT NULL PRIMARY KEY,
    secret_hash  VARCHAR(64) NOT NULL,
    role         VARCHAR(64) NOT NULL,
    tenant       VARCHAR(64),
    types        TEXT,
    rate_per_s   BIGINT,
    created_at   BIGINT NOT NULL,
    expires_at   BIGINT,
    last_used_at BIGINT,
    revoked_at   BIGINT
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- What a tenant may have.
CREATE TABLE IF NOT EXISTS task_quota (
    tenant        VARCHAR(64) NOT NULL PRIMARY KEY,
    live_max      BIGINT,
    submits_per_s BIGINT
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- Who changed what. The ids grow with time.
CREATE TABLE IF NOT EXISTS task_audit (
    id       VARCHAR(64) NOT NULL PRIMARY KEY,
    made_at  BIGINT NOT NULL,
    token_id BIGINT,
    actor    VARCHAR(64) NOT NULL,
    tenant   VARCHAR(64),
    action   VARCHAR(64) NOT NULL,
    target   VARCHAR(200) NOT NULL,
    was      LONGTEXT,
    became   LONGTEXT,
    detail   TEXT,
    KEY task_audit_by_tenant (tenant, id),
    KEY task_audit_by_action (action, id),
    KEY task_audit_by_target (target, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- The ids of schedules, timers and runs.
CREATE TABLE IF NOT EXISTS task_sequence (
    only_row BIGINT NOT NULL PRIMARY KEY CHECK (only_row = 1),
    next_id  BIGINT NOT NULL
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};
INSERT IGNORE INTO task_sequence (only_row, next_id) VALUES (1, 1);

-- What fires, and when. The definition is JSON; each edit is a new version of it and of all its timers.
CREATE TABLE IF NOT EXISTS task_schedule (
    id         BIGINT NOT NULL PRIMARY KEY,
    tenant     VARCHAR(64) NOT NULL,
    name       VARCHAR(200) NOT NULL,
    type       VARCHAR(200) NOT NULL,
    status     VARCHAR(64) NOT NULL,
    definition LONGTEXT NOT NULL,
    version    BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    KEY task_schedule_by_tenant (tenant, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- The timers of schedules. cursor_at is the due time that comes next; next_due is the same while the timer can fire.
CREATE TABLE IF NOT EXISTS task_timer (
    id          BIGINT NOT NULL PRIMARY KEY,
    schedule_id BIGINT NOT NULL,
    version     BIGINT NOT NULL,
    place       BIGINT NOT NULL,
    spec        LONGTEXT NOT NULL,
    has_begun   BIGINT NOT NULL,
    cursor_at   BIGINT,
    next_due    BIGINT,
    KEY task_timer_due (next_due, id),
    KEY task_timer_by_schedule (schedule_id, place)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- Firings. 1 Queued, 2 Running, 3 Done, 4 Failed, 5 TimedOut, 6 Skipped, 7 Cancelled. A run of one task names it; what
-- another is made of is kept with it, so that an edit of its schedule does not reach it.
CREATE TABLE IF NOT EXISTS task_run (
    id          BIGINT NOT NULL PRIMARY KEY,
    tenant      VARCHAR(64) NOT NULL,
    schedule_id BIGINT NOT NULL,
    timer_id    BIGINT,
    task_id     BIGINT,
    due_at      BIGINT NOT NULL,
    status      BIGINT NOT NULL CHECK (status BETWEEN 1 AND 7),
    log         VARCHAR(64) NOT NULL,
    overlap     VARCHAR(64) NOT NULL,
    rearms      BIGINT NOT NULL,
    reason      LONGTEXT,
    error       LONGTEXT,
    host        VARCHAR(64),
    definition  LONGTEXT,
    started_at  BIGINT,
    finished_at BIGINT,
    UNIQUE KEY task_run_once (timer_id, due_at),
    KEY task_run_by_schedule (schedule_id, id),
    KEY task_run_by_tenant (tenant, id),
    KEY task_run_by_end (finished_at),
    KEY task_run_live (schedule_id, status, id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- The tasks of runs that have more than one, or may have. The path is the place of a task's node in the tree: empty at the root, then 0, 0.2 and so on.
CREATE TABLE IF NOT EXISTS task_step (
    run_id  BIGINT NOT NULL,
    task_id BIGINT NOT NULL,
    path    VARCHAR(64) NOT NULL,
    shard   BIGINT,
    status  BIGINT NOT NULL,
    result  LONGTEXT,
    PRIMARY KEY (run_id, task_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {bin};

-- A plain INSERT INTO task is a whole submit: this puts the task where claims find it, in the same transaction. The store
-- does it for its own inserts, many at a time, and says so by the variable.
DROP TRIGGER IF EXISTS task_goes_live;
CREATE TRIGGER task_goes_live AFTER INSERT ON task FOR EACH ROW
IF @taskwheel_lets_wait IS NULL THEN
    INSERT INTO task_waiting (id, tenant, type, lane, `rank`, due, expire_at, category, creator, unique_key, run_id, affinity,
                              check_at, updated_at)
    VALUES (NEW.id, NEW.tenant, NEW.type, IF(NEW.affinity IS NULL, NEW.type, CONCAT(NEW.type, '@', NEW.affinity)),
            9 - NEW.priority, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', NEW.run_at) DIV 1000,
            TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', NEW.expire_at) DIV 1000,
            NEW.category, NEW.creator, NEW.unique_key, NEW.run_id, NEW.affinity,
            TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', CASE WHEN NEW.affinity IS NULL THEN NEW.expire_at
                WHEN NEW.expire_at IS NULL THEN NEW.run_at ELSE LEAST(NEW.run_at, NEW.expire_at) END) DIV 1000,
            TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', NEW.created_at) DIV 1000);
    IF NEW.unique_key IS NOT NULL THEN
        INSERT INTO task_unique (tenant, type, unique_key, id) VALUES (NEW.tenant, NEW.type, NEW.unique_key, NEW.id);
    END IF;
    IF NEW.creator IS NOT NULL THEN
        INSERT INTO task_label (tenant, label, id) VALUES (NEW.tenant, CONCAT('creator:', NEW.creator), NEW.id);
    END IF;
    IF NEW.category IS NOT NULL THEN
        INSERT INTO task_label (tenant, label, id) VALUES (NEW.tenant, CONCAT('category:', NEW.category), NEW.id);
    END IF;
    IF NEW.schedule_id IS NOT NULL THEN
        INSERT INTO task_label (tenant, label, id) VALUES (NEW.tenant, CONCAT('schedule:', NEW.schedule_id), NEW.id);
    END IF;
END IF;

DROP TRIGGER IF EXISTS task_is_gone;
CREATE TRIGGER task_is_gone AFTER DELETE ON task FOR EACH ROW BEGIN
    IF OLD.creator IS NOT NULL THEN
        DELETE FROM task_label WHERE tenant = OLD.tenant AND label = CONCAT('creator:', OLD.creator) AND id = OLD.id;
    END IF;
    IF OLD.category IS NOT NULL THEN
        DELETE FROM task_label WHERE tenant = OLD.tenant AND label = CONCAT('category:', OLD.category) AND id = OLD.id;
    END IF;
    IF OLD.schedule_id IS NOT NULL THEN
        DELETE FROM task_label WHERE tenant = OLD.tenant AND label = CONCAT('schedule:', OLD.schedule_id) AND id = OLD.id;
    END IF;
END;

-- Rows of waiting tasks are never updated: whatever changes leaves and comes again.
DROP TRIGGER IF EXISTS task_waits;
CREATE TRIGGER task_waits AFTER INSERT ON task_waiting FOR EACH ROW
IF @taskwheel_lets_wait IS NULL THEN
    IF NEW.check_at IS NOT NULL THEN
        INSERT INTO task_waiting_check (check_at, id) VALUES (NEW.check_at, NEW.id);
    END IF;
    IF NEW.status <> 1 THEN
        INSERT INTO task_waiting_status (tenant, status, id) VALUES (NEW.tenant, NEW.status, NEW.id);
    END IF;
    IF NEW.category IS NOT NULL AND NEW.lane <> '' THEN
        INSERT INTO task_waiting_category (category, `rank`, due, id, tenant, type, lane, creator)
        VALUES (NEW.category, NEW.`rank`, NEW.due, NEW.id, NEW.tenant, NEW.type, NEW.lane, NEW.creator);
    END IF;
END IF;

DROP TRIGGER IF EXISTS task_waits_no_longer;
CREATE TRIGGER task_waits_no_longer AFTER DELETE ON task_waiting FOR EACH ROW BEGIN
    IF OLD.check_at IS NOT NULL THEN
        DELETE FROM task_waiting_check WHERE check_at = OLD.check_at AND id = OLD.id;
    END IF;
    IF OLD.status <> 1 THEN
        DELETE FROM task_waiting_status WHERE tenant = OLD.tenant AND status = OLD.status AND id = OLD.id;
    END IF;
    IF OLD.category IS NOT NULL THEN
        DELETE FROM task_waiting_category
        WHERE category = OLD.category AND `rank` = OLD.`rank` AND due = OLD.due AND id = OLD.id;
    END IF;
END;

-- Everything about every task, for people: live and finished, the status as a word, times as times.
CREATE OR REPLACE VIEW task_view AS
SELECT t.id, t.tenant, t.type, t.task_key, t.payload,
       ELT(COALESCE(w.status, r.status, h.status), 'New', 'Executing', 'Success', 'Completed', 'Error', 'Failure',
           'Pending', 'ManuallyProcessed', 'Cancelled') AS status,
       t.priority, t.run_at, t.expire_at, t.max_attempts, t.retry, t.timeout_ms, t.category, t.creator, t.route_key,
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
       TIMESTAMPADD(MICROSECOND, r.started_at * 1000, CAST('1970-01-01' AS DATETIME(3))) AS locked_at,
       TIMESTAMPADD(MICROSECOND, 1000 * COALESCE(r.lease_until,
           GREATEST(r.started_at, IF(r.named = 1, COALESCE(k.seen_at, 0), 0)) + 3 * r.heartbeat_ms),
           CAST('1970-01-01' AS DATETIME(3))) AS lease_until,
       TIMESTAMPADD(MICROSECOND, 1000 * COALESCE(r.started_at, h.started_at), CAST('1970-01-01' AS DATETIME(3))) AS started_at,
       TIMESTAMPADD(MICROSECOND, 1000 * h.finished_at, CAST('1970-01-01' AS DATETIME(3))) AS finished_at,
       h.finished_at - h.started_at AS exec_ms, t.created_at,
       TIMESTAMPADD(MICROSECOND, 1000 * COALESCE(w.updated_at, r.updated_at, h.updated_at),
           CAST('1970-01-01' AS DATETIME(3))) AS updated_at,
       t.remark, t.schedule_id, t.run_id, t.parent_id, t.root_id, t.token_id, t.trace_parent, t.context
FROM task t
LEFT JOIN task_waiting w ON w.tenant = t.tenant AND w.id = t.id
LEFT JOIN task_running r ON r.id = t.id
LEFT JOIN task_history h ON h.id = t.id
LEFT JOIN task_worker k ON k.worker_id = r.worker_id;
