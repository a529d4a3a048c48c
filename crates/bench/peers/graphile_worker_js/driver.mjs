// Drives graphile-worker by the commands of ../README.md.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { connections, drive, url as connectionString } from "../driver.mjs";

// Its defaults fetch one job at a time. These fetch and complete in batches, which is what makes it fast.
const batched = { concurrentJobs: 24, maxPoolSize: 25, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
const settings = {
  refetch: { ...batched, localQueue: { size: 500, refetchDelay: { durationMs: 10 } } },
  plain: { ...batched, localQueue: { size: 500 } },
  latency: { concurrentJobs: 4, maxPoolSize: 10 },
  // The last word of the command, where there is one, says how often it looks.
  delayed: { concurrentJobs: 4, maxPoolSize: 10, pollInterval: Number(process.argv[6] ?? 10) },
};
const preset = (more) => ({ worker: { connectionString, logger: new Logger(() => () => {}), ...more } });
const jobs = "graphile_worker._private_jobs";

async function open(clients) {
  const utils = await makeWorkerUtils({ preset: preset({ maxPoolSize: Math.max(2, connections(clients)) }) });
  await utils.migrate();
  return utils;
}

async function query(sql) {
  const client = new pg.Client({ connectionString });
  await client.connect();
  const { rows } = await client.query(sql);
  await client.end();
  return rows[0];
}

await drive({
  open,
  add: (utils, payload) => utils.addJob("noop", payload),
  addMany(utils, jobs) {
    const job = ({ data, at }) => ({ identifier: "noop", payload: data, ...(at && { runAt: new Date(at) }) });
    return utils.addJobs(jobs.map(job));
  },
  // By a statement, as a million take minutes by the library.
  async future(rows) {
    const utils = await open(1);
    await utils.addJob("noop", { id: 0 });
    await query(`delete from ${jobs}`);
    await query(
      `insert into ${jobs} (task_id, payload, run_at)
       select (select id from graphile_worker._private_tasks where identifier = 'noop'), '{"id": 0}',
              now() + interval '1 day' + n * interval '1 ms'
       from generate_series(1, ${rows}) as n`,
    );
  },
  stored: async () => (await query(`select count(*)::int as count from ${jobs}`)).count,
  async left() {
    const client = new pg.Client({ connectionString });
    await client.connect();
    // Those that are due were put last, so that the primary key finds what is left of them, however many wait.
    const { rows } = await client.query(`select min(id)::text as id from ${jobs} where run_at <= now()`);
    const count = `select count(*)::int as count from ${jobs} where id >= ${rows[0].id}`;
    return async () => (await client.query(count)).rows[0].count;
  },
  // It has no way to connect and begin later, but what it is made of is loaded, and the schema is there.
  async work(setting, ran) {
    await (await open(1)).release();
    const noop = async (payload) => ran([payload]);
    return () => run({ preset: preset(settings[setting]), noHandleSignals: true, taskList: { noop } });
  },
  settings: { latency: "latency", delayed: "delayed" },
});
