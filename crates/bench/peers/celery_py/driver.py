"""Drives Celery on Redis by the commands of ../README.md.

The worker is Celery's own command line, with this file as its application; it finds the broker in BROKER and writes what ran into
the directory RAN, a file for each process.
"""

import datetime
import glob
import json
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

import celery
import redis

app = celery.Celery("driver", broker=os.environ.get("BROKER"))
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=64, broker_connection_retry_on_startup=True)
WARM_UP = 20
QUIET = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "error"]
SETTINGS = {"prefork": ["--pool", "prefork", "--concurrency", "2", "-O", "fair"], "solo": ["--pool", "solo"]}


STARTED = []


@app.task(name="noop")
def noop(number):
    """Writes a dot, and before the first of its process the time."""
    if not STARTED:
        STARTED.append(os.open(f"{os.environ['RAN']}/{os.getpid()}", os.O_CREAT | os.O_WRONLY | os.O_APPEND))
        os.write(STARTED[0], f"{time.time()}\n".encode())
    os.write(STARTED[0], b".")


@app.task(name="counted")
def counted(start):
    """Says when it ran."""
    with open(f"{os.environ['RAN']}/{os.getpid()}", "a") as file:
        file.write(f"{start} {time.time()}\n")


def client(seconds, count, barrier, done):
    """Threads that submit one job a call, each answered before the next."""
    app.conf.broker_pool_limit = count
    sums = [0] * count

    def submit(place):
        noop.delay(0)
        barrier.wait()
        start = time.time()
        while time.time() < start + seconds:
            noop.delay(sums[place])
            sums[place] += 1

    threads = [threading.Thread(target=submit, args=(place,)) for place in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    done.put(sum(sums))


def submit(url, clients, seconds):
    clients, seconds = int(clients), float(seconds)
    # Two processes, because the threads of one share a core.
    shares = [clients] if clients == 1 else [clients // 2, clients - clients // 2]
    barrier, done = multiprocessing.Barrier(clients + 1), multiprocessing.Queue()
    processes = [multiprocessing.Process(target=client, args=(seconds, share, barrier, done)) for share in shares]
    [process.start() for process in processes]
    barrier.wait()
    start = time.time()
    total = sum(done.get() for _ in processes)
    rate = total / (time.time() - start)
    stored = redis.Redis.from_url(url).llen("celery")
    if stored != total + clients:
        raise SystemExit(f"{total + clients} jobs should be stored; {stored} are")
    return {"done": total, "rate": rate}


def load(url, jobs):
    with app.producer_pool.acquire(block=True) as producer:
        for number in range(int(jobs)):
            noop.apply_async((number,), producer=producer)
    return {}


def start_worker(url, setting, name, ran):
    command = [sys.executable, "-m", "celery", "-A", "driver", "worker", "-n", f"{name}@bench", *QUIET, *SETTINGS[setting]]
    here = os.path.dirname(os.path.abspath(__file__))
    environment = {**os.environ, "BROKER": url, "RAN": ran, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(command, cwd=here, env=environment, stdout=subprocess.DEVNULL)


def peak(process):
    """The most memory that a worker had, with its children."""
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True).stdout.split()
    kilobytes = 0
    for one in [str(process), *children]:
        try:
            with open(f"/proc/{one}/status") as status:
                kilobytes += next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
        except OSError:
            pass  # It has just ended.
    return kilobytes / 1024


def drain(url, jobs, processes, setting):
    jobs, broker = int(jobs), redis.Redis.from_url(url)
    if broker.llen("celery") != jobs:
        raise SystemExit(f"{jobs} jobs should be stored; {broker.llen('celery')} are")
    # Out of sight until all workers are there.
    broker.rename("celery", "held")
    with tempfile.TemporaryDirectory() as ran:
        workers = [start_worker(url, setting, f"worker{number}", ran) for number in range(int(processes))]
        try:
            wait_until(workers, lambda: len(app.control.ping(timeout=0.5, limit=len(workers))) == len(workers), 0.05)
            broker.rename("held", "celery")
            wait_until(workers, lambda: broker.llen("celery") == 0, 0.02)
            wait_until(workers, lambda: broker.hlen("unacked") == 0 and broker.llen("celery") == 0, 0.005)
            ended = time.time()
            files = [open(name).read().split("\n") for name in glob.glob(f"{ran}/*")]
            started = min(float(first) for first, _ in files)
            memory = max(peak(worker.pid) for worker in workers)
            done = sum(len(dots) for _, dots in files)
            return {"done": done, "rate": jobs / (ended - started), "memory_mb": memory}
        finally:
            end(workers)


def wait_until(workers, reached, pause):
    while not reached():
        if any(worker.poll() is not None for worker in workers):
            raise SystemExit("a worker has ended")
        time.sleep(pause)


def end(workers):
    [worker.terminate() for worker in workers]
    [worker.wait() for worker in workers]


def timed(url, count, submit_all):
    """One worker; answers the time that each job carries, and the time that it ran."""
    with tempfile.TemporaryDirectory() as ran:
        worker = start_worker(url, "prefork", "worker", ran)
        try:
            # It is ready when it has done something; both children of it have a file open then.
            for _ in range(8):
                counted.delay(0)
            read = lambda: [tuple(map(float, line.split())) for name in glob.glob(f"{ran}/*") for line in open(name)]
            while len(read()) < 8:
                time.sleep(0.05)
            submit_all()
            until = time.time() + 60
            while True:
                times = [one for one in read() if one[0] > 0]
                if len(times) >= count or time.time() > until:
                    return sorted(times)
                time.sleep(0.2)
        finally:
            end([worker])


def latency(url, jobs):
    def submit_all():
        for _ in range(int(jobs) + WARM_UP):
            time.sleep(0.01 + random.random() * 0.02)
            counted.delay(time.time())

    times = timed(url, int(jobs) + WARM_UP, submit_all)[WARM_UP:]
    return {"done": len(times), "ms": [(ran - start) * 1000 for start, ran in times]}


def delayed(url, jobs, seconds):
    jobs, seconds = int(jobs), float(seconds)

    def submit_all():
        # It takes one call for each, so it gets longer than the others.
        first = time.time() + 4 + jobs / 800
        with app.producer_pool.acquire(block=True) as producer:
            for number in range(jobs):
                due = first + number * seconds / jobs
                eta = datetime.datetime.fromtimestamp(due, datetime.timezone.utc)
                counted.apply_async((due,), eta=eta, producer=producer)
        if time.time() > first:
            raise SystemExit("the first job was due before the last was submitted")
        time.sleep(first + seconds - time.time())

    times = timed(url, jobs, submit_all)
    return {"done": len(times), "ms": [(ran - due) * 1000 for due, ran in times]}


COMMANDS = {"submit": submit, "load": load, "drain": drain, "latency": latency, "delayed": delayed}
if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command not in COMMANDS:
        raise SystemExit("the commands are in ../README.md")
    app.conf.broker_url = arguments[0]
    print(json.dumps(COMMANDS[command](*arguments)))
    sys.stdout.flush()
    # Its pools would be closed one by one.
    os._exit(0)
