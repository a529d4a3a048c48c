//! The interface of the scheduling centre, by the JSON that its description prints.

use crate::schedules::place;
use crate::support::{Answer, Dialect, Server, claim};
use serde_json::{Value, json};

/// As it is printed there, with the comments out and the brackets closed.
fn printed() -> Value {
    serde_json::from_str(
        r#"{
        "taskInfoConf":{
            "status":1,
            "taskName":"hangu",
            "timeout":1000,
            "appServiceName":"das-sources",
            "apiServiceName":"apiDataSourceGet",
            "apiMethodName":"exec",
            "subTaskList":[
                {
                "status":1,
                "taskId":123,
                "taskName":"hangu",
                "timeout":1000,
                "appServiceName":"das-sources",
                "apiServiceName":"apiDataSourceGet",
                "apiMethodName":"exec",
                "subTaskList":[
                    {
                    "status":1,
                    "taskId":123,
                    "taskName":"hangu",
                    "timeout":1000,
                    "appServiceName":"das-sources",
                    "apiServiceName":"apiDataSourceGet",
                    "apiMethodName":"exec"
                    }
                ]
                }
            ]
        },
        "taskScheduleConf":{
            "timerList":[
                {
                "timerType":1,
                "cron":"12 12 12 0/2 * *",
                "startDateTime":"2021-08-09",
                "endDateTime":"2021-10-01"
                },
                {
                "timerType":4,
                "delay":10000,
                "startDateTime":"2021-08-09",
                "endDateTime":"2021-10-01"
                }
            ]
        }
    }"#,
    )
    .unwrap()
}

async fn submit(server: &Server, task: &Value) -> Answer {
    server.post("/task-scheduler/task/submitTimerTask", task.clone()).await
}

/// The schedule that a good submit made or changed.
async fn submitted(server: &Server, task: &Value) -> Value {
    let answer = submit(server, task).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.body["code"], &answer.body["msg"]),
        (200, &json!(200), &json!("")),
        "{}",
        answer.body
    );
    server.get(&place(&json!({"id": answer.body["data"]["taskId"]}))).await.ok()
}

async fn what_is_printed_is_accepted_and_never_fires(server: &Server) {
    let schedule = submitted(server, &printed()).await;
    assert_eq!(schedule["name"], "hangu");
    assert_eq!(schedule["type"], "das-sources:apiDataSourceGet:exec");
    assert_eq!((&schedule["status"], &schedule["timeout_ms"]), (&json!("online"), &json!(1000)));
    assert_eq!(schedule["children"][0]["children"][0]["type"], schedule["type"]);
    assert_eq!(schedule["children"][0]["children"][0]["children"], json!([]));
    let [cron, once] = [0, 1].map(|place| schedule["timers"][place].clone());
    assert_eq!(
        (&cron["kind"], &cron["cron"], &cron["timezone"]),
        (&json!("cron"), &json!("12 12 12 0/2 * *"), &json!("UTC"))
    );
    assert_eq!(
        (&cron["start_at"], &cron["end_at"]),
        (&json!("2021-08-09T00:00:00.000Z"), &json!("2021-10-01T00:00:00.000Z"))
    );
    assert_eq!((&once["kind"], &once["delay_ms"]), (&json!("once"), &json!(10_000)));
    assert_eq!((&cron["next"], &once["next"]), (&Value::Null, &Value::Null));
}

