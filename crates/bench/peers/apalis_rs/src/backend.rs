//! The commands, for either backend: their storages have the same methods and no trait in common.

macro_rules! driver {
    ($name:ident, $package:ident, $storage:ident, $pool:ty, $open:path, count: $count:literal, left: $left:literal,
     future: $future:literal, latency: $latency:expr) => {
        mod $name {
            use crate::processes::{self, Process};
            use crate::{BULK, LAST_LOOK, LOOK, Noop, QUEUE, RAN, Result, WARM_UP, noop, now_micros, now_ms};
            use $package::{Config, $storage};
            use apalis::prelude::*;
            use serde_json::{Value, json};
            use std::time::{Duration, Instant};

            pub(crate) async fn run(arguments: &[&str]) -> Result<Value> {
                match arguments[..] {
                    ["submit", url, clients, seconds, ref sharing @ ..] => {
                        submit(url, clients.parse()?, seconds.parse()?, sharing == ["eight"]).await
                    }
                    ["bulk", url, seconds] => bulk(url, seconds.parse()?).await,
                    ["load", url, jobs] => load(url, jobs.parse()?).await,
                    ["future", url, rows] => future(url, rows.parse()?).await,
                    ["worker", url, setting] => work(url, setting).await,
                    ["drain", url, jobs, processes, setting] => {
                        drain(url, jobs.parse()?, processes.parse()?, setting).await
                    }
                    ["latency", url, jobs] => latency(url, jobs.parse()?).await,
                    ["delayed", url, jobs, seconds] => delayed(url, jobs.parse()?, seconds.parse()?).await,
                    _ => Err("the commands are in ../README.md".into()),
                }
            }

            /// A storage that fetches so many at once. Its defaults fetch ten, and lock each by itself.
            async fn open(url: &str, connections: u32, batch: usize) -> Result<($pool, $storage<Noop>)> {
                with(url, connections, Config::default().batch_size(batch)).await
            }

            /// One that waits for jobs. A poll that finds nothing can leave it asleep until the next heartbeat, each 30 s by default.
            async fn open_to_wait(url: &str) -> Result<($pool, $storage<Noop>)> {
                let config = Config::default().batch_size(100).heartbeat_interval(Duration::from_millis(300));
                with(url, 10, config).await
            }

            async fn with(url: &str, connections: u32, config: Config) -> Result<($pool, $storage<Noop>)> {
                // On a connection of its own: on SQLite it leaves synchronous=OFF behind, and nothing would wait for the disk.
                let first = $open(url, 1).await?;
                $storage::setup(&first).await?;
                first.close().await;
                let pool = $open(url, connections).await?;
                let config = config.queue(QUEUE).lock_tasks(false);
                let storage = $storage::<Noop>::new(&pool).with_config(config);
                Ok((pool, storage))
            }

            async fn expect(pool: &$pool, jobs: u64) -> Result<()> {
                let stored: i64 = sqlx::query_scalar($count).fetch_one(pool).await?;
                if stored as u64 == jobs { Ok(()) } else { Err(format!("{jobs} jobs should be stored; {stored} are").into()) }
            }

            /// Each client has a connection, or eight are shared.
            async fn submit(url: &str, clients: u32, seconds: f64, share: bool) -> Result<Value> {
                let (pool, mut storage) = open(url, if share { clients.min(8) } else { clients }, 10).await?;
                for id in 0..u64::from(clients) {
                    storage.push(Noop::new(id)).await?;
                }
                let (start, until) = (Instant::now(), Instant::now() + Duration::from_secs_f64(seconds));
                let client = |_| {
                    let mut storage = storage.clone();
                    tokio::spawn(async move {
                        let mut pushed = 0;
                        while Instant::now() < until {
                            storage.push(Noop::new(pushed)).await.expect("a job is pushed");
                            pushed += 1;
                        }
                        pushed
                    })
                };
                let clients_running: Vec<_> = (0..clients).map(client).collect();
                let mut done = 0;
                for client in clients_running {
                    done += client.await?;
                }
                let rate = done as f64 / start.elapsed().as_secs_f64();
                expect(&pool, done + u64::from(clients)).await?;
                Ok(json!({ "done": done, "rate": rate }))
            }

            async fn bulk(url: &str, seconds: f64) -> Result<Value> {
                let (pool, mut storage) = open(url, 2, 10).await?;
                storage.push_bulk((0..BULK).map(Noop::new).collect()).await?;
                let (start, mut done) = (Instant::now(), 0);
                while start.elapsed().as_secs_f64() < seconds {
                    storage.push_bulk((0..BULK).map(Noop::new).collect()).await?;
                    done += BULK;
                }
                let rate = done as f64 / start.elapsed().as_secs_f64();
                expect(&pool, done + BULK).await?;
                Ok(json!({ "done": done, "rate": rate }))
            }

            async fn load(url: &str, jobs: u64) -> Result<Value> {
                let (_, mut storage) = open(url, 2, 10).await?;
                for first in (0..jobs).step_by(BULK as usize) {
                    storage.push_bulk((first..jobs.min(first + BULK)).map(Noop::new).collect()).await?;
                }
                // Times have whole seconds, so that the last are due only then.
                tokio::time::sleep(Duration::from_millis(1_500)).await;
                Ok(json!({}))
            }

            async fn future(url: &str, rows: i64) -> Result<Value> {
                let (pool, _) = open(url, 2, 10).await?;
                sqlx::query($future).bind(rows).execute(&pool).await?;
                Ok(json!({}))
            }

            async fn work(url: &str, setting: &str) -> Result<Value> {
                // The second word of a setting: a pool of one connection.
                let (order, connections) = setting.strip_suffix("-one").map_or((setting, 10), |order| (order, 1));
                let (_pool, storage) = open(url, connections, 1_000).await?;
                let storage = storage.poll_with_interval(Duration::from_millis(100));
                let worker = WorkerBuilder::new(format!("worker-{}", std::process::id())).backend(storage);
                processes::ready()?;
                match order {
                    "serial" => worker.build(noop).run().await?,
                    "parallel" => worker.concurrency(100).parallelize(tokio::spawn).build(noop).run().await?,
                    other => return Err(format!("no setting {other}").into()),
                }
                Ok(Value::Null)
            }

            async fn drain(url: &str, jobs: u64, processes: usize, setting: &str) -> Result<Value> {
                let pool = $open(url, 1).await?;
                let mut workers = (0..processes).map(|_| Process::start(url, setting)).collect::<Result<Vec<_>>>()?;
                workers.iter_mut().try_for_each(Process::ready)?;
                workers.iter_mut().try_for_each(|worker| worker.say("go"))?;
                let mut look = LOOK;
                loop {
                    tokio::time::sleep(look).await;
                    let progress = workers.iter_mut().map(Process::progress).collect::<Result<Vec<_>>>()?;
                    let done = progress.iter().map(|(done, ..)| done).sum::<u64>();
                    if done >= jobs {
                        break;
                    }
                    look = if done >= jobs - jobs / 10 { LAST_LOOK } else { LOOK };
                }
                // Before the question is asked: what it takes to answer is not the peer's.
                let mut end = now_micros();
                while sqlx::query_scalar::<_, i64>($left).fetch_one(&pool).await? > 0 {
                    tokio::time::sleep(LAST_LOOK).await;
                    end = now_micros();
                }
                let progress = workers.iter_mut().map(Process::progress).collect::<Result<Vec<_>>>()?;
                let done: u64 = progress.iter().map(|(done, ..)| done).sum();
                let began = progress.iter().map(|(_, began, _)| *began).filter(|began| *began > 0).min();
                let memory = progress.iter().map(|(.., memory)| *memory).fold(0.0, f64::max);
                let seconds = (end - began.ok_or("no job ran")?) as f64 / 1e6;
                Ok(json!({ "done": done, "rate": jobs as f64 / seconds, "memory_mb": memory }))
            }

            /// Waits until so many ran.
            async fn ran(jobs: usize) -> Vec<(f64, f64)> {
                let until = Instant::now() + Duration::from_secs(60);
                loop {
                    let ran = RAN.lock().expect("nobody panics with it").clone();
                    if ran.len() >= jobs || Instant::now() > until {
                        return ran;
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }

            async fn latency(url: &str, jobs: usize) -> Result<Value> {
                let (_pool, mut storage) = open_to_wait(url).await?;
                let waiting = $latency(storage.clone());
                tokio::spawn(async move { WorkerBuilder::new("worker").backend(waiting).build(noop).run().await });
                tokio::time::sleep(Duration::from_secs(2)).await;
                for id in 0..(jobs + WARM_UP) as u64 {
                    tokio::time::sleep(Duration::from_micros(10_000 + now_micros() % 20_000)).await;
                    storage.push(Noop { id, from: Some(now_ms()) }).await?;
                }
                let ran = ran(jobs + WARM_UP).await;
                let ms: Vec<f64> = ran.into_iter().skip(WARM_UP).map(|(from, at)| at - from).collect();
                Ok(json!({ "done": ms.len(), "ms": ms }))
            }

            async fn delayed(url: &str, jobs: usize, seconds: f64) -> Result<Value> {
                let (_pool, mut storage) = open_to_wait(url).await?;
                let waiting = storage.clone().poll_with_interval(Duration::from_millis(10));
                tokio::spawn(async move { WorkerBuilder::new("worker").backend(waiting).build(noop).run().await });
                let (first, step) = (now_ms().ceil() + 4_000.0, seconds * 1_000.0 / jobs as f64);
                let due: Vec<f64> = (0..jobs).map(|number| first + number as f64 * step).collect();
                for batch in due.chunks(BULK as usize) {
                    // Whole seconds are all that it knows, and a job must not run before it is due.
                    let task = |due: &f64| {
                        let job = Noop { id: 0, from: Some(*due) };
                        TaskBuilder::new(job).run_at_timestamp((due / 1_000.0).ceil() as u64).build()
                    };
                    let tasks: Vec<_> = batch.iter().map(task).collect();
                    storage.push_all(&mut futures::stream::iter(tasks)).await?;
                }
                if now_ms() > first {
                    return Err("the first job was due before the last was submitted".into());
                }
                tokio::time::sleep(Duration::from_secs_f64((first - now_ms()) / 1_000.0 + seconds)).await;
                let mut ran = ran(jobs).await;
                ran.sort_by(|one, other| one.0.total_cmp(&other.0));
                let ms: Vec<f64> = ran.into_iter().map(|(due, at)| at - due).collect();
                Ok(json!({ "done": ms.len(), "ms": ms }))
            }
        }
    };
}
