// Drives pg-boss by the commands of ../README.md.
import pg from "pg";
import { PgBoss } from "pg-boss";
import { connections, drive, url as connectionString } from "../driver.mjs";

// Its defaults fetch one job each two seconds. These fetch and complete in batches, which is what makes it fast.
const settings = {
  batch: { batchSize: 1000, burstWhenBatchFull: true, localConcurrency: 2, pollingIntervalSeconds: 0.5 },
  latency: { localConcurrency: 4, pollingIntervalSeconds: 0.5 },
  delayed: { batchSize: 200, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 },
};

async function open(more) {
  const boss = new PgBoss({ connectionString, supervise: false, schedule: false, ...more });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  // With LISTEN/NOTIFY it polls so seldom that delayed jobs are half a minute late, so only what is idle is told.
  const notify = process.argv[2] === "latency";
  if (!(await boss.getQueue("noop"))) await boss.createQueue("noop", { notify });
  return boss;
}

async function query(sql) {
  const client = new pg.Client({ connectionString });
  await client.connect();
  const { rows } = await client.query(sql);
  await client.end();
  return rows[0];
}

await drive({
  open: (clients) => open({ max: Math.max(2, connections(clients)) }),
  add: (boss, data) => boss.send("noop", data),
  addMany: (boss, jobs) =>
    boss.insert("noop", jobs.map(({ data, at }) => ({ data, ...(at && { startAfter: new Date(at) }) }))),
  // By a statement, as a million take minutes by the library.
  async future(rows) {
    await open();
    await query(
      `insert into pgboss.job (name, data, start_after)
       select 'noop', '{"id": 0}'::jsonb, now() + interval '1 day' + n * interval '1 ms' from generate_series(1, ${rows}) as n`,
    );
  },
  stored: async () => (await query("select count(*)::int as count from pgboss.job")).count,
  async left() {
    const client = new pg.Client({ connectionString });
    await client.connect();
    const count = "select count(*)::int as count from pgboss.job where state < 'completed' and start_after <= now()";
    return async () => (await client.query(count)).rows[0].count;
  },
  async work(setting, ran) {
    const boss = await open({ supervise: setting === "batch", useListenNotify: setting === "latency" });
    return () => boss.work("noop", settings[setting], async (batch) => ran(batch.map(({ data }) => data)));
  },
  settings: { latency: "latency", delayed: "delayed" },
});
