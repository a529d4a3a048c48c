#!/usr/bin/env python3
"""Measures two layouts of the task tables by bare statements: the figures of docs/decisions/0002.

    measure.py DATABASE [SCENARIO...]     DATABASE: postgres://…, mysql://… or sqlite:FILE, made anew and emptied

Needs psycopg and pymysql. Layouts: `one` is a wide live table and a wide history; `split` is the layout of the store: content that stays, and a
narrow row that moves from waiting to running to history. Both have the indexes that searches need. Each figure is of a run on tables made for it,
the two layouts in turn; rates are the median of RUNS. Times are milliseconds; a lane is a type, rank 0 is the highest priority.
"""

import json
import multiprocessing
import os
import sqlite3
import statistics
import sys
import time
import urllib.parse

RUNS = int(os.environ.get("RUNS", "3"))
SCALE = float(os.environ.get("SCALE", "1"))
NOW = 1_800_000_000_000
PAYLOAD = '{"order":123456,"note":"a small payload of about sixty bytes"}'

CONTENT = "tenant, type, task_key, payload, priority, run_at, created_at"
STAND = "round, attempts, error_count, error_info, checkpoint, result"


def scaled(number):
    return max(1, int(number * SCALE))


def kind():
    return URL.split(":")[0]


def connect():
    if kind() == "sqlite":
        connection = sqlite3.connect(URL.split(":", 1)[1], isolation_level=None, timeout=60)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-16384", "wal_autocheckpoint=4000"):
            connection.execute(f"PRAGMA {pragma}")
        return connection
    if kind() == "postgres":
        import psycopg

        return psycopg.connect(URL, autocommit=True, prepare_threshold=1)
    import pymysql

    place = urllib.parse.urlparse(URL)
    return pymysql.connect(
        host=place.hostname, port=place.port, user=place.username, password=place.password, database=place.path[1:],
        autocommit=True, init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")


def run(connection, sql, values=()):
    cursor = connection.cursor()
    cursor.execute(sql.replace("?", "%s") if kind() != "sqlite" else sql, values)
    return cursor


def begin(connection):
    run(connection, "BEGIN IMMEDIATE" if kind() == "sqlite" else "BEGIN")


def commit(connection):
    run(connection, "COMMIT")


def among(ids):
    """The condition that an id is one of these, and its values."""
    if kind() == "postgres":
        return "id = ANY(?)", (ids,)
    return f"id IN ({','.join('?' * len(ids))})", ids


def series(count):
    return {
        "postgres": f"(SELECT n FROM generate_series(1, {count}) AS s(n)) s",
        "mysql": f"(SELECT seq AS n FROM seq_1_to_{count}) s",
        "sqlite": f"(WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {count}) SELECT n FROM c) s",
    }[kind()]


class Layout:
    """What both layouts have in common. `prefix` names the columns that a row of history has of its content."""

    def create(self, connection):
        for table in self.tables:
            run(connection, f"DROP TABLE IF EXISTS {table}")
        serial = {"postgres": "bigserial PRIMARY KEY", "mysql": "BIGINT AUTO_INCREMENT PRIMARY KEY",
                  "sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT"}[kind()]
        text = {"postgres": 'text COLLATE "C"', "mysql": "VARCHAR(200)", "sqlite": "TEXT"}[kind()]
        end = " ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin" if kind() == "mysql" else ""
        for sql in self.schema():
            sql = sql.replace("SERIAL", serial).replace("NAME", text)
            run(connection, sql + end if sql.startswith("CREATE TABLE") else sql)

    def indexes(self, table, of_content, of_history):
        columns = ["tenant, id", "tenant, type, id", "tenant, run_at, id", "created_at, id", "tenant, task_key, id"] if of_content else []
        columns += ["tenant, status, id", "tenant, host, id", "status, finished_at, id"] if of_history else []
        return [f"CREATE INDEX {table}_{place} ON {table} ({names})" for place, names in enumerate(columns)]

    content = """tenant NAME NOT NULL, type NAME NOT NULL, task_key NAME, payload TEXT, priority SMALLINT NOT NULL,
        run_at BIGINT NOT NULL, created_at BIGINT NOT NULL"""
    stand = "round INT NOT NULL, attempts INT NOT NULL, error_count INT NOT NULL, error_info TEXT, checkpoint TEXT, result TEXT"
    execution = "exec_id VARCHAR(36), worker_id VARCHAR(64), host VARCHAR(64), started_at BIGINT"

    def claim(self, connection, lane, count):
        """Takes due tasks, by priority; answers their ids."""
        begin(connection)
        ids = self.take(connection, lane, count)
        if ids:
            self.start(connection, ids)
        commit(connection)
        return ids

    def ranges(self, connection, table, lane, count, columns, lock):
        """The first due rows of a lane over all ranks, each rank a range of its own."""
        due = f"lane = ? AND rnk = {{rank}} AND due <= {NOW}" + (f" AND {self.waits}" if self.waits else "")
        if kind() == "postgres":
            where = due.format(rank="r.rank")
            return run(connection, f"""SELECT {columns} FROM generate_series(0, 8) AS r(rank) CROSS JOIN LATERAL (
                SELECT * FROM {table} w WHERE {where} ORDER BY due, id LIMIT {count} {lock}) w LIMIT {count}""", (lane,)).fetchall()
        if kind() == "mysql":
            probes = ", ".join(f"EXISTS (SELECT 1 FROM {table} FORCE INDEX ({self.claim_index}) WHERE {due.format(rank=rank)})" for rank in range(9))
            ranks = [rank for rank, some in enumerate(run(connection, f"SELECT {probes}", (lane,) * 9).fetchone()) if some]
        else:
            ranks = range(9)
        found = []
        for rank in ranks:
            # Left alone both may take another index, by what they know of the table.
            force = {"mysql": f" FORCE INDEX ({self.claim_index})", "sqlite": f" INDEXED BY {self.partial_index}"}[kind()]
            found += run(connection, f"""SELECT {columns} FROM {table}{force} WHERE {due.format(rank=rank)}
                ORDER BY due, id LIMIT {count - len(found)} {lock}""", (lane,)).fetchall()
            if len(found) >= count:
                break
        return found

    lock = property(lambda self: "" if kind() == "sqlite" else "FOR UPDATE SKIP LOCKED")
    claim_index = "PRIMARY"
    partial_index = "waiting_claim"
    waits = None


class One(Layout):
    name = "one"
    tables = ["live", "old"]
    claim_index = partial_index = "live_claim"

    @property
    def waits(self):
        return None if kind() == "mysql" else "status = 1"

    def schema(self):
        # MariaDB has no partial indexes: a lane that is NULL takes a running task out of the way.
        partial = "" if kind() == "mysql" else " WHERE status = 1"
        check = "" if kind() == "mysql" else " WHERE check_at IS NOT NULL"
        return [
            f"""CREATE TABLE live (id SERIAL, {self.content}, lane NAME, rnk SMALLINT NOT NULL, due BIGINT NOT NULL,
                status SMALLINT NOT NULL, {self.stand}, {self.execution}, check_at BIGINT, updated_at BIGINT NOT NULL)""",
            f"CREATE INDEX live_claim ON live (lane, rnk, due, id){partial}", f"CREATE INDEX live_check ON live (check_at, id){check}",
            *self.indexes("live", True, False),
            f"""CREATE TABLE old (id BIGINT PRIMARY KEY, {self.content}, status SMALLINT NOT NULL, {self.stand}, {self.execution},
                finished_at BIGINT NOT NULL)""",
            *self.indexes("old", True, True)]

    def load(self, connection, count, lane, tenant="'default'", rank=8, due=NOW - 1000):
        run(connection, f"""INSERT INTO live ({CONTENT}, lane, rnk, due, status, round, attempts, error_count, updated_at)
            SELECT {tenant}, {lane}, {key()}, '{PAYLOAD}', {9 - rank}, {due}, {NOW}, {lane}, {rank}, {due}, 1, 1, 0, 0, {NOW}
            FROM {series(count)}""")

    def finished(self, connection, count):
        run(connection, f"""INSERT INTO old (id, {CONTENT}, status, round, attempts, error_count, exec_id, worker_id, host, started_at, finished_at)
            SELECT n + 1000000000, 'default', 'done', {key()}, '{PAYLOAD}', 1, n, n, 3, 1, 1, 0, 'e', 'w', 'h', n, n FROM {series(count)}""")

    def take(self, connection, lane, count):
        return [row[0] for row in self.ranges(connection, "live", lane, count, "id, payload, attempts", self.lock)]

    def start(self, connection, ids):
        lane = ", lane = NULL" if kind() == "mysql" else ""
        these, values = among(ids)
        run(connection, f"""UPDATE live SET status = 2, attempts = attempts + 1, exec_id = 'e', worker_id = 'w', host = 'h',
            started_at = {NOW}, check_at = {NOW + 900_000}, updated_at = {NOW}{lane} WHERE {these}""", values)

    def finish(self, connection, ids):
        these, values = among(ids)
        begin(connection)
        columns = f"id, {CONTENT}, {STAND}, exec_id, worker_id, host, started_at"
        run(connection, f"""INSERT INTO old ({columns}, status, finished_at) SELECT {columns}, 3, {NOW} FROM live
            WHERE {these} AND exec_id = 'e'""", values)
        run(connection, f"DELETE FROM live WHERE {these}", values)
        commit(connection)


class Split(Layout):
    name = "split"
    tables = ["content", "waiting", "running", "ended"]

    def schema(self):
        key = "PRIMARY KEY (lane, rnk, due, id), UNIQUE KEY waiting_id (id)" if kind() == "mysql" else "PRIMARY KEY (id)"
        claim = [] if kind() == "mysql" else ["CREATE INDEX waiting_claim ON waiting (lane, rnk, due, id)"]
        others, rare = ("", "") if kind() == "mysql" else (" WHERE tenant <> 'default'", " WHERE status <> 1")
        claim += [f"CREATE INDEX waiting_tenant ON waiting (tenant, lane, rnk, due, id){others}",
                  f"CREATE INDEX waiting_status ON waiting (tenant, status, id){rare}"]
        return [
            f"CREATE TABLE content (id SERIAL, {self.content})", *self.indexes("content", True, False),
            f"""CREATE TABLE waiting (id BIGINT NOT NULL, tenant NAME NOT NULL, lane NAME NOT NULL, rnk SMALLINT NOT NULL, due BIGINT NOT NULL,
                status SMALLINT NOT NULL, {self.stand}, updated_at BIGINT NOT NULL, {key})""", *claim,
            f"""CREATE TABLE running (id BIGINT PRIMARY KEY, tenant NAME NOT NULL, lane NAME NOT NULL, rnk SMALLINT NOT NULL, due BIGINT NOT NULL,
                {self.stand}, {self.execution}, check_at BIGINT NOT NULL, updated_at BIGINT NOT NULL)""",
            "CREATE INDEX running_check ON running (check_at, id)",
            f"""CREATE TABLE ended (id BIGINT PRIMARY KEY, tenant NAME NOT NULL, status SMALLINT NOT NULL, {self.stand}, {self.execution},
                finished_at BIGINT NOT NULL)""", *self.indexes("ended", False, True)]

    def load(self, connection, count, lane, tenant="'default'", rank=8, due=NOW - 1000):
        insert = f"""INSERT INTO content ({CONTENT}) SELECT {tenant}, {lane}, {key()}, '{PAYLOAD}', {9 - rank}, {due}, {NOW}
            FROM {series(count)}"""
        wait = f"""INSERT INTO waiting (id, tenant, lane, rnk, due, status, round, attempts, error_count, updated_at)
            SELECT id, tenant, type, {rank}, {due}, 1, 1, 0, 0, {NOW} FROM"""
        if kind() == "postgres":
            run(connection, f"WITH made AS ({insert} RETURNING id, tenant, type) {wait} made")
            return
        begin(connection)
        last = run(connection, insert).lastrowid
        # MariaDB tells the first id of a statement, SQLite the last one of all.
        first = last if kind() == "mysql" else last - count + 1
        run(connection, f"{wait} content WHERE id BETWEEN {first} AND {first + count - 1}")
        commit(connection)

    def finished(self, connection, count):
        run(connection, f"INSERT INTO content (id, {CONTENT}) SELECT n + 1000000000, 'default', 'done', {key()}, '{PAYLOAD}', 1, n, n FROM {series(count)}")
        run(connection, f"""INSERT INTO ended (id, tenant, status, round, attempts, error_count, exec_id, worker_id, host, started_at, finished_at)
            SELECT n + 1000000000, 'default', 3, 1, 1, 0, 'e', 'w', 'h', n, n FROM {series(count)}""")

    def take(self, connection, lane, count):
        found = self.ranges(connection, "waiting", lane, count, "id, lane, rnk, due, attempts", self.lock)
        self.keys = found
        ids = [row[0] for row in found]
        if ids:
            these, values = among(ids)
            run(connection, f"SELECT id, payload FROM content WHERE {these}", values).fetchall()
        return ids

    def start(self, connection, ids):
        columns = f"id, tenant, lane, rnk, due, {STAND}"
        values = f"'e', 'w', 'h', {NOW}, {NOW + 900_000}, {NOW}"
        into = f"INSERT INTO running ({columns}, exec_id, worker_id, host, started_at, check_at, updated_at)"
        if kind() == "mysql":
            keys = """JSON_TABLE(?, '$[*]' COLUMNS (id BIGINT PATH '$[0]', lane VARCHAR(200) PATH '$[1]', rnk SMALLINT PATH '$[2]',
                due BIGINT PATH '$[3]')) n STRAIGHT_JOIN waiting w FORCE INDEX (PRIMARY)
                ON w.lane = n.lane AND w.rnk = n.rnk AND w.due = n.due AND w.id = n.id"""
            rows = json.dumps(self.keys)
            own = ", ".join(f"w.{name.strip()}" for name in columns.split(","))
            run(connection, f"{into} SELECT {own}, {values} FROM {keys}", (rows,))
            run(connection, f"DELETE w FROM {keys}", (rows,))
            return
        these, bound = among(ids)
        run(connection, f"{into} SELECT {columns}, {values} FROM waiting WHERE {these}", bound)
        run(connection, f"DELETE FROM waiting WHERE {these}", bound)

    def finish(self, connection, ids):
        these, values = among(ids)
        begin(connection)
        columns = f"id, tenant, {STAND}, exec_id, worker_id, host, started_at"
        run(connection, f"""INSERT INTO ended ({columns}, status, finished_at) SELECT {columns}, 3, {NOW} FROM running
            WHERE {these} AND exec_id = 'e'""", values)
        run(connection, f"DELETE FROM running WHERE {these}", values)
        commit(connection)


def key():
    return "CONCAT('key-', n)" if kind() != "sqlite" else "'key-' || n"


def name_of(number):
    return f"CONCAT('{number[0]}', MOD(n, {number[1]}))" if kind() != "sqlite" else f"'{number[0]}' || (n % {number[1]})"


def settle(connection, layout):
    """The state in which drains are compared."""
    if kind() == "postgres":
        run(connection, "VACUUM ANALYZE")
    elif kind() == "mysql":
        run(connection, f"ANALYZE TABLE {', '.join(layout.tables)}").fetchall()
        time.sleep(2)
    else:
        run(connection, "ANALYZE")


def again(connection, work):
    """Until no deadlock is in the way."""
    while True:
        try:
            return work()
        except Exception as error:
            if not error.args or error.args[0] not in (1213, 1205):
                raise
            connection.rollback()


def drainer(layout, lanes, batch, barrier, done):
    connection = connect()
    barrier.wait()
    count, misses, place = 0, 0, os.getpid() % len(lanes)
    while misses < len(lanes):
        ids = again(connection, lambda: layout.claim(connection, lanes[place], batch))
        if len(ids) < batch:
            place, misses = (place + 1) % len(lanes), misses + (not ids)
        if ids:
            misses = 0
            again(connection, lambda: layout.finish(connection, ids))
            count += len(ids)
    done.put(count)


def drain(layout, lanes, batch, clients):
    """Tasks a second until none is due."""
    barrier, done = multiprocessing.Barrier(clients + 1), multiprocessing.Queue()
    workers = [multiprocessing.Process(target=drainer, args=(layout, lanes, batch, barrier, done)) for _ in range(clients)]
    for worker in workers:
        worker.start()
    barrier.wait()
    began = time.monotonic()
    count = sum(done.get() for _ in workers)
    elapsed = time.monotonic() - began
    for worker in workers:
        worker.join()
    return count / elapsed


def rates(what, prepare, measure, runs=RUNS):
    """The median of each layout, measured in turn."""
    found = {layout.name: [] for layout in LAYOUTS}
    for _ in range(runs):
        for layout in LAYOUTS:
            connection = connect()
            layout.create(connection)
            prepare(connection, layout)
            settle(connection, layout)
            found[layout.name].append(measure(connection, layout))
            connection.close()
    show(what, found)


def show(what, found):
    words = [f"{name} {statistics.median(values):,.1f} ({', '.join(f'{value:,.1f}' for value in values)})" for name, values in found.items()]
    print(f"{kind()}: {what}: {'; '.join(words)}", flush=True)


def steady():
    for batch, tasks in ((10, 10_000), (100, 40_000), (500, 100_000)):
        for clients in (1,) if kind() == "sqlite" else (1, 4, 8):
            rates(f"drain, tasks/s, batch {batch}, {clients} clients",
                  lambda connection, layout: layout.load(connection, scaled(tasks), "'mail'"),
                  lambda connection, layout: drain(layout, ["mail"], batch, clients))


def many():
    lanes = [f"type{number}" for number in range(1000)]
    clients = 1 if kind() == "sqlite" else 4
    rates(f"1,000 tenants, 1,000 types: drain, tasks/s, batch 100, {clients} clients",
          lambda connection, layout: layout.load(connection, scaled(100_000), name_of(("type", 1000)), name_of(("tenant", 1000))),
          lambda connection, layout: drain(layout, lanes, 100, clients))


def claim_ms(connection, layout):
    times = []
    for _ in range(50):
        began = time.monotonic()
        ids = layout.claim(connection, "mail", 100)
        times.append(1000 * (time.monotonic() - began))
        assert len(ids) == 100
    return statistics.median(times)


def future():
    for rows in (0, 1_000_000):
        def prepare(connection, layout):
            layout.load(connection, 10_000, "'mail'")
            if rows:
                layout.load(connection, scaled(rows), "'mail'", rank=0, due=NOW + 86_400_000)
        rates(f"a claim of 100, ms, median of 50, beside {rows:,} future tasks of priority 9", prepare, claim_ms, 1)


def finished():
    for rows in (0, 5_000_000):
        def prepare(connection, layout):
            if rows:
                layout.finished(connection, scaled(rows))
            layout.load(connection, scaled(100_000), "'mail'")
        clients = 1 if kind() == "sqlite" else 4
        rates(f"drain, tasks/s, batch 500, {clients} clients, beside {rows:,} finished", prepare,
              lambda connection, layout: drain(layout, ["mail"], 500, clients), 1)


def flow(layout, role, until, done):
    """Submits, or claims and finishes, until a time; answers how many in each quarter."""
    connection, counts, deadlocks = connect(), [0, 0, 0, 0], 0
    began = time.monotonic()
    while (now := time.monotonic()) < until:
        quarter = min(3, int(4 * (now - began) / (until - began)))
        try:
            if role == "submit":
                layout.load(connection, 100, "'mail'")
                counts[quarter] += 100
                time.sleep(0.01)
            else:
                ids = layout.claim(connection, "mail", 100)
                if ids:
                    layout.finish(connection, ids)
                    counts[quarter] += len(ids)
        except Exception as error:
            if not error.args or error.args[0] not in (1213, 1205):
                raise
            deadlocks += 1
            connection.rollback()
    done.put((role, counts, deadlocks))


def flows(layout, submitters, claimers, seconds):
    done, until = multiprocessing.Queue(), time.monotonic() + seconds
    roles = ["submit"] * submitters + ["claim"] * claimers
    processes = [multiprocessing.Process(target=flow, args=(layout, role, until, done)) for role in roles]
    for process in processes:
        process.start()
    found = [done.get() for _ in processes]
    for process in processes:
        process.join()
    quarter = seconds / 4
    for role in ("submit", "claim"):
        sums = [sum(counts[place] for one, counts, _ in found if one == role) / quarter for place in range(4)]
        deadlocks = sum(count for one, _, count in found if one == role)
        print(f"  {layout.name}, {role}: {', '.join(f'{rate:,.0f}' for rate in sums)} tasks/s by quarter, {deadlocks} deadlocks", flush=True)


def horizon():
    seconds = max(4, 120 * SCALE)
    print(f"{kind()}: the horizon held for {seconds:.0f} s, one submitter and two claimers", flush=True)
    for layout in LAYOUTS:
        connection = connect()
        layout.create(connection)
        layout.load(connection, 20_000, "'mail'")
        settle(connection, layout)
        holder = connect()
        run(holder, "BEGIN ISOLATION LEVEL REPEATABLE READ")
        run(holder, "SELECT count(*) FROM pg_class").fetchall()
        flows(layout, 1, 2, seconds)
        holder.close()


def crossed():
    print(f"{kind()}: two submitters and two claimers at once", flush=True)
    for layout in LAYOUTS:
        connection = connect()
        layout.create(connection)
        layout.load(connection, 20_000, "'mail'")
        settle(connection, layout)
        flows(layout, 2, 2, max(4, 20 * SCALE))


LAYOUTS = [One(), Split()]
SCENARIOS = {"steady": steady, "many": many, "future": future, "finished": finished, "horizon": horizon, "crossed": crossed}
if len(sys.argv) < 2:
    sys.exit(__doc__)
URL = sys.argv[1]
default = [name for name in SCENARIOS if not (name == "horizon" and kind() != "postgres" or name == "crossed" and kind() == "sqlite")]
for wanted in sys.argv[2:] or default:
    SCENARIOS[wanted]()
