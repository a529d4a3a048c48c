//! Drives beanstalkd by the commands of ../README.md. It speaks the protocol itself.
//!
//! ```text
//! worker ADDRESS CONNECTIONS     what `drain` starts, one for each process
//! ```
//!
//! The URL is `HOST:PORT/PROCESS`; the process is the server's, whose memory counts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const WARM_UP: usize = 20;
const BULK: usize = 1_000;

/// A connection.
struct Connection {
    output: TcpStream,
    input: BufReader<TcpStream>,
}

impl Connection {
    fn open(url: &str) -> Result<Connection> {
        let address = url.split_once('/').map_or(url, |(address, _)| address);
        let output = TcpStream::connect(address)?;
        output.set_nodelay(true)?;
        let input = BufReader::with_capacity(64 * 1024, output.try_clone()?);
        Ok(Connection { output, input })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.input.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        let line = self.line()?;
        if line.starts_with(word) { Ok(()) } else { Err(format!("it answered {line:?}, not {word}").into()) }
    }

    fn put(&mut self, body: &str, delay_seconds: u64) -> Result<()> {
        self.output.write_all(put(body, delay_seconds).as_bytes())?;
        self.expect("INSERTED")
    }

    /// Puts many without waiting between them.
    fn put_many(&mut self, bodies: &[(String, u64)]) -> Result<()> {
        let all: String = bodies.iter().map(|(body, delay)| put(body, *delay)).collect();
        self.output.write_all(all.as_bytes())?;
        bodies.iter().try_for_each(|_| self.expect("INSERTED"))
    }

    /// A job and what it carries; none where none comes within this time.
    fn reserve(&mut self, seconds: u64) -> Result<Option<(u64, String)>> {
        self.output.write_all(format!("reserve-with-timeout {seconds}\r\n").as_bytes())?;
        let line = self.line()?;
        let words: Vec<&str> = line.split(' ').collect();
        let ["RESERVED", id, bytes] = words[..] else { return Ok(None) };
        let mut body = vec![0; bytes.parse::<usize>()? + 2];
        self.input.read_exact(&mut body)?;
        body.truncate(body.len() - 2);
        Ok(Some((id.parse()?, String::from_utf8(body)?)))
    }

    fn delete(&mut self, id: u64) -> Result<()> {
        self.output.write_all(format!("delete {id}\r\n").as_bytes())?;
        self.expect("DELETED")
    }

    /// How many jobs wait.
    fn ready(&mut self) -> Result<u64> {
        self.output.write_all(b"stats\r\n")?;
        let line = self.line()?;
        let bytes: usize = line.strip_prefix("OK ").ok_or("no statistics")?.parse()?;
        let mut body = vec![0; bytes + 2];
        self.input.read_exact(&mut body)?;
        let body = String::from_utf8(body)?;
        let ready = body.lines().find_map(|line| line.strip_prefix("current-jobs-ready: "));
        Ok(ready.ok_or("no count of jobs")?.trim().parse()?)
    }
}

fn put(body: &str, delay_seconds: u64) -> String {
    format!("put 1024 {delay_seconds} 60 {}\r\n{body}\r\n", body.len())
}

fn job(id: usize) -> String {
    format!("{{\"id\":{id}}}")
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let answer = match arguments[..] {
        ["submit", url, clients, seconds] => submit(url, clients.parse()?, seconds.parse()?)?,
        ["bulk", url, seconds] => bulk(url, seconds.parse()?)?,
        ["load", url, jobs] => load(url, jobs.parse()?)?,
        ["worker", url, connections] => return work(url, connections.parse()?),
        ["drain", url, jobs, processes, setting] => drain(url, jobs.parse()?, processes.parse()?, setting)?,
        ["latency", url, jobs] => latency(url, jobs.parse()?)?,
        ["delayed", url, jobs, seconds] => delayed(url, jobs.parse()?, seconds.parse()?)?,
        _ => return Err("the commands are in ../README.md".into()),
    };
    println!("{answer}");
    Ok(())
}

fn submit(url: &str, clients: usize, seconds: f64) -> Result<String> {
    let connections = (0..clients).map(|_| Connection::open(url)).collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    let client = |mut connection: Connection| {
        thread::spawn(move || {
            let mut done = 0;
            while start.elapsed().as_secs_f64() < seconds {
                connection.put(&job(done), 0)?;
                done += 1;
            }
            Result::Ok(done)
        })
    };
    let clients: Vec<_> = connections.into_iter().map(client).collect();
    let mut done = 0;
    for client in clients {
        done += client.join().map_err(|_| "a client has failed")??;
    }
    stored(url, done, start.elapsed().as_secs_f64())
}

fn bulk(url: &str, seconds: f64) -> Result<String> {
    let mut connection = Connection::open(url)?;
    let start = Instant::now();
    let mut done = 0;
    while start.elapsed().as_secs_f64() < seconds {
        connection.put_many(&batch(done, BULK))?;
        done += BULK;
    }
    stored(url, done, start.elapsed().as_secs_f64())
}

fn batch(first: usize, count: usize) -> Vec<(String, u64)> {
    (first..first + count).map(|id| (job(id), 0)).collect()
}

fn stored(url: &str, done: usize, seconds: f64) -> Result<String> {
    let ready = Connection::open(url)?.ready()?;
    if ready != done as u64 {
        return Err(format!("{done} jobs should be stored; {ready} are").into());
    }
    Ok(format!("{{\"done\":{done},\"rate\":{}}}", done as f64 / seconds))
}

