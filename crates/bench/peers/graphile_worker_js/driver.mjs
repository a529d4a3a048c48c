// Drives graphile-worker and prints one line of JSON.
//
//   node driver.mjs load URL JOBS                        puts no-op jobs into a fresh schema
//   node driver.mjs drain URL JOBS PROCESSES SETTING     works them off: {"rate": jobs per second}
//   node driver.mjs worker URL SETTING                   what `drain` starts, one for each process
//   node driver.mjs submit URL CLIENTS SECONDS           adds jobs one by one: {"rate": jobs per second}
//
// The state of the table between load and drain is the caller's business. The clock starts with the first job that runs and stops
// when the last one is gone from the table, so that neither the start of Node nor of the pools is held against it.
import { fork } from "node:child_process";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const [mode, connectionString, ...rest] = process.argv.slice(2);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const now = () => performance.timeOrigin + performance.now();

// Its defaults fetch one job at a time. These fetch and complete in batches, which is what makes it fast.
const batched = { concurrentJobs: 24, maxPoolSize: 25, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
const settings = {
  refetch: { ...batched, localQueue: { size: 500, refetchDelay: { durationMs: 10 } } },
  plain: { ...batched, localQueue: { size: 500 } },
};
const preset = (setting) => ({
  worker: { connectionString, logger: new Logger(() => () => {}), ...settings[setting] },
});

async function load(jobs) {
  const utils = await makeWorkerUtils({ preset: preset() });
  await utils.migrate();
  for (let first = 0; first < jobs; first += 10_000) {
    const length = Math.min(10_000, jobs - first);
    await utils.addJobs(Array.from({ length }, (_, n) => ({ identifier: "noop", payload: { id: first + n } })));
  }
  await utils.release();
}

async function work(setting) {
  let done = 0;
  let first = null;
  const noop = async () => {
    first ??= now();
    done += 1;
  };
  await run({ preset: preset(setting), noHandleSignals: true, taskList: { noop } });
  process.on("message", () => process.send({ done, first }));
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

async function drain(jobs, processes, setting) {
  const client = new pg.Client({ connectionString });
  await client.connect();
  const left = async () => {
    const { rows } = await client.query("select count(*)::int as jobs from graphile_worker._private_jobs");
    return rows[0].jobs;
  };
  const workers = Array.from({ length: processes }, () =>
    fork(process.argv[1], ["worker", connectionString, setting]),
  );
  try {
    await Promise.all(workers.map(answer));
    let progress;
    do {
      await sleep(50);
      progress = await Promise.all(workers.map(ask));
    } while (progress.reduce((sum, { done }) => sum + done, 0) < jobs);
    while ((await left()) > 0) await sleep(10);
    const first = Math.min(...progress.map((one) => one.first).filter((time) => time !== null));
    return { rate: jobs / ((now() - first) / 1000) };
  } finally {
    workers.forEach((worker) => worker.kill("SIGKILL"));
    await client.end();
  }
}

async function submit(clients, seconds) {
  const connections = { connectionString, logger: new Logger(() => () => {}), maxPoolSize: clients };
  const utils = await makeWorkerUtils({ preset: { worker: connections } });
  await utils.migrate();
  const everyClient = (work) => Promise.all(Array.from({ length: clients }, work));
  await everyClient((_, n) => utils.addJob("noop", { id: n }));
  let added = 0;
  const start = now();
  await everyClient(async () => {
    for (; now() < start + seconds * 1000; added += 1) await utils.addJob("noop", { id: added });
  });
  return { rate: added / ((now() - start) / 1000) };
}

if (mode === "load") {
  await load(Number(rest[0]));
} else if (mode === "worker") {
  await work(rest[0]);
} else if (mode === "drain") {
  console.log(JSON.stringify(await drain(Number(rest[0]), Number(rest[1]), rest[2])));
  process.exit(0);
} else if (mode === "submit") {
  console.log(JSON.stringify(await submit(Number(rest[0]), Number(rest[1]))));
  process.exit(0);
} else {
  throw new Error("usage: driver.mjs load URL JOBS | drain URL JOBS PROCESSES SETTING | submit URL CLIENTS SECONDS");
}
