"""Drives Procrastinate by the commands of ../README.md.

    driver.py worker URL SETTING     what `drain` starts, one for each process
"""

import asyncio
import datetime
import json
import logging
import os
import random
import subprocess
import sys
import time

import procrastinate
import psycopg

logging.disable(logging.CRITICAL)
WARM_UP = 20
DRAIN = {"concurrency": 50, "fetch_job_polling_interval": 0.1}
RAN = []
DONE = 0
FIRST = None


def application(url, connections=25):
    app = procrastinate.App(
        connector=procrastinate.PsycopgConnector(conninfo=url, min_size=min(2, connections), max_size=connections)
    )

    @app.task(name="noop")
    async def noop(number):
        global DONE, FIRST
        FIRST = FIRST or time.time()
        DONE += 1

    @app.task(name="timed")
    async def timed(start):
        RAN.append((start, time.time()))

    return app, noop, timed


async def apply_schema(app, url):
    with psycopg.connect(url) as connection:
        there = connection.execute("select to_regclass('procrastinate_jobs')").fetchone()[0]
    if there is None:
        await app.schema_manager.apply_schema_async()


def expect(url, jobs):
    with psycopg.connect(url) as connection:
        stored = connection.execute("select count(*) from procrastinate_jobs").fetchone()[0]
    if stored != jobs:
        raise SystemExit(f"{jobs} jobs should be stored; {stored} are")


async def submit(url, clients, seconds, sharing="own"):
    clients, seconds, done = int(clients), float(seconds), 0
    app, noop, _ = application(url, max(2, min(clients, 8) if sharing == "eight" else clients))
    async with app.open_async():
        await apply_schema(app, url)
        await asyncio.gather(*[noop.defer_async(number=0) for _ in range(clients)])
        start = time.time()

        async def client():
            nonlocal done
            while time.time() < start + seconds:
                await noop.defer_async(number=done)
                done += 1

        await asyncio.gather(*[client() for _ in range(clients)])
        rate = done / (time.time() - start)
    expect(url, done + clients)
    return {"done": done, "rate": rate}


async def bulk(url, seconds):
    seconds, done = float(seconds), 0
    app, noop, _ = application(url)
    batch = [{"number": number} for number in range(1000)]
    async with app.open_async():
        await apply_schema(app, url)
        await noop.batch_defer_async(*batch)
        start = time.time()
        while time.time() < start + seconds:
            await noop.batch_defer_async(*batch)
            done += 1000
        rate = done / (time.time() - start)
    expect(url, done + 1000)
    return {"done": done, "rate": rate}


async def load(url, jobs):
    app, noop, _ = application(url)
    async with app.open_async():
        await apply_schema(app, url)
        for first in range(0, int(jobs), 1000):
            await noop.batch_defer_async(*[{"number": first + n} for n in range(min(1000, int(jobs) - first))])
    return {}


async def future(url, rows):
    """By a statement, as a million take minutes by the library."""
    app, _, _ = application(url)
    async with app.open_async():
        await apply_schema(app, url)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "insert into procrastinate_jobs (queue_name, task_name, args, status, scheduled_at)"
            " select 'default', 'noop', '{\"number\": 0}', 'todo', now() + interval '1 day' + n * interval '1 ms'"
            " from generate_series(1, %s) as n",
            (int(rows),),
        )
    return {}


def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


async def worker(url, setting):
    """Works until nothing is due, and says how much it was."""
    app, _, _ = application(url)
    async with app.open_async():
        print("ready", flush=True)
        sys.stdin.readline()
        delete = "always" if setting == "delete" else "never"
        await app.run_worker_async(**DRAIN, delete_jobs=delete, wait=False, install_signal_handlers=False)
    return [DONE, FIRST, time.time(), peak()]


async def drain(url, jobs, processes, setting):
    command = [sys.executable, os.path.abspath(__file__), "worker", url, setting]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    workers = [subprocess.Popen(command, **pipes) for _ in range(int(processes))]
    [one.stdout.readline() for one in workers]
    for one in workers:
        one.stdin.write("go\n")
        one.stdin.flush()
    results = [json.loads(one.stdout.readline()) for one in workers]
    [one.wait() for one in workers]
    with psycopg.connect(url) as connection:
        unfinished = "select count(*) from procrastinate_jobs where status in ('todo', 'doing') and scheduled_at is null"
        left = connection.execute(unfinished).fetchone()[0]
    if left:
        raise SystemExit(f"{left} jobs are left")
    elapsed = max(one[2] for one in results) - min(one[1] for one in results if one[1])
    done = sum(one[0] for one in results)
    return {"done": done, "rate": int(jobs) / elapsed, "memory_mb": max(one[3] for one in results)}


async def run_timed(url, count, polling, submit_all):
    """A worker in this process; answers the time that each job carries, and the time that it ran."""
    app, _, timed = application(url)
    async with app.open_async():
        await apply_schema(app, url)
        options = {"concurrency": 10, "fetch_job_polling_interval": polling, "install_signal_handlers": False}
        running = asyncio.create_task(app.run_worker_async(**options))
        await asyncio.sleep(2)
        await submit_all(timed)
        until = time.time() + 60
        while len(RAN) < count and time.time() < until:
            await asyncio.sleep(0.02)
        running.cancel()
        return sorted(RAN)


async def latency(url, jobs):
    count = int(jobs) + WARM_UP

    async def submit_all(timed):
        for _ in range(count):
            await asyncio.sleep(0.01 + random.random() * 0.02)
            await timed.defer_async(start=time.time())

    times = (await run_timed(url, count, 5.0, submit_all))[WARM_UP:]
    return {"done": len(times), "ms": [(ran - start) * 1000 for start, ran in times]}


async def delayed(url, jobs, seconds):
    jobs, seconds = int(jobs), float(seconds)

    async def submit_all(timed):
        # It takes one call for each, so it gets longer than the others.
        first = time.time() + 4 + jobs / 500
        for number in range(jobs):
            due = first + number * seconds / jobs
            at = datetime.datetime.fromtimestamp(due, datetime.timezone.utc)
            if number % 16 == 0:
                batch = []
            batch.append(timed.configure(schedule_at=at).defer_async(start=due))
            if len(batch) == 16 or number == jobs - 1:
                await asyncio.gather(*batch)
        if time.time() > first:
            raise SystemExit("the first job was due before the last was submitted")
        await asyncio.sleep(first + seconds - time.time())

    times = await run_timed(url, jobs, 0.01, submit_all)
    return {"done": len(times), "ms": [(ran - due) * 1000 for due, ran in times]}


COMMANDS = {one.__name__: one for one in [submit, bulk, load, future, worker, drain, latency, delayed]}
if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command not in COMMANDS:
        raise SystemExit("the commands are in ../README.md")
    print(json.dumps(asyncio.run(COMMANDS[command](*arguments))), flush=True)
    os._exit(0)