fn load(url: &str, jobs: usize) -> Result<String> {
    let mut connection = Connection::open(url)?;
    for first in (0..jobs).step_by(BULK) {
        connection.put_many(&batch(first, BULK.min(jobs - first)))?;
    }
    Ok("{}".into())
}

/// Works until nothing is left, and says how much it was, when the first began and when the last had ended.
fn work(url: &str, connections: usize) -> Result<()> {
    let connections = (0..connections).map(|_| Connection::open(url)).collect::<Result<Vec<_>>>()?;
    println!("ready");
    std::io::stdin().read_line(&mut String::new())?;
    let worker = |mut connection: Connection| {
        thread::spawn(move || {
            let (mut done, mut first) = (0_u64, f64::INFINITY);
            while let Some((id, _)) = connection.reserve(0)? {
                first = first.min(now_ms());
                connection.delete(id)?;
                done += 1;
            }
            Result::Ok((done, first))
        })
    };
    let workers: Vec<_> = connections.into_iter().map(worker).collect();
    let (mut done, mut first) = (0, f64::INFINITY);
    for worker in workers {
        let (its_done, its_first) = worker.join().map_err(|_| "a connection has failed")??;
        done += its_done;
        first = first.min(its_first);
    }
    println!("{done} {first} {}", now_ms());
    Ok(())
}

fn drain(url: &str, jobs: u64, processes: usize, setting: &str) -> Result<String> {
    let mut workers = (0..processes).map(|_| start(url, setting)).collect::<Result<Vec<_>>>()?;
    for (child, _) in &mut workers {
        child.stdin.as_mut().ok_or("a worker without input")?.write_all(b"go\n")?;
    }
    let (mut done, mut first, mut end) = (0, f64::INFINITY, 0.0_f64);
    for (child, output) in &mut workers {
        let mut line = String::new();
        output.read_line(&mut line)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [its_done, its_first, its_end] = words[..] else { return Err("a worker process has failed".into()) };
        done += its_done.parse::<u64>()?;
        (first, end) = (first.min(its_first.parse()?), end.max(its_end.parse()?));
        child.wait()?;
    }
    let seconds = (end - first) / 1_000.0;
    let process = url.split_once('/').ok_or("the URL names no process")?.1;
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no peak")?;
    let megabytes = peak.trim().trim_end_matches("kB").trim().parse::<f64>()? / 1024.0;
    Ok(format!("{{\"done\":{done},\"rate\":{},\"memory_mb\":{megabytes}}}", jobs as f64 / seconds))
}

/// A worker process that is connected.
fn start(url: &str, connections: &str) -> Result<(Child, BufReader<std::process::ChildStdout>)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["worker", url, connections])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(child.stdout.take().ok_or("a worker without output")?);
    output.read_line(&mut String::new())?;
    Ok((child, output))
}

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1_000.0
}

/// One worker: the time that each job carries, and the time that it ran.
fn timed(url: &str, jobs: usize) -> Result<thread::JoinHandle<Result<Vec<(f64, f64)>>>> {
    let mut connection = Connection::open(url)?;
    Ok(thread::spawn(move || {
        let mut ran = Vec::new();
        while ran.len() < jobs {
            let (id, body) = connection.reserve(60)?.ok_or("no job for a minute")?;
            ran.push((body.parse()?, now_ms()));
            connection.delete(id)?;
        }
        Ok(ran)
    }))
}

fn latency(url: &str, jobs: usize) -> Result<String> {
    let worker = timed(url, jobs + WARM_UP)?;
    let mut connection = Connection::open(url)?;
    for number in 0..jobs + WARM_UP {
        // Evenly from 10 to 30 ms, in an order that repeats late.
        thread::sleep(Duration::from_micros(10_000 + (number as u64 * 7_919) % 20_000));
        connection.put(&now_ms().to_string(), 0)?;
    }
    let ran = worker.join().map_err(|_| "the worker has failed")??;
    Ok(times(ran.into_iter().skip(WARM_UP)))
}

fn delayed(url: &str, jobs: usize, seconds: f64) -> Result<String> {
    let worker = timed(url, jobs)?;
    let mut connection = Connection::open(url)?;
    let first = now_ms() + 4_000.0 + jobs as f64;
    for start in (0..jobs).step_by(BULK) {
        let due = |number: usize| first + number as f64 * seconds * 1_000.0 / jobs as f64;
        // Whole seconds are all that it knows, and a job must not run before it is due.
        let put = |number| (due(number).to_string(), ((due(number) - now_ms()) / 1_000.0).ceil() as u64);
        connection.put_many(&(start..jobs.min(start + BULK)).map(put).collect::<Vec<_>>())?;
    }
    if now_ms() > first {
        return Err("the first job was due before the last was submitted".into());
    }
    let mut ran = worker.join().map_err(|_| "the worker has failed")??;
    ran.sort_by(|one, other| one.0.total_cmp(&other.0));
    Ok(times(ran.into_iter()))
}

fn times(ran: impl Iterator<Item = (f64, f64)>) -> String {
    let ms: Vec<String> = ran.map(|(from, at)| (at - from).to_string()).collect();
    format!("{{\"done\":{},\"ms\":[{}]}}", ms.len(), ms.join(","))
}
