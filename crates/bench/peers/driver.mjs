// What the drivers of Node peers have in common: the commands of README.md, over the few things that a peer does its own way.
//
// A peer has:
//   open(clients)             something to submit with, for so many clients at once
//   add(to, data, client)     submits one job
//   addMany(to, jobs)         submits many: [{ data, at }], due at a time in milliseconds where that is given
//   future(rows)              stores so many jobs that are due tomorrow and later
//   stored()                  how many jobs wait
//   left()                    a function that says how many due jobs have not ended
//   work(setting, ran)        connects, and answers a function that begins to run jobs in this process; `ran` gets a list of their data
//   settings                  of `work`, for latency and delayed
import { fork } from "node:child_process";
import { readFileSync } from "node:fs";

export const url = process.argv[3];
export const range = (length, make) => Array.from({ length }, (_, n) => make(n));
// How many connections so many clients have: one each, or fewer that they share, by the last word of a submit.
export const connections = (clients) => Math.min(clients, { one: 1, eight: 8 }[process.argv[6]] ?? clients);
export const day = 24 * 3600 * 1000;

const now = () => performance.timeOrigin + performance.now();
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const bulkJobs = 1000;
const warmUp = 20;
// How far apart the looks at the workers are; near the end they are closer, so that none is held against the peer.
const look = 50;
const lastLook = 5;
const jobs = (count) => range(count, (id) => ({ data: { id } }));

export async function drive(peer) {
  const [mode, , ...rest] = process.argv.slice(2);
  const commands = { submit, bulk, load, future: (_, rows) => peer.future(rows), latency, delayed };
  if (mode === "worker") return work(peer, rest[0]);
  const answer =
    mode === "drain" ? await drain(peer, Number(rest[0]), Number(rest[1]), rest[2])
    : commands[mode] ? await commands[mode](peer, ...rest.map(Number))
    : unknown();
  // What does not fit into the pipe at once would be lost with the process.
  process.stdout.write(`${JSON.stringify(answer ?? {})}\n`, () => process.exit(0));
}

function unknown() {
  throw new Error("the commands are in ../README.md");
}

async function expect(peer, jobs) {
  const count = await peer.stored();
  if (count !== jobs) throw new Error(`${jobs} jobs should be stored; ${count} are`);
}

async function submit(peer, clients, seconds) {
  const to = await peer.open(clients);
  await Promise.all(range(clients, (client) => peer.add(to, { id: client }, client)));
  let done = 0;
  const start = now();
  const submits = async (client) => {
    for (; now() < start + seconds * 1000; done += 1) await peer.add(to, { id: done }, client);
  };
  await Promise.all(range(clients, submits));
  const rate = done / ((now() - start) / 1000);
  await expect(peer, done + clients);
  return { done, rate };
}

async function bulk(peer, seconds) {
  const to = await peer.open(1);
  await peer.addMany(to, jobs(bulkJobs));
  let done = 0;
  const start = now();
  for (; now() < start + seconds * 1000; done += bulkJobs) await peer.addMany(to, jobs(bulkJobs));
  const rate = done / ((now() - start) / 1000);
  await expect(peer, done + bulkJobs);
  return { done, rate };
}

async function load(peer, count) {
  const to = await peer.open(1);
  for (let first = 0; first < count; first += 5000) await peer.addMany(to, jobs(Math.min(5000, count - first)));
}

// What `drain` starts, one for each process. It begins when it is told, and says how far it is when it is asked.
async function work(peer, setting) {
  let done = 0;
  let first = null;
  const begin = await peer.work(setting, (jobs) => {
    first ??= now();
    done += jobs.length;
  });
  const peak = () => Number(/VmHWM:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))[1]) / 1024;
  process.on("message", (word) => (word === "go" ? begin() : process.send({ done, first, memory: peak() })));
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

async function drain(peer, count, processes, setting) {
  const left = await peer.left();
  const workers = range(processes, () => fork(process.argv[1], ["worker", url, setting]));
  try {
    await Promise.all(workers.map(answer));
    const sum = (progress) => progress.reduce((all, { done }) => all + done, 0);
    workers.forEach((worker) => worker.send("go"));
    let progress;
    let done = 0;
    while (done < count) {
      await sleep(done > 0.9 * count ? lastLook : look);
      progress = await Promise.all(workers.map(ask));
      done = sum(progress);
    }
    // Before the question is asked: what it takes to answer is not the peer's.
    let end = now();
    while ((await left()) > 0) {
      await sleep(lastLook);
      end = now();
    }
    progress = await Promise.all(workers.map(ask));
    const first = Math.min(...progress.map((one) => one.first).filter((time) => time !== null));
    const memory = Math.max(...progress.map((one) => one.memory));
    return { done: sum(progress), rate: count / ((end - first) / 1000), memory_mb: memory };
  } finally {
    workers.forEach((worker) => worker.kill("SIGKILL"));
  }
}

// A worker in this process: the time that each job carries, and the time that it ran.
async function timed(peer, setting, count, submit) {
  const to = await peer.open(4);
  const ran = [];
  const begin = await peer.work(setting, (jobs) => jobs.forEach(({ from }) => ran.push([from, now()])));
  await begin();
  await sleep(2000);
  await submit(to);
  const until = now() + 60_000;
  while (ran.length < count && now() < until) await sleep(20);
  return ran;
}

async function latency(peer, count) {
  const ran = await timed(peer, peer.settings.latency, count + warmUp, async (to) => {
    for (let n = 0; n < count + warmUp; n += 1) {
      await sleep(10 + Math.random() * 20);
      await peer.add(to, { from: now() }, 0);
    }
  });
  const ms = ran.slice(warmUp).map(([from, at]) => at - from);
  return { done: ms.length, ms };
}

async function delayed(peer, count, seconds) {
  const ran = await timed(peer, peer.settings.delayed, count, async (to) => {
    const first = Math.ceil(now()) + 4000;
    const due = range(count, (n) => first + Math.floor((n * seconds * 1000) / count));
    const job = (at) => ({ data: { from: at }, at });
    for (let n = 0; n < count; n += 1000) await peer.addMany(to, due.slice(n, n + 1000).map(job));
    if (now() > first) throw new Error("the first job was due before the last was submitted");
    await sleep(first + seconds * 1000 - now());
  });
  const ms = ran.sort((one, other) => one[0] - other[0]).map(([from, at]) => at - from);
  return { done: ms.length, ms };
}
