// Drives pg-boss by the commands of ../README.md.
//
//   node driver.mjs worker URL     what `drain` starts, one for each process
import { fork } from "node:child_process";
import { readFileSync } from "node:fs";
import pg from "pg";
import { PgBoss } from "pg-boss";

const [mode, connectionString, ...rest] = process.argv.slice(2);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const now = () => performance.timeOrigin + performance.now();
const range = (length, make) => Array.from({ length }, (_, n) => make(n));
const warmUp = 20;

// Its defaults fetch one job each two seconds. These fetch and complete in batches, which is what makes it fast.
const drains = { batchSize: 1000, burstWhenBatchFull: true, localConcurrency: 2, pollingIntervalSeconds: 0.5 };
const waits = { batchSize: 200, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 };

async function open(more = {}) {
  const boss = new PgBoss({ connectionString, supervise: false, schedule: false, ...more });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  if (!(await boss.getQueue("noop"))) await boss.createQueue("noop", { notify: more.useListenNotify ?? false });
  return boss;
}

async function query(sql) {
  const client = new pg.Client({ connectionString });
  await client.connect();
  const { rows } = await client.query(sql);
  await client.end();
  return rows[0];
}

async function expect(jobs) {
  const { count } = await query("select count(*)::int as count from pgboss.job");
  if (count !== jobs) throw new Error(`${jobs} jobs should be stored; ${count} are`);
}

async function submit(clients, seconds) {
  const boss = await open({ max: Math.max(2, clients) });
  await Promise.all(range(clients, (n) => boss.send("noop", { id: n })));
  let done = 0;
  const start = now();
  const client = async () => {
    for (; now() < start + seconds * 1000; done += 1) await boss.send("noop", { id: done });
  };
  await Promise.all(range(clients, client));
  const rate = done / ((now() - start) / 1000);
  await expect(done + clients);
  return { done, rate };
}

const jobs = (count) => range(count, (id) => ({ data: { id } }));

async function bulk(seconds) {
  const boss = await open();
  await boss.insert("noop", jobs(1000));
  let done = 0;
  const start = now();
  for (; now() < start + seconds * 1000; done += 1000) await boss.insert("noop", jobs(1000));
  const rate = done / ((now() - start) / 1000);
  await expect(done + 1000);
  return { done, rate };
}

async function load(count) {
  const boss = await open();
  for (let first = 0; first < count; first += 5000) await boss.insert("noop", jobs(Math.min(5000, count - first)));
}

// By a statement, as a million take minutes by the library.
async function future(rows) {
  await open();
  await query(
    `insert into pgboss.job (name, data, start_after)
     select 'noop', '{"id": 0}'::jsonb, now() + interval '1 day' + n * interval '1 ms' from generate_series(1, ${rows}) as n`,
  );
}

async function work() {
  let done = 0;
  let first = null;
  const boss = await open({ supervise: true });
  await boss.work("noop", drains, async (batch) => {
    first ??= now();
    done += batch.length;
  });
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

async function drain(count, processes) {
  const client = new pg.Client({ connectionString });
  await client.connect();
  const unfinished = "select count(*)::int as jobs from pgboss.job where state < 'completed' and start_after <= now()";
  const left = async () => (await client.query(unfinished)).rows[0].jobs;
  const workers = range(processes, () => fork(process.argv[1], ["worker", connectionString]));
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
async function timed(setting, useListenNotify, count, submit) {
  const boss = await open({ useListenNotify });
  const ran = [];
  await boss.work("noop", setting, async (batch) => batch.forEach(({ data }) => ran.push([data.from, now()])));
  await sleep(2000);
  await submit(boss);
  const until = now() + 60_000;
  while (ran.length < count && now() < until) await sleep(20);
  return ran;
}

async function latency(count) {
  const setting = { localConcurrency: 4, pollingIntervalSeconds: 0.5 };
  const ran = await timed(setting, true, count + warmUp, async (boss) => {
    for (let n = 0; n < count + warmUp; n += 1) {
      await sleep(10 + Math.random() * 20);
      await boss.send("noop", { from: now() });
    }
  });
  const ms = ran.slice(warmUp).map(([from, at]) => at - from);
  return { done: ms.length, ms };
}

async function delayed(count, seconds) {
  // With LISTEN/NOTIFY it polls so seldom that jobs are half a minute late.
  const ran = await timed(waits, false, count, async (boss) => {
    const first = Math.ceil(now()) + 4000;
    const due = range(count, (n) => first + Math.floor((n * seconds * 1000) / count));
    const job = (from) => ({ data: { from }, startAfter: new Date(from) });
    for (let n = 0; n < count; n += 1000) await boss.insert("noop", due.slice(n, n + 1000).map(job));
    if (now() > first) throw new Error("the first job was due before the last was submitted");
    await sleep(first + seconds * 1000 - now());
  });
  const ms = ran.sort((one, other) => one[0] - other[0]).map(([from, at]) => at - from);
  return { done: ms.length, ms };
}

const commands = { submit, bulk, load, future, drain, latency, delayed };
if (mode === "worker") {
  await work();
} else if (commands[mode]) {
  console.log(JSON.stringify((await commands[mode](...rest.map(Number))) ?? {}));
  process.exit(0);
} else {
  throw new Error("the commands are in ../README.md");
}
