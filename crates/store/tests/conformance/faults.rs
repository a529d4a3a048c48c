//! Faults of the servers: which pass, so that the work is tried again, and which are reported at once.

use crate::facts;
use crate::support::{Dialect, Platform};
use taskwheel_model::TypeSettings;
use taskwheel_store::StoreError;

/// What the store makes of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It may pass: tried again on the same connection.
    Again,
    /// The connection leads nowhere: tried again on others.
    Lost,
    /// It will not pass.
    Final,
}

use Fate::{Again, Final, Lost};

const POSTGRES: &[(&str, Fate)] = &[
    ("40001", Again), // serialization failure
    ("40P01", Again), // deadlock
    ("55P03", Again), // lock time-out
    ("57014", Again), // cancelled, or took too long
    ("53000", Again), // too little of something
    ("53100", Again), // disk full
    ("53200", Again), // out of memory
    ("53300", Again), // too many connections
    ("53400", Again), // a limit of the configuration
    ("58030", Again), // the disk failed
    ("57P01", Lost),  // shutdown
    ("57P02", Lost),  // another process crashed
    ("57P03", Lost),  // starting up
    ("57P05", Lost),  // idle for too long
    ("25P03", Lost),  // idle in a transaction for too long
    ("25006", Lost),  // a replica
    ("XX000", Lost),  // something inside
    ("23514", Final), // a check was violated
    ("42P01", Final), // no such table
    ("42501", Final), // not allowed
    ("P0001", Final), // a trigger refused
];

const MYSQL: &[(&str, Fate)] = &[
    ("1213", Again), // deadlock
    ("1205", Again), // lock time-out
    ("1020", Again), // the row changed since it was read
    ("1040", Again), // too many connections
    ("1203", Again), // too many connections of a user
    ("1290", Again), // read only
    ("1836", Again), // read only
    ("1317", Again), // cancelled
    ("1969", Again), // took too long, on MariaDB
    ("3024", Again), // took too long, on MySQL
    ("1021", Again), // disk full
    ("1114", Again), // table full
    ("1037", Again), // out of memory
    ("1041", Again), // out of memory
    ("1053", Lost),  // shutdown
    ("1927", Lost),  // killed
    ("1047", Lost),  // not in its cluster
    ("1146", Final), // no such table
    ("1142", Final), // not allowed
    ("1406", Final), // a text is too long
    ("1644", Final), // a trigger refused
];

/// A trigger on types that fails with the code in the table `fault`, and names the connection it failed on.
const POSTGRES_TRIGGER: &str = "
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION USING ERRCODE = (SELECT code FROM fault), MESSAGE = 'on connection ' || pg_backend_pid(); END $$;
CREATE TRIGGER failing BEFORE INSERT ON task_type FOR EACH ROW EXECUTE FUNCTION fail()";
const MYSQL_TRIGGER: &str = "
CREATE TRIGGER failing BEFORE INSERT ON task_type FOR EACH ROW BEGIN
    DECLARE number INT DEFAULT (SELECT code FROM fault);
    DECLARE words VARCHAR(50) DEFAULT CONCAT('on connection ', CONNECTION_ID());
    SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = number, MESSAGE_TEXT = words;
END";

async fn passing_faults_are_told_from_others(platform: &Platform) {
    let (faults, trigger, no_trigger) = match platform.dialect() {
        Dialect::Postgres => (POSTGRES, POSTGRES_TRIGGER, "DROP TRIGGER failing ON task_type"),
        _ => (MYSQL, MYSQL_TRIGGER, "DROP TRIGGER failing"),
    };
    let mut raw = platform.raw().await;
    raw.run("CREATE TABLE fault (code varchar(5))").await;
    raw.run("INSERT INTO fault VALUES (NULL)").await;
    raw.run(trigger).await;
    // With one connection at a time it is certain which one the next call uses.
    let store = platform.open_again(|options| options.connections_max = 1).await.unwrap();
    let fail = async || store.put_type("mail".into(), TypeSettings::default()).await.expect_err("it fails");
    let on = |error: &StoreError| {
        let words = error.to_string();
        let (_, number) = words.split_once("on connection ").unwrap_or_else(|| panic!("{words}"));
        number.split(' ').next().map(str::to_owned)
    };
    let (refusal, _) = faults[faults.len() - 1];
    for (code, fate) in faults {
        raw.run(&format!("UPDATE fault SET code = '{refusal}'")).await;
        let before = on(&fail().await);
        raw.run(&format!("UPDATE fault SET code = '{code}'")).await;
        let error = fail().await;
        let is_same = on(&error) == before;
        let met = match (&error, is_same) {
            (StoreError::Unavailable(_), true) => Again,
            (StoreError::Unavailable(_), false) => Lost,
            (StoreError::Database(_), true) => Final,
            _ => panic!("{code}: {error:?}, on the same connection: {is_same}"),
        };
        assert_eq!(met, *fate, "{code}: {error}");
    }
    // What failed has left nothing, and the same store goes on.
    raw.run(no_trigger).await;
    assert_eq!(store.types().await.unwrap(), []);
    store.put_type("mail".into(), TypeSettings::default()).await.unwrap();
}

facts! { in postgres on Postgres: passing_faults_are_told_from_others }
facts! { in mysql on Mysql: passing_faults_are_told_from_others }
