//! What a task takes along from who submitted it: its tenant and its trace.

use crate::facts;
use crate::support::Platform;
use serde_json::json;
use std::future::{Ready, ready};
use taskwheel_client::rusqlite::{Connection, TransactionBehavior};
use taskwheel_client::{Client, Error, Filter, NewTask, TaskContext, TaskError, Worker, sqlite};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn tell() -> NewTask {
    NewTask::new("tell", &())
}

fn told(ctx: TaskContext, (): ()) -> Ready<Result<(String, Option<String>), TaskError>> {
    ready(Ok((ctx.tenant().to_owned(), ctx.trace_parent().map(str::to_owned))))
}

async fn a_trace_goes_from_submit_to_handler(platform: &Platform) {
    let client = &platform.client;
    let mut traced = client.submit_batch([tell().trace_parent(TRACE), tell().trace_parent(TRACE)]).await.unwrap();
    traced.push(client.submit(tell().trace_parent(TRACE)).await.unwrap());
    traced.push(client.submit_once("call", tell().trace_parent(TRACE)).await.unwrap());
    let odd = platform.submit(tell().trace_parent("none\n")).await;
    platform.worker().handle("tell", told).run_until_idle().await.unwrap();
    for one in traced {
        assert_eq!(platform.task(one.id).await.result, Some(json!(["default", TRACE])));
    }
    assert_eq!(platform.task(odd).await.result, Some(json!(["default", null])), "what is no trace is ignored");
    let refused = client.submit_batch([tell(), tell().trace_parent(TRACE)]).await;
    assert!(matches!(&refused, Err(Error::Invalid(fields)) if fields[0].field == "trace_parent"), "{refused:?}");
}

facts! {
    a_trace_goes_from_submit_to_handler,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_is_kept_by_a_submit_on_a_transaction() {
    let platform = Platform::embedded().await;
    let mut connection = Connection::open(platform.database()).unwrap();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    let submitted = sqlite::submit_on(&transaction, [tell(), tell().trace_parent(TRACE)]).unwrap();
    transaction.commit().unwrap();
    platform.worker().handle("tell", told).run_until_idle().await.unwrap();
    assert_eq!(platform.task(submitted[0].id).await.result, Some(json!(["default", null])));
    assert_eq!(platform.task(submitted[1].id).await.result, Some(json!(["default", TRACE])));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_a_tenant_has_its_tasks_alone() {
    let platform = Platform::remote().await;
    let acme = Client::builder().server(&platform.urls()[0]).tenant("acme").build().unwrap();
    let other = platform.submit(tell()).await;
    let own = acme.submit(tell()).await.unwrap().id;
    assert_eq!(acme.find(other).await.unwrap(), None);
    assert_eq!(platform.client.find(own).await.unwrap(), None);
    assert_eq!(acme.list(Filter::default().live()).await.unwrap().items.len(), 1);
    Worker::new(&acme).handle("tell", told).run_until_idle().await.unwrap();
    assert_eq!(acme.get(own).await.unwrap().result, Some(json!(["acme", null])));
    assert_eq!(platform.task(other).await.attempts, 0);
    let refused = Client::builder().tenant("").build();
    assert!(matches!(&refused, Err(Error::Invalid(fields)) if fields[0].field == "tenant"), "{refused:?}");
}
