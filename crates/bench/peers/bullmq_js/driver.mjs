// Drives BullMQ and prints one line of JSON.
//
//   node driver.mjs submit URL CLIENTS SECONDS     adds jobs one by one: {"rate": jobs per second}
import { Queue } from "bullmq";
import { Redis } from "ioredis";

const [mode, url, ...rest] = process.argv.slice(2);
const now = () => performance.now();

async function submit(clients, seconds) {
  const redis = new Redis(url);
  await redis.flushall();
  const { hostname: host, port } = new URL(url);
  const connection = { host, port: Number(port), maxRetriesPerRequest: null };
  // A connection for each client.
  const queues = Array.from({ length: clients }, () => new Queue("noop", { connection }));
  const options = { removeOnComplete: true, removeOnFail: true };
  await Promise.all(queues.map((queue, n) => queue.add("noop", { id: n }, options)));
  let added = 0;
  const start = now();
  await Promise.all(
    queues.map(async (queue) => {
      for (; now() < start + seconds * 1000; added += 1) await queue.add("noop", { id: added }, options);
    }),
  );
  return { rate: added / ((now() - start) / 1000) };
}

if (mode !== "submit") throw new Error("usage: driver.mjs submit URL CLIENTS SECONDS");
console.log(JSON.stringify(await submit(Number(rest[0]), Number(rest[1]))));
process.exit(0);