async fn a_task_that_is_submitted_with_its_id_is_changed(server: &Server) {
    let made = submitted(server, &printed()).await;
    server.patch(&place(&made), json!({"payload": {"kept": true}})).await.ok();
    let mut task = printed();
    let info = &mut task["taskInfoConf"];
    (info["taskId"], info["taskName"], info["status"]) = (made["id"].clone(), json!("other"), json!(-1));
    info["apiMethodName"] = json!("run");
    info.as_object_mut().unwrap().remove("timeout");
    info["subTaskList"] =
        json!([{"taskName": "sub", "apiServiceName": "s", "apiMethodName": "m", "status": -1, "timeout": -1}]);
    task["taskScheduleConf"]["timerList"] = json!([
        {"timerType": 2, "period": 5000, "initDelay": 100, "status": -1},
        {"timerType": 3, "period": 6000, "cron": null, "delay": 0, "endDateTime": "2099-01-01 12:00:00"},
        {"timerType": 1, "cron": "0/5 * * * * * ?", "startDateTime": 4_070_908_800_000_i64}]);
    let changed = submitted(server, &task).await;
    assert_eq!(changed["id"], made["id"]);
    assert_eq!(
        (&changed["name"], &changed["status"], &changed["timeout_ms"]),
        (&json!("other"), &json!("offline"), &json!(-1))
    );
    assert_eq!(changed["type"], "das-sources:apiDataSourceGet:run");
    assert_eq!(changed["payload"], json!({"kept": true}), "what there is no word for stays");
    let child = &changed["children"][0];
    assert_eq!(
        (&child["type"], &child["enabled"], &child["timeout_ms"]),
        (&json!("das-sources:s:m"), &json!(false), &json!(-1))
    );
    let timers: Vec<_> =
        changed["timers"].as_array().unwrap().iter().map(|timer| (&timer["kind"], &timer["enabled"])).collect();
    let [rate, delay, cron] = [json!("fixed_rate"), json!("fixed_delay"), json!("cron")];
    assert_eq!(timers, [(&rate, &json!(false)), (&delay, &json!(true)), (&cron, &json!(true))], "all were replaced");
    assert_eq!(
        (&changed["timers"][0]["period_ms"], &changed["timers"][0]["initial_delay_ms"]),
        (&json!(5000), &json!(100))
    );
    assert_eq!(changed["timers"][1]["end_at"], "2099-01-01T12:00:00.000Z");
    assert_eq!(changed["timers"][2]["start_at"], "2099-01-01T00:00:00.000Z");
    task["taskInfoConf"]["taskId"] = json!(999_999);
    let missing = submit(server, &task).await;
    assert_eq!(
        (missing.status.as_u16(), &missing.body["code"], &missing.body["data"]),
        (404, &json!(404), &Value::Null)
    );
}

async fn whatever_is_wrong_has_its_status_in_both_places_and_its_own_name(server: &Server) {
    let wrong = |change: &dyn Fn(&mut Value)| {
        let mut task = printed();
        change(&mut task);
        task
    };
    let timer = |timer: Value| wrong(&|task: &mut Value| task["taskScheduleConf"]["timerList"][0] = timer.clone());
    let cases = [
        (wrong(&|task| task["taskInfoConf"]["timeout"] = json!(0)), "taskInfoConf.timeout"),
        (wrong(&|task| task["taskInfoConf"]["status"] = json!(2)), "taskInfoConf.status"),
        (wrong(&|task| task["taskInfoConf"]["apiMethodName"] = json!("a b")), "taskInfoConf.apiMethodName"),
        (wrong(&|task| task["taskInfoConf"]["taskName"] = json!("")), "taskInfoConf.taskName"),
        (wrong(&|task| task["taskInfoConf"]["appServiceName"] = Value::Null), "taskInfoConf.appServiceName"),
        (wrong(&|task| task["taskInfoConf"]["colour"] = json!("red")), "taskInfoConf.colour"),
        (
            wrong(&|task| task["taskInfoConf"]["subTaskList"][0]["timeout"] = json!(0)),
            "taskInfoConf.subTaskList[0].timeout",
        ),
        (wrong(&|task| task["taskScheduleConf"] = json!({})), "taskScheduleConf.timerList"),
        (timer(json!({"timerType": 5})), "taskScheduleConf.timerList[0].timerType"),
        (timer(json!({"timerType": 1, "cron": "x"})), "taskScheduleConf.timerList[0].cron"),
        (timer(json!({"timerType": 1})), "taskScheduleConf.timerList[0].cron"),
        (timer(json!({"timerType": 2, "period": 0})), "taskScheduleConf.timerList[0].period"),
        (timer(json!({"timerType": 4})), "taskScheduleConf.timerList[0].delay"),
        (timer(json!({"timerType": 4, "delay": 1, "period": 5})), "taskScheduleConf.timerList[0].period"),
        (
            timer(json!({"timerType": 4, "delay": 1, "startDateTime": "soon"})),
            "taskScheduleConf.timerList[0].startDateTime",
        ),
        (
            timer(json!({"timerType": 4, "delay": 1, "startDateTime": "2030-01-02", "endDateTime": "2030-01-01"})),
            "taskScheduleConf.timerList[0].endDateTime",
        ),
    ];
    for (task, field) in cases {
        let answer = submit(server, &task).await;
        assert_eq!((answer.status.as_u16(), &answer.body["code"]), (422, &json!(422)), "{field}: {}", answer.body);
        assert!(answer.body["msg"].as_str().unwrap().starts_with(&format!("{field}: ")), "{field}: {}", answer.body);
        assert_eq!(answer.body["data"], Value::Null);
    }
    let url = format!("{}/task-scheduler/task/submitTimerTask", server.url());
    let malformed = server.client.post(&url).body("{").send().await.unwrap();
    assert_eq!(malformed.status(), 400);
    assert_eq!(malformed.json::<Value>().await.unwrap()["code"], 400);
    let method = server.client.get(&url).send().await.unwrap();
    assert_eq!(method.status(), 405);
    assert_eq!(method.json::<Value>().await.unwrap()["code"], 405);
    assert_eq!(server.get("/v1/schedules").await.ok()["items"], json!([]), "nothing was made");
}

