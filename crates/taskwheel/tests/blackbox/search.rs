//! Finding tasks, and acting on all that are found.

use crate::support::{Server, claim};
use serde_json::{Value, json};

fn ids(page: &Value) -> Vec<i64> {
    page["items"].as_array().unwrap().iter().map(|task| task["id"].as_i64().unwrap()).collect()
}

/// Twelve tasks: six mails, three of them of high priority, and six texts of which one is done.
async fn fill(server: &Server) -> Vec<i64> {
    let tasks: Vec<_> = (0..12)
        .map(|number| {
            json!({"type": if number % 2 == 0 { "mail" } else { "sms" }, "key": format!("k{number}"),
                   "priority": if number % 4 == 0 { 9 } else { 2 }, "creator": format!("c{}", number % 3),
                   "category": if number < 6 { "early" } else { "late" }, "payload": {"number": number}})
        })
        .collect();
    let stored = server.post("/v1/tasks/batch", json!({"tasks": tasks})).await.ok();
    let ids: Vec<_> = stored["items"].as_array().unwrap().iter().map(|item| item["id"].as_i64().unwrap()).collect();
    let task = server.claim(claim("w", "sms")).await.remove(0);
    server.report(&task, "success").await;
    ids
}

async fn tasks_are_found_by_every_field(server: &Server) {
    let all = fill(server).await;
    let pick = |numbers: &[usize]| numbers.iter().map(|number| all[*number]).collect::<Vec<_>>();
    let cases: Vec<(&str, Vec<i64>)> = vec![
        ("sort=id", all.clone()),
        ("sort=id&type=mail", pick(&[0, 2, 4, 6, 8, 10])),
        ("sort=id&priority=9", pick(&[0, 4, 8])),
        ("sort=id&key=k7", pick(&[7])),
        ("sort=id&creator=c1", pick(&[1, 4, 7, 10])),
        ("sort=id&category=early", pick(&[0, 1, 2, 3, 4, 5])),
        ("sort=id&status=Success", pick(&[1])),
        ("sort=id&status=finished", pick(&[1])),
        ("sort=id&status=live,Success&type=sms", pick(&[1, 3, 5, 7, 9, 11])),
        ("sort=id&status=New&type=sms", pick(&[3, 5, 7, 9, 11])),
        ("sort=id&host=host-of-w", pick(&[1])),
        ("sort=id&text=number%22%3A11", pick(&[11])),
        ("sort=id&created_from=2020-01-01T00:00:00Z&created_to=2090-01-01T00:00:00Z", all.clone()),
        ("sort=id&run_at_to=2020-01-01T00:00:00Z", vec![]),
        ("sort=id&schedule_id=5", vec![]),
    ];
    for (query, expected) in cases {
        let page = server.get(&format!("/v1/tasks?{query}")).await.ok();
        assert_eq!(ids(&page), expected, "{query}");
        assert_eq!(page["next_cursor"], Value::Null, "{query}");
    }
}

async fn pages_follow_each_other(server: &Server) {
    let mut all = fill(server).await;
    all.reverse();
    for sort in ["-id", "-run_at"] {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = server.get(&format!("/v1/tasks?limit=5&sort={sort}{cursor}")).await.ok();
            found.extend(ids(&page));
            match page["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(found, all, "{sort}");
    }
}

async fn an_action_reaches_all_that_a_filter_matches(server: &Server) {
    fill(server).await;
    let bulk = async |body: Value| server.post("/v1/tasks/bulk", body).await.ok();
    let dry = bulk(json!({"filter": {"type": "mail"}, "action": "cancel", "dry_run": true})).await;
    assert_eq!(dry["matched"], 6);
    assert_eq!(ids(&server.get("/v1/tasks?status=Cancelled").await.ok()).len(), 0);
    let done = bulk(json!({"filter": {"type": "mail"}, "action": "cancel"})).await;
    assert_eq!(done, json!({"matched": 6, "changed": 6}));
    assert_eq!(ids(&server.get("/v1/tasks?status=Cancelled").await.ok()).len(), 6);
    assert_eq!(bulk(json!({"filter": {"status": "Cancelled"}, "action": "retry"})).await["changed"], 6);
    assert_eq!(bulk(json!({"filter": {"type": "mail"}, "action": "set_priority", "priority": 5})).await["changed"], 6);
    assert_eq!(ids(&server.get("/v1/tasks?priority=5").await.ok()).len(), 6);
    let later = json!({"filter": {"status": "New"}, "action": "reschedule", "run_at": "2090-01-01T00:00:00Z"});
    assert_eq!(bulk(later).await["changed"], 11);
    assert!(server.claim(claim("w", "mail")).await.is_empty());
    assert_eq!(bulk(json!({"filter": {}, "all": true, "action": "run_now"})).await["changed"], 11);
    assert_eq!(server.claim(claim("w", "mail")).await.len(), 1);
}

crate::facts![tasks_are_found_by_every_field, pages_follow_each_other, an_action_reaches_all_that_a_filter_matches];
