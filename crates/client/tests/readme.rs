//! The code of the README, compiled: what stands there stands here, line by line. And what the page of the SDK needs is on it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::Path;
use taskwheel_client::{Client, NewTask, TaskContext, TaskError, Worker, postgres, sqlx};

const README: &str = include_str!("../../../README.md");
const PAGE: &str = include_str!("../../../docs/rust.md");
const MANIFEST: &str = include_str!("../Cargo.toml");
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

/// The lines of the blocks of a language.
fn lines<'p>(page: &'p str, language: &str) -> impl Iterator<Item = &'p str> {
    let fence = format!("\n```{language}");
    let blocks: Vec<_> = page.split(&fence).skip(1).filter_map(|rest| rest.split("\n```").next()).collect();
    // The first line of a block is the rest of its fence.
    blocks.into_iter().flat_map(|block| block.lines().skip(1))
}

/// The names that paths in a line begin with.
fn roots(line: &str) -> impl Iterator<Item = &str> {
    let is_of_path = |one: char| one.is_ascii_alphanumeric() || "_:".contains(one);
    let paths = line.split("//").next().unwrap_or(line).split(move |one| !is_of_path(one));
    // A turbofish has nothing behind it.
    let split =
        paths.filter_map(|path| path.split_once("::")).filter(|(root, rest)| !root.is_empty() && !rest.is_empty());
    split.map(|(root, _)| root)
}

#[test]
fn every_crate_that_the_page_uses_is_among_its_dependencies() {
    let named: BTreeSet<_> =
        lines(PAGE, "toml").filter_map(|line| line.split_once(" = ")).map(|(name, _)| name).collect();
    let reexported = ["rusqlite", "sqlx", "postgres", "sqlite", "testing"];
    let is_crate = |root: &&str| root.starts_with(char::is_lowercase) && *root != "std" && !reexported.contains(root);
    let used: BTreeSet<_> =
        lines(PAGE, "rust").flat_map(roots).filter(is_crate).map(|root| root.replace('_', "-")).collect();
    assert!(used.contains("anyhow") && used.contains("taskwheel-client"), "{used:?}");
    for name in used {
        assert!(named.contains(name.as_str()), "{name} is not among the dependencies: {named:?}");
    }
    let path =
        PAGE.split("{ path = \"../taskwheel/").nth(1).and_then(|rest| rest.split('"').next()).expect("there is a path");
    assert!(Path::new(env!("CARGO_MANIFEST_DIR")).ends_with(path), "{path} is where the crate is");
}

#[test]
fn every_feature_that_the_page_names_is_one_of_the_crate() {
    let features = MANIFEST.split("\n[features]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap();
    // What is said of other crates stands in their own lines.
    let of_us = lines(PAGE, "toml").filter(|line| line.starts_with("# ") || line.starts_with("taskwheel-client "));
    let lists = of_us.filter_map(|line| line.split("features = [").nth(1)?.split(']').next());
    let named: Vec<_> = lists.flat_map(|list| list.split(", ")).map(|name| name.trim_matches('"')).collect();
    assert!(!named.is_empty(), "the page names the feature for databases");
    for name in named {
        assert!(features.contains(&format!("\n{name} = ")), "{name} is no feature: {features}");
    }
}

#[test]
fn the_code_of_the_readme_is_what_is_compiled_here() {
    let statements: Vec<_> = lines(README, "rust").collect();
    assert_eq!(statements.len(), 7, "{statements:?}");
    for line in statements {
        let statement = line.split("  //").next().unwrap_or(line).trim_end();
        assert!(HERE.lines().any(|here| here.trim() == statement), "this is not compiled: {statement}");
    }
}
