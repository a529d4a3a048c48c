// Drives BullMQ by the commands of ../README.md.
//
//   node driver.mjs worker URL SETTING     what `drain` starts, one for each process
import { fork } from "node:child_process";
import { readFileSync } from "node:fs";
import { Queue, Worker } from "bullmq";

const [mode, url, ...rest] = process.argv.slice(2);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const now = () => performance.timeOrigin + performance.now();
const range = (length, make) => Array.from({ length }, (_, n) => make(n));
const warmUp = 20;
const day = 24 * 3600 * 1000;

const { hostname: host, port } = new URL(url);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const opts = { removeOnComplete: true, removeOnFail: true };
const open = () => new Queue("noop", { connection });

async function expect(queue, jobs) {
  const count = await queue.getWaitingCount();
  if (count !== jobs) throw new Error(`${jobs} jobs should be stored; ${count} are`);
}

async function submit(clients, seconds) {
  // A connection for each client.
  const queues = range(clients, open);
  await Promise.all(queues.map((queue, n) => queue.add("noop", { id: n }, opts)));
  let done = 0;
  const start = now();
  const client = async (queue) => {
    for (; now() < start + seconds * 1000; done += 1) await queue.add("noop", { id: done }, opts);
  };
  await Promise.all(queues.map(client));
  const rate = done / ((now() - start) / 1000);
  await expect(queues[0], done + clients);
  return { done, rate };
}

const jobs = (count, more = {}) => range(count, (id) => ({ name: "noop", data: { id }, opts: { ...opts, ...more } }));

async function bulk(seconds) {
  const queue = open();
  await queue.addBulk(jobs(1000));
  let done = 0;
  const start = now();
  for (; now() < start + seconds * 1000; done += 1000) await queue.addBulk(jobs(1000));
  const rate = done / ((now() - start) / 1000);
  await expect(queue, done + 1000);
  return { done, rate };
}

async function load(count) {
  const queue = open();
  for (let first = 0; first < count; first += 5000) await queue.addBulk(jobs(Math.min(5000, count - first)));
}

async function future(rows) {
  const queue = open();
  for (let first = 0; first < rows; first += 5000) {
    await queue.addBulk(jobs(Math.min(5000, rows - first), { delay: day + first }));
  }
}

async function work(concurrency) {
  let done = 0;
  let first = null;
  const noop = async () => {
    first ??= now();
    done += 1;
  };
  const worker = new Worker("noop", noop, { connection, concurrency });
  worker.on("error", (error) => console.error(error));
  await worker.waitUntilReady();
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
  const queue = open();
  const left = async () => {
    const { wait, active } = await queue.getJobCounts("wait", "active");
    return wait + active;
  };
  const workers = range(processes, () => fork(process.argv[1], ["worker", url, String(setting)]));
  try {
    await Promise.all(workers.map(answer));
    const sum = (progress) => progress.reduce((all, { done }) => all + done, 0);
    let progress;
    do {
      await sleep(50);
      progress = await Promise.all(workers.map(ask));
    } while (sum(progress) < count);
    while ((await left()) > 0) await sleep(5);
    const end = now();
    progress = await Promise.all(workers.map(ask));
    const first = Math.min(...progress.map((one) => one.first).filter((time) => time !== null));
    const memory = Math.max(...progress.map((one) => one.memory));
    return { done: sum(progress), rate: count / ((end - first) / 1000), memory_mb: memory };
  } finally {
    workers.forEach((worker) => worker.kill("SIGKILL"));
  }
}

// A worker in this process: the time that each job carries, and the time that it ran.
async function timed(count, submit) {
  const queue = open();
  const ran = [];
  const noop = async ({ data }) => ran.push([data.from, now()]);
  const worker = new Worker("noop", noop, { connection, concurrency: 100 });
  worker.on("error", (error) => console.error(error));
  await worker.waitUntilReady();
  await sleep(500);
  await submit(queue);
  const until = now() + 60_000;
  while (ran.length < count && now() < until) await sleep(20);
  return ran;
}

async function latency(count) {
  const ran = await timed(count + warmUp, async (queue) => {
    for (let n = 0; n < count + warmUp; n += 1) {
      await sleep(10 + Math.random() * 20);
      await queue.add("noop", { from: now() }, opts);
    }
  });
  const ms = ran.slice(warmUp).map(([from, at]) => at - from);
  return { done: ms.length, ms };
}

async function delayed(count, seconds) {
  const ran = await timed(count, async (queue) => {
    const first = Math.ceil(now()) + 4000;
    const due = range(count, (n) => first + Math.floor((n * seconds * 1000) / count));
    for (let n = 0; n < count; n += 1000) {
      // A delay counts from when the job is made.
      const job = (from) => {
        const timestamp = Math.floor(now());
        return { name: "noop", data: { from }, opts: { ...opts, timestamp, delay: from - timestamp } };
      };
      await queue.addBulk(due.slice(n, n + 1000).map(job));
    }
    if (now() > first) throw new Error("the first job was due before the last was submitted");
    await sleep(first + seconds * 1000 - now());
  });
  const ms = ran.sort((one, other) => one[0] - other[0]).map(([from, at]) => at - from);
  return { done: ms.length, ms };
}

const commands = { submit, bulk, load, future, drain, latency, delayed };
if (mode === "worker") {
  await work(Number(rest[0]));
} else if (commands[mode]) {
  console.log(JSON.stringify((await commands[mode](...rest.map(Number))) ?? {}));
  process.exit(0);
} else {
  throw new Error("the commands are in ../README.md");
}
