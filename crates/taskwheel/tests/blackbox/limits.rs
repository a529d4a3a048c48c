//! What a tenant may submit in a second.

use crate::access::{command, post, token};
use crate::support::{Server, eventually};
use serde_json::json;
use std::time::Duration;

const IN_TIME: Duration = Duration::from_secs(20);

async fn a_tenant_submits_as_many_tasks_a_second_as_it_may(server: &Server) {
    let limited = token(server, &["--role", "operator", "--tenant", "acme"]).await;
    let free = token(server, &["--role", "operator", "--tenant", "other"]).await;
    let submit = async |token: &str, tasks: usize| {
        let tasks = vec![json!({"type": "mail"}); tasks];
        post(server, token, "/v1/tasks/batch", json!({"tasks": tasks})).await
    };
    command(server, &["tenants", "limit", "acme", "--submits-per-s", "5"]).await;
    eventually("more than a second's worth is never taken", IN_TIME, async || submit(&limited, 6).await.status == 422)
        .await;
    let refused = submit(&limited, 6).await;
    assert_eq!(refused.body["errors"][0]["field"], "tasks", "{}", refused.body);

    eventually("a second's worth is taken", IN_TIME, async || submit(&limited, 5).await.status == 201).await;
    eventually("no more in the same second", IN_TIME, async || {
        let answer = submit(&limited, 5).await;
        let is_refused = answer.status == 429;
        assert!(!is_refused || answer.body["detail"].as_str().unwrap().contains("5 tasks a second"), "{answer:?}");
        is_refused
    })
    .await;
    submit(&free, 100).await.ok();
    eventually("the next second has room", IN_TIME, async || submit(&limited, 5).await.status == 201).await;
}

crate::facts![a_tenant_submits_as_many_tasks_a_second_as_it_may];
