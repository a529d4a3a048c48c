//! Where the server listens, and how it is encrypted.

use crate::support::{Dialect, TestDatabase};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const PUBLIC: [&str; 3] = ["serve", "--listen", "0.0.0.0:0"];

fn taskwheel(database: &TestDatabase, line: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_taskwheel"));
    command.args(line).args(["--database", &database.url]).env("TASKWHEEL_LOG", "warn").kill_on_drop(true);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn run(database: &TestDatabase, line: &[&str]) -> Output {
    tokio::time::timeout(Duration::from_secs(30), taskwheel(database, line).output()).await.expect("it ends").unwrap()
}

/// The address that a server says it listens on, and its process.
async fn started(database: &TestDatabase, line: &[&str]) -> (String, Child) {
    let mut process = taskwheel(database, line).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let first = tokio::time::timeout(Duration::from_secs(30), lines.next_line()).await.expect("it starts").unwrap();
    (first.expect("it says where").split_whitespace().last().unwrap().to_owned(), process)
}

#[tokio::test]
async fn without_any_token_it_listens_on_this_machine_alone() {
    let database = TestDatabase::create(Dialect::Sqlite).await;
    let refused = run(&database, &PUBLIC).await;
    let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && complaint.contains("tokens create"), "{complaint}");
    let made = run(&database, &["tokens", "create", "--role", "admin", "--json"]).await;
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    run(&database, &["tokens", "revoke", &made["id"].to_string()]).await;
    for format in ["text", "json"] {
        let mut process = taskwheel(&database, &PUBLIC);
        // However little is logged.
        let mut process = process.args(["--log-format", format]).env("TASKWHEEL_LOG", "off").spawn().unwrap();
        let mut complaints = BufReader::new(process.stderr.take().unwrap()).lines();
        let warning = complaints.next_line().await.unwrap().unwrap();
        assert!(warning.contains("WITHOUT TLS"), "{warning}");
        let read = serde_json::from_str::<serde_json::Value>(&warning).map(|line| line["level"].clone());
        assert_eq!(read.ok(), (format == "json").then(|| "WARN".into()), "{warning}");
        let mut banner = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut said = String::new();
        while !said.contains("try:") {
            said += &banner.next_line().await.unwrap().expect("it says what to try");
        }
        assert!(said.contains("TASKWHEEL_TOKEN"), "with tokens one is needed: {said}");
        process.kill().await.unwrap();
    }
    database.remove().await;
}

#[tokio::test]
async fn with_a_certificate_it_speaks_https() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let database = TestDatabase::create(Dialect::Sqlite).await;
    let directory = tempfile::tempdir().unwrap();
    let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let file = |name: &str, text: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (certificate, key) = (file("cert.pem", signed.cert.pem()), file("key.pem", signed.signing_key.serialize_pem()));
    let line = ["serve", "--listen", "127.0.0.1:0", "--tls-cert", &certificate, "--tls-key", &key];
    let (url, process) = started(&database, &line).await;
    assert!(url.starts_with("https://"), "{url}");
    let trusted = reqwest::Certificate::from_pem(signed.cert.pem().as_bytes()).unwrap();
    let client = reqwest::Client::builder().tls_certs_only([trusted]).build().unwrap();
    let answer = client.get(format!("{url}/readyz")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert!(reqwest::Client::new().get(format!("{url}/readyz")).send().await.is_err(), "not everybody trusts it");
    for (server, expected) in [(url.clone(), "SSL_CERT_FILE"), (url.replace("https:", "http:"), "https://")] {
        let mut list = Command::new(env!("CARGO_BIN_EXE_taskwheel"));
        let refused = list.args(["tasks", "list", "--server", &server]).output().await.unwrap();
        let complaint = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && complaint.contains(expected), "{complaint}");
    }
    for (certificate, key, expected) in [
        (&key, &certificate, "key.pem holds no certificate"),
        (&certificate, &certificate, "cert.pem holds no private key"),
        (&"nowhere.pem".to_owned(), &key, "cannot read nowhere.pem"),
    ] {
        let bad = run(&database, &["serve", "--tls-cert", certificate, "--tls-key", key]).await;
        let complaint = String::from_utf8_lossy(&bad.stderr);
        assert!(!bad.status.success() && complaint.contains(expected), "{complaint}");
    }
    drop(process);
    database.remove().await;
}

/// The certificate of an authority is none of a server.
#[tokio::test]
async fn a_client_says_that_the_certificate_of_an_authority_is_served() {
    let database = TestDatabase::create(Dialect::Sqlite).await;
    let directory = tempfile::tempdir().unwrap();
    let mut wanted = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    wanted.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let authority = wanted.self_signed(&key).unwrap();
    let (certificate, file) = (directory.path().join("ca.pem"), directory.path().join("key.pem"));
    std::fs::write(&certificate, authority.pem()).unwrap();
    std::fs::write(&file, key.serialize_pem()).unwrap();
    let (certificate, file) = (certificate.to_str().unwrap(), file.to_str().unwrap());
    let line = ["serve", "--listen", "127.0.0.1:0", "--tls-cert", certificate, "--tls-key", file];
    let (url, process) = started(&database, &line).await;
    let mut list = Command::new(env!("CARGO_BIN_EXE_taskwheel"));
    list.args(["tasks", "list", "--server", &url]).env("SSL_CERT_FILE", certificate);
    let complaint = String::from_utf8(list.output().await.unwrap().stderr).unwrap();
    assert!(complaint.contains("let that authority sign one for the server"), "{complaint}");
    drop(process);
    database.remove().await;
}

#[tokio::test]
async fn a_client_names_what_is_wrong_with_its_https() {
    let database = TestDatabase::create(Dialect::Sqlite).await;
    let (url, process) = started(&database, &["serve", "--listen", "127.0.0.1:0"]).await;
    let url = url.replace("http:", "https:");
    let list = async |variables: &[(&str, &str)]| {
        let mut list = Command::new(env!("CARGO_BIN_EXE_taskwheel"));
        list.args(["tasks", "list", "--server", &url]).envs(variables.iter().copied());
        let refused = list.output().await.unwrap();
        assert!(!refused.status.success(), "{refused:?}");
        String::from_utf8(refused.stderr).unwrap()
    };
    let complaint = list(&[]).await;
    assert!(complaint.contains("is it one without TLS, at http://?"), "{complaint}");
    let complaint = list(&[("SSL_CERT_FILE", "nowhere.pem")]).await;
    assert!(complaint.contains("SSL_CERT_FILE: cannot read nowhere.pem"), "{complaint}");
    drop(process);
    database.remove().await;
}
