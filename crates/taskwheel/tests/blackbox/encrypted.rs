//! TLS between the server and its database.

use crate::support::{Dialect, OwnServer};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tokio::process::Command;

/// A certificate of 127.0.0.1 and its key, for the user that runs a database.
fn certificate(directory: &Path, user: &str) {
    let signed = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    fs::write(directory.join("cert.pem"), signed.cert.pem()).unwrap();
    let key = directory.join("key.pem");
    fs::write(&key, signed.signing_key.serialize_pem()).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    // Who is not root runs the database as themselves.
    let _ = std::process::Command::new("chown").arg(user).arg(&key).status();
}

/// Whether the schema can be made at this URL, and what is said.
async fn migrate(url: &str) -> (bool, String) {
    let mut migrate = Command::new(env!("CARGO_BIN_EXE_taskwheel"));
    let ran = migrate.args(["migrate", "--database", url]).output().await.unwrap();
    (ran.status.success(), String::from_utf8(ran.stderr).unwrap())
}

async fn the_database_is_called_with_tls(dialect: Dialect) {
    let (own, foreign) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let postgres = dialect == Dialect::Postgres;
    for directory in [&own, &foreign] {
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o711)).unwrap();
        certificate(directory.path(), if postgres { "postgres" } else { "mysql" });
    }
    let (cert, key) = if postgres { ("ssl_cert_file", "ssl_key_file") } else { ("ssl-cert", "ssl-key") };
    let mut settings = [(cert, "cert.pem"), (key, "key.pem")]
        .map(|(name, file)| &*format!("{name}={}", own.path().join(file).display()).leak())
        .to_vec();
    settings.push(if postgres { "ssl=on" } else { "require-secure-transport=ON" });
    let database = OwnServer::start_with(dialect, settings.leak()).await;
    let (weak, strong, root) = if postgres {
        ("sslmode=require", "sslmode=verify-full", "sslrootcert")
    } else {
        ("ssl-mode=REQUIRED", "ssl-mode=VERIFY_IDENTITY", "ssl-ca")
    };
    let with = |options: &str| format!("{}?{options}", database.url());
    let (is_good, said) = migrate(&with(weak)).await;
    assert!(is_good, "{said}");
    let trusting =
        |directory: &tempfile::TempDir| format!("{strong}&{root}={}", directory.path().join("cert.pem").display());
    let (is_good, said) = migrate(&with(&trusting(&own))).await;
    assert!(is_good, "{said}");
    let (is_good, said) = migrate(&with(&trusting(&foreign))).await;
    assert!(!is_good && said.contains("certificate"), "who it is is looked at: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_called_with_tls() {
    the_database_is_called_with_tls(Dialect::Postgres).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_is_called_with_tls() {
    the_database_is_called_with_tls(Dialect::Mysql).await;
}