async fn a_task_is_named_by_query_form_or_json(server: &Server) {
    let schedule = submitted(server, &printed()).await;
    let id = schedule["id"].clone();
    let call = async |verb: &str, query: &str, body: Option<(&str, String)>| -> (u16, Value) {
        let mut request = server.client.post(format!("{}/task-scheduler/task/{verb}{query}", server.url()));
        if let Some((kind, body)) = body {
            request = request.header("Content-Type", kind).body(body);
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    };
    let status = async || server.get(&place(&schedule)).await.ok()["status"].clone();
    const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";
    let good = json!({"code": 200, "msg": "", "data": {"taskId": id}});
    assert_eq!(call("disableTask", &format!("?taskId={id}"), None).await, (200, good.clone()));
    assert_eq!(status().await, "offline");
    assert_eq!(call("enableTask", "", Some((FORM, format!("taskId={id}")))).await, (200, good.clone()));
    assert_eq!(status().await, "online");
    let json = |id: &Value| Some(("application/json", json!({"taskId": id}).to_string()));
    assert_eq!(call("disableTask", "", json(&id)).await, (200, good.clone()));
    assert_eq!(status().await, "offline");
    assert_eq!(call("enableTask", &format!("?taskId={id}"), json(&json!(id.to_string()))).await, (200, good.clone()));
    let (code, run) = call("execTaskImmediately", "", json(&id)).await;
    assert_eq!((code, &run["data"]["taskId"]), (200, &id));
    let claimed = server.claim(claim("w", "das-sources:apiDataSourceGet:exec")).await;
    assert_eq!(claimed.len(), 1);
    let shown = server.get(&format!("/v1/runs/{}", run["data"]["runId"])).await.ok();
    assert_eq!(shown["tasks"][0]["id"], claimed[0]["id"]);
    server.patch(&place(&schedule), json!({"overlap": "skip"})).await.ok();
    let (code, refused) = call("execTaskImmediately", "", json(&id)).await;
    assert_eq!((code, &refused["code"]), (409, &json!(409)));
    for (query, body) in [
        (String::new(), None),
        ("?taskId=x".into(), None),
        (format!("?taskId={id}&other=1"), None),
        (format!("?taskId={id}"), json(&json!(999))),
        (String::new(), Some((FORM, format!("taskId={id}&taskId={id}")))),
        (String::new(), Some((FORM, format!("id={id}")))),
        (String::new(), json(&json!({}))),
    ] {
        let (code, answer) = call("timerTaskDel", &query, body).await;
        assert_eq!((code, &answer["code"]), (422, &json!(422)), "{query}: {answer}");
    }
    assert_eq!(call("timerTaskDel", "", json(&id)).await, (200, good));
    assert_eq!(server.get(&place(&schedule)).await.status, 404);
    let (code, gone) = call("timerTaskDel", "", json(&id)).await;
    assert_eq!((code, &gone["code"]), (404, &json!(404)));
}

crate::facts![
    what_is_printed_is_accepted_and_never_fires,
    a_task_that_is_submitted_with_its_id_is_changed,
    whatever_is_wrong_has_its_status_in_both_places_and_its_own_name,
    a_task_is_named_by_query_form_or_json,
];

#[tokio::test]
async fn dates_are_those_of_the_servers_zone() {
    let server = Server::start_with(Dialect::Sqlite, &[], &[("TASKWHEEL_TIMEZONE", "Asia/Shanghai")]).await;
    let schedule = submitted(&server, &printed()).await;
    assert_eq!(schedule["timers"][0]["start_at"], "2021-08-08T16:00:00.000Z");
    assert_eq!(schedule["timers"][0]["timezone"], "Asia/Shanghai");
    server.end().await;
}
