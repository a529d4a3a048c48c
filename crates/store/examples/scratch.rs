//! scratch
use std::time::Instant;
use taskwheel_model::{NewTask, Outcome};
use taskwheel_store::worker::{ClaimRequest, Report};
use taskwheel_store::{Options, open};
#[tokio::main]
async fn main() {
    let a: Vec<String> = std::env::args().collect();
    let n: usize = a[2].parse().unwrap();
    let batch: usize = a[3].parse().unwrap();
    let clients: usize = a[4].parse().unwrap();
    let mut o = Options::new(&a[1]);
    o.keep_success = a.get(5).is_none_or(|x| x != "drop");
    let store = open(o).await.unwrap();
    let t = Instant::now();
    for _ in 0..n / 1000 {
        let tasks = (0..1000)
            .map(|i| NewTask {
                key: Some(format!("k{i}")),
                payload: Some(r#"{"order":12345,"note":"a small payload of about sixty bytes"}"#.into()),
                ..NewTask::new("mail")
            })
            .collect();
        store.submit(tasks).await.unwrap();
    }
    println!("submit {:.0}/s", n as f64 / t.elapsed().as_secs_f64());
    if let Some(cmd) = a.get(6) {
        std::process::Command::new("sh").arg("-c").arg(cmd).status().unwrap();
    }
    let t = Instant::now();
    let mut hs = vec![];
    for c in 0..clients {
        let store = store.clone();
        hs.push(tokio::spawn(async move {
            let mut k = 0;
            let (mut tc, mut tf) = (0.0, 0.0);
            loop {
                let s = Instant::now();
                let r = ClaimRequest {
                    worker_id: format!("w{c}"),
                    host: "h".into(),
                    types: vec!["mail".into()],
                    tenant: Some("default".into()),
                    max: batch,
                    ..Default::default()
                };
                let tasks = store.claim(vec![r]).await.unwrap().pop().unwrap();
                tc += s.elapsed().as_secs_f64();
                if tasks.is_empty() {
                    return (k, tc, tf);
                }
                k += tasks.len();
                let s = Instant::now();
                store
                    .finish(tasks.iter().map(|t| Report::new(t.id, t.exec_id, Outcome::Success)).collect())
                    .await
                    .unwrap();
                tf += s.elapsed().as_secs_f64();
            }
        }));
    }
    let mut k = 0;
    for h in hs {
        let r = h.await.unwrap();
        k += r.0;
        println!("client {} claim {:.2}s finish {:.2}s", r.0, r.1, r.2);
    }
    println!("drain {k} {:.0}/s", k as f64 / t.elapsed().as_secs_f64());
}
