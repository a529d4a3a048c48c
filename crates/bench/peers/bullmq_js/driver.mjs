// Drives BullMQ by the commands of ../README.md.
import { Queue, Worker } from "bullmq";
import { connections, day, drive, range, url } from "../driver.mjs";

const { hostname: host, port } = new URL(url);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const opts = { removeOnComplete: true, removeOnFail: true };
const queue = new Queue("noop", { connection });

// A delay counts from when the job is made.
function job({ data, at }) {
  const timestamp = Date.now();
  return { name: "noop", data, opts: at ? { ...opts, timestamp, delay: at - timestamp } : opts };
}

await drive({
  open: (clients) => range(connections(clients), () => new Queue("noop", { connection })),
  add: (queues, data, client) => queues[client % queues.length].add("noop", data, opts),
  addMany: (queues, jobs) => queues[0].addBulk(jobs.map(job)),
  async future(rows) {
    for (let first = 0; first < rows; first += 5000) {
      const at = Date.now() + day + first;
      await queue.addBulk(range(Math.min(5000, rows - first), (id) => job({ data: { id }, at })));
    }
  },
  stored: () => queue.getWaitingCount(),
  left: () => async () => {
    const { wait, active } = await queue.getJobCounts("wait", "active");
    return wait + active;
  },
  async work(concurrency, ran) {
    const options = { connection, concurrency: Number(concurrency), autorun: false };
    const worker = new Worker("noop", async ({ data }) => ran([data]), options);
    worker.on("error", (error) => console.error(error));
    await worker.waitUntilReady();
    return () => {
      // It resolves when the worker is closed, which nobody waits for.
      worker.run();
    };
  },
  settings: { latency: 100, delayed: 100 },
});
