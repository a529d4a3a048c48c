// Drives pg-boss and prints one line of JSON.
//
//   node driver.mjs submit URL CLIENTS SECONDS     sends jobs one by one: {"rate": jobs per second}
import { PgBoss } from "pg-boss";

const [mode, connectionString, ...rest] = process.argv.slice(2);
const now = () => performance.now();

async function submit(clients, seconds) {
  const boss = new PgBoss({ connectionString, supervise: false, schedule: false, max: clients });
  boss.on("error", (error) => console.error(error));
  await boss.start();
  await boss.createQueue("noop");
  const everyClient = (work) => Promise.all(Array.from({ length: clients }, work));
  await everyClient((_, n) => boss.send("noop", { id: n }));
  let sent = 0;
  const start = now();
  await everyClient(async () => {
    for (; now() < start + seconds * 1000; sent += 1) await boss.send("noop", { id: sent });
  });
  return { rate: sent / ((now() - start) / 1000) };
}

if (mode !== "submit") throw new Error("usage: driver.mjs submit URL CLIENTS SECONDS");
console.log(JSON.stringify(await submit(Number(rest[0]), Number(rest[1]))));
process.exit(0);
