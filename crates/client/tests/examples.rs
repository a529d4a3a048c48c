//! The examples do what they say, as processes of their own.

#[path = "../../store/tests/support/database.rs"]
mod database;
#[path = "../../store/tests/support/raw.rs"]
#[expect(dead_code, reason = "the store's own tests use all of it")]
mod raw;

use database::TestDatabase;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use raw::Raw;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use taskwheel_client::engine::{Engine, EngineOptions};
use taskwheel_client::store::{Dialect, Options, open};
use taskwheel_client::{Client, NewTask, Outcome, Status, TaskId};
use taskwheel_server::TlsAcceptor;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::watch;

const IN_TIME: Duration = Duration::from_secs(60);

/// An example that runs. It is killed when this is dropped.
struct Example {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Example {
    fn start(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Example {
        // Examples lie beside the directory of the tests.
        let tests = std::env::current_exe().unwrap();
        let program: PathBuf = tests.parent().unwrap().parent().unwrap().join("examples").join(name);
        let mut command = Command::new(program);
        command.args(arguments).envs(variables.iter().copied()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("the example is built with the tests");
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Example { process, lines }
    }

    /// The next line it prints.
    async fn line(&mut self) -> Option<String> {
        tokio::time::timeout(IN_TIME, self.lines.next_line()).await.expect("it goes on").unwrap()
    }

    /// Reads on until it prints a line.
    async fn says(&mut self, wanted: &str) {
        while let Some(line) = self.line().await {
            if line == wanted {
                return;
            }
        }
        panic!("it never said {wanted}");
    }

    fn signal(&self, signal: Signal) {
        let id = self.process.id().expect("it runs");
        kill(Pid::from_raw(i32::try_from(id).unwrap()), signal).unwrap();
    }

    /// Waits for its end, which must be a good one, and answers what else it printed.
    async fn ends(mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = self.line().await {
            lines.push(line);
        }
        let status = tokio::time::timeout(IN_TIME, self.process.wait()).await.expect("it ends").unwrap();
        assert!(status.success(), "{status}: {lines:?}");
        lines
    }
}

fn in_directory(directory: &tempfile::TempDir, name: &str) -> String {
    directory.path().join(name).display().to_string()
}

async fn engine(directory: &tempfile::TempDir) -> Arc<Engine> {
    let url = format!("sqlite://{}", in_directory(directory, "tasks.db"));
    Arc::new(Engine::start(open(Options::new(url)).await.unwrap(), EngineOptions::default()))
}

/// A server in front of an engine, and what it ends with.
async fn serve(engine: Arc<Engine>, tls: Option<TlsAcceptor>) -> (String, watch::Sender<bool>) {
    let listener = taskwheel_server::bind(([127, 0, 0, 1], 0).into(), tls).await.unwrap();
    let server = format!("{}://{}", listener.scheme(), listener.address().unwrap());
    let (stop, stopped) = watch::channel(false);
    let router = taskwheel_server::router(engine, taskwheel_server::Spans::default(), "UTC".into());
    tokio::spawn(listener.serve(router, stopped));
    (server, stop)
}

async fn nobody_misses_the_server(dialect: Dialect) {
    let database = TestDatabase::create(dialect).await;
    let lines = Example::start("embedded", &[&database.url], &[]).ends().await;
    assert_eq!(
        lines,
        [
            "Success after 1 attempt(s): \"sent to you@here\"",
            "Success after 2 attempt(s): \"sent to busy@there\"",
            "Failure after 1 attempt(s): nowhere is no address",
        ]
    );
    database.remove().await;
}

#[tokio::test]
async fn embedded_on_sqlite() {
    nobody_misses_the_server(Dialect::Sqlite).await;
}

#[tokio::test]
async fn embedded_on_postgres() {
    nobody_misses_the_server(Dialect::Postgres).await;
}

#[tokio::test]
async fn embedded_on_mysql() {
    nobody_misses_the_server(Dialect::Mysql).await;
}

async fn an_order_and_its_task_are_both_there_or_neither(dialect: Dialect) {
    let database = TestDatabase::create(dialect).await;
    let lines = Example::start("transactional_submit", &[&database.url], &[]).ends().await;
    assert_eq!(lines, ["orders after the rollback: 0, after the commit: 1", "task confirm order-7: New"]);
    let tasks = database.raw().await.number("SELECT COUNT(*) FROM task").await;
    assert_eq!(tasks, 1, "nothing is left of what was rolled back");
    database.remove().await;
}

#[tokio::test]
async fn transactional_submit_on_sqlite() {
    an_order_and_its_task_are_both_there_or_neither(Dialect::Sqlite).await;
}

#[tokio::test]
async fn transactional_submit_on_postgres() {
    an_order_and_its_task_are_both_there_or_neither(Dialect::Postgres).await;
}

#[tokio::test]
async fn transactional_submit_on_mysql() {
    an_order_and_its_task_are_both_there_or_neither(Dialect::Mysql).await;
}

#[tokio::test]
async fn long_import_goes_on_from_its_checkpoint_after_kill_9() {
    const ROWS: usize = 1_000;
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", in_directory(&directory, "tasks.db"));
    let output = in_directory(&directory, "rows.txt");
    let arguments = |pause| [url.as_str(), output.as_str(), "1000", pause];
    // At this pace it would take minutes.
    let mut first = Example::start("long_import", &arguments("100"), &[]);
    first.says("attempt 1 begins with row 0").await;
    first.says("saved 6").await;
    first.signal(Signal::SIGKILL);
    first.process.wait().await.unwrap();

    let lines = Example::start("long_import", &arguments("0"), &[]).ends().await;
    let begins = lines.first().unwrap();
    let row: usize = begins.strip_prefix("attempt 2 begins with row ").expect(begins).parse().unwrap();
    assert!((6..ROWS).contains(&row), "{begins}");
    assert_eq!(lines.last().map(String::as_str), Some("Success after 2 attempt(s)"));
    let written = std::fs::read_to_string(&output).unwrap();
    let mut rows: Vec<usize> =
        written.lines().map(|line| line.strip_prefix("row ").unwrap().parse().unwrap()).collect();
    assert!(rows.len() < 2 * ROWS, "it did not start over");
    rows.sort_unstable();
    rows.dedup();
    assert_eq!(rows, (0..ROWS).collect::<Vec<_>>(), "no row is missing");
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_worker_works_and_gives_back_at_sigterm() {
    let directory = tempfile::tempdir().unwrap();
    let (server, _stop) = serve(engine(&directory).await, None).await;
    let client = Client::connect(&server).unwrap();

    let mut worker = Example::start("remote_worker", &[], &[("TASKWHEEL_SERVER", &server)]);
    let greeted = client.submit(NewTask::new("greet", "you")).await.unwrap();
    worker.says(&format!("task {}, attempt 1: you", greeted.id)).await;
    let waits = client.submit(NewTask::new("wait", &3_600)).await.unwrap();
    worker.says(&format!("task {} waits for 3600 s", waits.id)).await;
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ends().await, ["stopped"]);

    let task = async |id: TaskId| client.get(id).await.unwrap();
    let greeted = task(greeted.id).await;
    assert_eq!((greeted.status, greeted.result_as::<String>().unwrap().as_str()), (Status::Success, "hello you"));
    let given_back = task(waits.id).await;
    assert_eq!(given_back.attempts_log[0].outcome, Some(Outcome::Release));
    assert_eq!(given_back.attempts_log[0].error.as_deref(), Some("the worker stops"));
}

/// The certificate of an authority, and one for this machine that it signed, with its key.
fn certificates() -> [String; 3] {
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let trusted = authority.self_signed(&authority_key).unwrap().pem();
    let authority = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let own = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    [trusted, own.pem(), key.serialize_pem()]
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_worker_trusts_the_authority_that_ssl_cert_file_names() {
    let directory = tempfile::tempdir().unwrap();
    let engine = engine(&directory).await;
    let client = Client::on_engine(engine.clone());
    // A client settles how it is encrypted, for both.
    drop(Client::connect("https://127.0.0.1").unwrap());
    let names = ["authority.pem", "own.pem", "key.pem"];
    let [authority, own, key] = names.map(|name| in_directory(&directory, name));
    for (file, text) in [&authority, &own, &key].into_iter().zip(certificates()) {
        std::fs::write(file, text).unwrap();
    }
    let tls = taskwheel_server::tls(own.as_ref(), key.as_ref()).unwrap();
    let (server, _stop) = serve(engine, Some(tls)).await;
    let variables = [("TASKWHEEL_SERVER", server.as_str()), ("SSL_CERT_FILE", &authority)];
    let mut worker = Example::start("remote_worker", &[], &variables);
    let greeted = client.submit(NewTask::new("greet", "you")).await.unwrap();
    worker.says(&format!("task {}, attempt 1: you", greeted.id)).await;
    worker.signal(Signal::SIGTERM);
    assert_eq!(worker.ends().await, ["stopped"]);
    assert_eq!(client.get(greeted.id).await.unwrap().status, Status::Success);
}
