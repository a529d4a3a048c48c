// Drives graphile-worker by the commands of ../README.md.
//
//   node driver.mjs worker URL SETTING     what `drain` starts, one for each process
import { fork } from "node:child_process";
import { readFileSync } from "node:fs";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const [mode, connectionString, ...rest] = process.argv.slice(2);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const now = () => performance.timeOrigin + performance.now();
const range = (length, make) => Array.from({ length }, (_, n) => make(n));
const warmUp = 20;

// Its defaults fetch one job at a time. These fetch and complete in batches, which is what makes it fast.
const batched = { concurrentJobs: 24, maxPoolSize: 25, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
const settings = {
  refetch: { ...batched, localQueue: { size: 500, refetchDelay: { durationMs: 10 } } },
  plain: { ...batched, localQueue: { size: 500 } },
  latency: { concurrentJobs: 4, maxPoolSize: 10 },
  delayed: { concurrentJobs: 4, maxPoolSize: 10, pollInterval: 10 },
};
const preset = (setting, more = {}) => ({
  worker: { connectionString, logger: new Logger(() => () => {}), ...settings[setting], ...more },
});

async function open(clients = 2) {
  const utils = await makeWorkerUtils({ preset: preset(null, { maxPoolSize: Math.max(2, clients) }) });
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

async function expect(jobs) {
  const { count } = await query("select count(*)::int as count from graphile_worker._private_jobs");
  if (count !== jobs) throw new Error(`${jobs} jobs should be stored; ${count} are`);
}

async function submit(clients, seconds) {
  const utils = await open(clients);
  await Promise.all(range(clients, (n) => utils.addJob("noop", { id: n })));
  let done = 0;
  const start = now();
  const client = async () => {
    for (; now() < start + seconds * 1000; done += 1) await utils.addJob("noop", { id: done });
  };
  await Promise.all(range(clients, client));
  const rate = done / ((now() - start) / 1000);
  await expect(done + clients);
  return { done, rate };
}

const jobs = (count) => range(count, (id) => ({ identifier: "noop", payload: { id } }));

async function bulk(seconds) {
  const utils = await open();
  await utils.addJobs(jobs(1000));
  let done = 0;
  const start = now();
  for (; now() < start + seconds * 1000; done += 1000) await utils.addJobs(jobs(1000));
  const rate = done / ((now() - start) / 1000);
  await expect(done + 1000);
  return { done, rate };
}

async function load(count) {
  const utils = await open();
  for (let first = 0; first < count; first += 10_000) await utils.addJobs(jobs(Math.min(10_000, count - first)));
}

// By a statement, as a million take minutes by the library.
async function future(rows) {
  const utils = await open();
  await utils.addJob("noop", { id: 0 });
  await query("delete from graphile_worker._private_jobs");
  await query(
    `insert into graphile_worker._private_jobs (task_id, payload, run_at)
     select (select id from graphile_worker._private_tasks where identifier = 'noop'), '{"id": 0}',
            now() + interval '1 day' + n * interval '1 ms'
     from generate_series(1, ${rows}) as n`,
  );
}

async function work(setting) {
  let done = 0;
  let first = null;
  const noop = async () => {
    first ??= now();
    done += 1;
  };
  await run({ preset: preset(setting), noHandleSignals: true, taskList: { noop } });
  const peak = () => Number(/VmHWM:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))[1]) / 1024;
  process.on("message", () => process.send({ done, first, memory: peak() }));
  // Whoever started this process was ended.
  process.on("disconnect", () => process.exit(1));
  process.send("ready");
}

const answer = (worker) => new Promise((resolve) => worker.once("message", resolve));

function ask(worker) {
  const answered = answer(worker);
  worker.send("progress");
  return answered;
}

async function drain(count, processes, setting) {
  const client = new pg.Client({ connectionString });
  await client.connect();
  const table = "graphile_worker._private_jobs";
  // Those that are due were put last, so that the primary key finds what is left of them, however many wait.
  const { rows } = await client.query(`select min(id)::text as id from ${table} where run_at <= now()`);
  const left = async () =>
    (await client.query(`select count(*)::int as jobs from ${table} where id >= ${rows[0].id}`)).rows[0].jobs;
  const workers = range(processes, () => fork(process.argv[1], ["worker", connectionString, setting]));
  try {
    await Promise.all(workers.map(answer));
    const sum = (progress) => progress.reduce((all, { done }) => all + done, 0);
    let progress;
    do {
      await sleep(50);
      progress = await Promise.all(workers.map(ask));
    } while (sum(progress) < count);
    while ((await left()) > 0) await sleep(10);
    const end = now();
    progress = await Promise.all(workers.map(ask));
    const first = Math.min(...progress.map((one) => one.first).filter((time) => time !== null));
    const memory = Math.max(...progress.map((one) => one.memory));
    return { done: sum(progress), rate: count / ((end - first) / 1000), memory_mb: memory };
  } finally {
    workers.forEach((worker) => worker.kill("SIGKILL"));
    await client.end();
  }
}

// A worker in this process: the time that each job carries, and the time that it ran.
async function timed(setting, count, submit) {
  const utils = await open(4);
  const ran = [];
  const noop = async ({ from }) => ran.push([from, now()]);
  await run({ preset: preset(setting), noHandleSignals: true, taskList: { noop } });
  await sleep(500);
  await submit(utils);
  const until = now() + 60_000;
  while (ran.length < count && now() < until) await sleep(20);
  return ran;
}

async function latency(count) {
  const ran = await timed("latency", count + warmUp, async (utils) => {
    for (let n = 0; n < count + warmUp; n += 1) {
      await sleep(10 + Math.random() * 20);
      await utils.addJob("noop", { from: now() });
    }
  });
  const ms = ran.slice(warmUp).map(([from, at]) => at - from);
  return { done: ms.length, ms };
}

async function delayed(count, seconds) {
  const ran = await timed("delayed", count, async (utils) => {
    const first = Math.ceil(now()) + 4000;
    const due = range(count, (n) => first + Math.floor((n * seconds * 1000) / count));
    const job = (from) => ({ identifier: "noop", payload: { from }, runAt: new Date(from) });
    for (let n = 0; n < count; n += 1000) await utils.addJobs(due.slice(n, n + 1000).map(job));
    if (now() > first) throw new Error("the first job was due before the last was submitted");
    await sleep(first + seconds * 1000 - now());
  });
  const ms = ran.sort((one, other) => one[0] - other[0]).map(([from, at]) => at - from);
  return { done: ms.length, ms };
}

const commands = { submit, bulk, load, future, latency, delayed };
if (mode === "worker") {
  await work(rest[0]);
} else if (mode === "drain") {
  console.log(JSON.stringify(await drain(Number(rest[0]), Number(rest[1]), rest[2])));
  process.exit(0);
} else if (commands[mode]) {
  console.log(JSON.stringify((await commands[mode](...rest.map(Number))) ?? {}));
  process.exit(0);
} else {
  throw new Error("the commands are in ../README.md");
}
