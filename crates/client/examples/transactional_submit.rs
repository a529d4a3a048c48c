//! An order and its task in one transaction: there are both, or neither.
//!
//! On SQLite in a file of its own, or on the database that is named.
//!
//! `cargo run -p taskwheel-client --example transactional_submit [URL]`
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use taskwheel_client::sqlx::{Connection, MySqlConnection, PgConnection, Row, query};
use taskwheel_client::{Client, Filter, NewTask, mysql, postgres, rusqlite, sqlite};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ORDERS: &str = "CREATE TABLE orders (id BIGINT PRIMARY KEY)";
const COUNT: &str = "SELECT COUNT(*) FROM orders";

/// The task that belongs to an order.
fn confirmation(order: i64) -> NewTask {
    NewTask::new("confirm", &order).key(format!("order-{order}"))
}

async fn on_postgres(url: &str) -> Result<[i64; 2]> {
    let mut connection = PgConnection::connect(url).await?;
    query(ORDERS).execute(&mut connection).await?;
    let mut counts = [0; 2];
    for (count, commits) in counts.iter_mut().zip([false, true]) {
        let mut transaction = connection.begin().await?;
        query("INSERT INTO orders (id) VALUES ($1)").bind(7_i64).execute(&mut *transaction).await?;
        postgres::submit_on(&mut transaction, [confirmation(7)]).await?;
        if commits {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
        *count = query(COUNT).fetch_one(&mut connection).await?.try_get(0)?;
    }
    Ok(counts)
}

async fn on_mysql(url: &str) -> Result<[i64; 2]> {
    let mut connection = MySqlConnection::connect(url).await?;
    query(ORDERS).execute(&mut connection).await?;
    let mut counts = [0; 2];
    for (count, commits) in counts.iter_mut().zip([false, true]) {
        let mut transaction = connection.begin().await?;
        query("INSERT INTO orders (id) VALUES (?)").bind(7_i64).execute(&mut *transaction).await?;
        mysql::submit_on(&mut transaction, [confirmation(7)]).await?;
        if commits {
            transaction.commit().await?;
        } else {
            transaction.rollback().await?;
        }
        *count = query(COUNT).fetch_one(&mut connection).await?.try_get(0)?;
    }
    Ok(counts)
}

fn on_sqlite(path: &str) -> Result<[i64; 2]> {
    let mut connection = rusqlite::Connection::open(path)?;
    connection.busy_timeout(std::time::Duration::from_secs(10))?;
    connection.execute(ORDERS, ())?;
    let mut counts = [0; 2];
    for (count, commits) in counts.iter_mut().zip([false, true]) {
        let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        transaction.execute("INSERT INTO orders (id) VALUES (?1)", [7])?;
        sqlite::submit_on(&transaction, [confirmation(7)])?;
        if commits {
            transaction.commit()?;
        } else {
            transaction.rollback()?;
        }
        *count = connection.query_row(COUNT, (), |row| row.get(0))?;
    }
    Ok(counts)
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "sqlite://transactional_submit.db".into());
    // Brings the schema up to date.
    let client = Client::embedded(&url).await?;
    let orders = match url.split_once("://") {
        Some(("sqlite", path)) => on_sqlite(path)?,
        Some(("mysql" | "mariadb", _)) => on_mysql(&url).await?,
        _ => on_postgres(&url).await?,
    };
    println!("orders after the rollback: {}, after the commit: {}", orders[0], orders[1]);
    for task in client.list(Filter::of_type("confirm")).await?.items {
        println!("task {} {}: {}", task.task_type, task.key.unwrap_or_default(), task.status);
    }
    Ok(())
}
