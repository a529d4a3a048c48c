//! What a handler is told about the run of a schedule that its task is part of.

use crate::facts;
use crate::support::{Platform, in_time};
use std::sync::{Arc, Mutex};
use taskwheel_client::store::access::Actor;
use taskwheel_client::store::schedule::{NewSchedule, RunNow};
use taskwheel_client::{TaskContext, TaskError};
use taskwheel_model::schedule::{Child, Shards};
use taskwheel_model::{Definition, ScheduleStatus};

async fn handlers_know_their_shard_and_the_results_before_them(platform: &Platform) {
    let sum = Child {
        name: None,
        task_type: "sum".into(),
        payload: None,
        timeout_ms: None,
        enabled: true,
        children: Vec::new(),
    };
    let definition = Definition {
        name: "parts".into(),
        task_type: "part".into(),
        shards: Some(Shards::Fixed(3)),
        children: vec![sum],
        ..Definition::default()
    };
    let new = NewSchedule { tenant: "default".into(), definition, timers: Vec::new(), status: ScheduleStatus::Online };
    let store = platform.store();
    let schedule = store.create_schedule(Actor::application(), new).await.unwrap();
    let run = store.run_schedule(Actor::application(), None, schedule.id).await.unwrap();
    assert!(matches!(run, Some(RunNow::Run(_))), "{run:?}");
    let part = async |ctx: TaskContext, (): ()| {
        assert_eq!(ctx.shard_total(), Some(3));
        assert!(ctx.parents::<u32>()?.is_empty());
        Ok::<_, TaskError>(ctx.shard_index())
    };
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let sum = move |ctx: TaskContext, (): ()| {
        let tell = tell.clone();
        async move {
            let results: Vec<u32> = ctx.parents()?.into_iter().map(|parent| parent.result).collect();
            assert_eq!(ctx.shard_index(), None);
            tell.lock().unwrap().extend(results);
            Ok::<_, TaskError>(())
        }
    };
    in_time("the run ends", platform.worker().handle("part", part).handle("sum", sum).run_until_idle()).await.unwrap();
    assert_eq!(*told.lock().unwrap(), [0, 1, 2]);
}

facts![handlers_know_their_shard_and_the_results_before_them];
