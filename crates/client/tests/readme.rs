//! The code of the README, compiled: what stands there stands here, line by line.

use serde::{Deserialize, Serialize};
use taskwheel_client::{Client, NewTask, TaskContext, TaskError, Worker, postgres, sqlx};

const README: &str = include_str!("../../../README.md");
const HERE: &str = include_str!("readme.rs");

#[derive(Deserialize, Serialize)]
struct Mail {
    to: String,
}

async fn send(_: TaskContext, mail: Mail) -> Result<String, TaskError> {
    Ok(mail.to)
}

#[expect(dead_code, reason = "a worker would run on; the examples are run")]
async fn works() -> anyhow::Result<()> {
    let client = Client::connect("http://127.0.0.1:9222")?;
    client.submit(NewTask::new("mail", &Mail { to: "a@b.c".into() })).await?;
    Worker::new(&client).handle("mail", send).run().await?;
    Ok(())
}

#[expect(dead_code, reason = "the tables of orders are the reader's; the examples are run")]
async fn submits_together_with_rows(pool: sqlx::PgPool, mail: Mail) -> anyhow::Result<()> {
    let mut transaction = pool.begin().await?;
    sqlx::query("INSERT INTO orders (id) VALUES ($1)").bind(7).execute(&mut *transaction).await?;
    postgres::submit_on(&mut transaction, [NewTask::new("mail", &mail)]).await?;
    transaction.commit().await?;
    Ok(())
}

#[test]
fn the_code_of_the_readme_is_what_is_compiled_here() {
    let blocks = README.split("\n```rust").skip(1).filter_map(|rest| rest.split("\n```").next());
    // The first line of a block is the rest of its fence.
    let statements: Vec<_> = blocks.flat_map(|block| block.lines().skip(1)).collect();
    assert_eq!(statements.len(), 7, "{statements:?}");
    for line in statements {
        let statement = line.split("  //").next().unwrap_or(line).trim_end();
        assert!(HERE.lines().any(|here| here.trim() == statement), "this is not compiled: {statement}");
    }
}
