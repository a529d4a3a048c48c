//! Shards: one task for each worker, or so many.

use super::{after, every, task_ids};
use crate::facts;
use crate::support::{Platform, worker};
use serde_json::json;
use taskwheel_model::{Outcome, RunStatus};
use taskwheel_store::schedule::RunNow;
use taskwheel_store::worker::ClaimRequest;

fn at(host: &str) -> ClaimRequest {
    ClaimRequest { worker_id: format!("worker at {host}"), host: host.into(), ..worker(&["job"]) }
}

async fn each_live_worker_gets_one_shard(platform: &Platform) {
    for host in ["one", "two", "three"] {
        platform.claim_for(at(host)).await;
    }
    let schedule = platform.schedule(json!({"shards": "per_worker"}), vec![every(1_000)]).await;
    platform.fire_after(1_000).await;
    let mut indexes = Vec::new();
    for host in ["one", "two", "three"] {
        let shard = platform.claim_one_for(at(host)).await;
        assert_eq!(shard.context.shard_total, Some(3));
        indexes.extend(shard.context.shard_index);
        assert_eq!(platform.runs(&schedule).await[0].status, RunStatus::Running);
        platform.finish(&shard, Outcome::Success).await;
    }
    indexes.sort_unstable();
    assert_eq!(indexes, [0, 1, 2]);
    assert_eq!(platform.runs(&schedule).await[0].status, RunStatus::Done);
}

async fn without_a_worker_there_is_nothing_to_share_out(platform: &Platform) {
    let schedule = platform.schedule(json!({"shards": "per_worker"}), vec![every(1_000)]).await;
    platform.fire_after(1_000).await;
    assert_eq!(platform.run_statuses(&schedule).await, [(RunStatus::Skipped, Some("no_workers".into()))]);
    assert_eq!(platform.run_now(&schedule).await, RunNow::NoWorkers);
}

async fn a_fixed_delay_that_found_no_worker_comes_again(platform: &Platform) {
    let schedule = platform.schedule(json!({"shards": "per_worker"}), vec![after(1_000)]).await;
    platform.fire_after(1_000).await;
    platform.claim_for(at("one")).await;
    platform.fire_after(1_000).await;
    let statuses: Vec<_> = platform.runs(&schedule).await.iter().map(|run| run.status).collect();
    assert_eq!(statuses, [RunStatus::Skipped, RunStatus::Running]);
}

async fn a_fixed_number_of_shards_waits_for_whoever_comes(platform: &Platform) {
    let schedule = platform.schedule(json!({"shards": 4}), vec![every(1_000)]).await;
    platform.fire_after(1_000).await;
    let shards = platform.claim("job").await;
    let mut indexes: Vec<_> = shards.iter().filter_map(|shard| shard.context.shard_index).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, [0, 1, 2, 3]);
    assert_eq!(task_ids(&platform.runs(&schedule).await[0]).len(), 4);
}

async fn many_missed_firings_with_many_shards_are_fired_in_several_transactions(platform: &Platform) {
    let fields = json!({"shards": 400, "misfire": {"policy": "catch_up", "max": 5}});
    let schedule = platform.schedule(fields, vec![every(10_000)]).await;
    platform.advance_ms(71_000);
    let mut fired = Vec::new();
    for _ in 0..3 {
        let once = platform.store.fire(100).await.expect("the firing goes through");
        fired.push((once.runs, once.more));
    }
    assert_eq!(fired, [(3, true), (2, true), (2, false)], "what was skipped is recorded with the first");
    let runs = platform.runs(&schedule).await;
    let (skipped, begun) = runs.split_first().unwrap();
    assert_eq!((skipped.status, skipped.reason.as_deref()), (RunStatus::Skipped, Some("misfire")));
    let dues: Vec<_> = begun.iter().map(|run| platform.now().ms_since(run.due_at)).collect();
    assert_eq!(dues, [51_000, 41_000, 31_000, 21_000, 11_000, 1_000]);
}

async fn a_failed_shard_fails_the_run_when_all_have_ended(platform: &Platform) {
    let schedule = platform.schedule(json!({"shards": 2, "max_attempts": 1}), vec![every(1_000)]).await;
    platform.fire_after(1_000).await;
    let shards = platform.claim("job").await;
    platform.finish(&shards[0], Outcome::Error).await;
    assert_eq!(platform.runs(&schedule).await[0].status, RunStatus::Running);
    platform.finish(&shards[1], Outcome::Success).await;
    assert_eq!(platform.runs(&schedule).await[0].status, RunStatus::Failed);
}

async fn a_child_of_shards_gets_all_their_results(platform: &Platform) {
    let fields = json!({"type": "a", "shards": 3, "children": [{"type": "b"}]});
    platform.schedule(fields, vec![every(1_000)]).await;
    platform.fire_after(1_000).await;
    let shards = platform.claim("a").await;
    for shard in &shards {
        let report = taskwheel_store::worker::Report::new(shard.id, shard.exec_id, Outcome::Success);
        let result = shard.context.shard_index.map(|index| (index * 10).to_string());
        platform.report(taskwheel_store::worker::Report { result, ..report }).await;
    }
    let child = platform.claim_one("b").await;
    let parent = child.context.parent.unwrap();
    let results: Vec<_> = parent.as_array().unwrap().iter().map(|one| one["result"].clone()).collect();
    assert_eq!(results, [json!(0), json!(10), json!(20)]);
}

facts![
    each_live_worker_gets_one_shard,
    without_a_worker_there_is_nothing_to_share_out,
    a_fixed_delay_that_found_no_worker_comes_again,
    a_fixed_number_of_shards_waits_for_whoever_comes,
    many_missed_firings_with_many_shards_are_fired_in_several_transactions,
    a_failed_shard_fails_the_run_when_all_have_ended,
    a_child_of_shards_gets_all_their_results,
];
