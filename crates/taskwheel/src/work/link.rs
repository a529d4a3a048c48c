//! A worker's calls. The server may be away for a while: calls that must arrive are tried again until it answers.

use super::protocol::{
    ClaimRequest, Claimed, RenewRequest, Renewed, Report, ReportRequest, Reported, ReportedItem, Task,
};
use crate::api::{Api, ApiError};
use crate::output;
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until, timeout};

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a call may take, on top of what it waits for.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);
/// A claim that brings nothing takes so long at least, so that a server that does not wait is not asked all the time.
const EMPTY_CLAIM_TIME_MIN: Duration = Duration::from_millis(100);

/// The way to the server.
pub(super) struct Link {
    api: Api,
    is_away: AtomicBool,
}

impl Link {
    pub(super) fn new(api: Api) -> Link {
        Link { api, is_away: AtomicBool::new(false) }
    }

    /// Asks for tasks.
    pub(super) async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Task>, ApiError> {
        let begin = Instant::now();
        let wait = Duration::from_millis(u64::try_from(request.wait_ms).unwrap_or(0));
        let Claimed { tasks } = self.call("claim", request, wait + ANSWER_TIME_MAX).await?;
        if tasks.is_empty() {
            sleep_until(begin + EMPTY_CLAIM_TIME_MIN).await;
        }
        Ok(tasks)
    }

    /// Names the running executions, each of another task, and gives back those that are no longer ours. It calls once: the
    /// next heartbeat does so again.
    pub(super) async fn renew(&self, request: RenewRequest, time_max: Duration) -> Result<Vec<String>, ApiError> {
        let Renewed { items } = self.try_call("renew", &request, time_max).await?;
        let lost: HashSet<u64> = items.iter().filter(|item| !item.is_ours()).map(|item| item.id).collect();
        let named = request.items.into_iter().filter(|item| lost.contains(&item.id));
        Ok(named.map(|item| item.exec_id).collect())
    }

    /// Tells how tasks ended, and gives back what the server made of each. A refusal of several may be the fault of one, so
    /// that each is told by itself.
    pub(super) async fn report(&self, reports: Vec<Report>) -> Vec<(Report, Result<ReportedItem, ApiError>)> {
        let mut answers = Vec::with_capacity(reports.len());
        match self.report_together(&reports).await {
            Ok(items) => answers.extend(items.into_iter().map(Ok)),
            Err(error) if reports.len() == 1 => answers.push(Err(error)),
            Err(_) => {
                for report in &reports {
                    let alone = self.report_together(std::slice::from_ref(report)).await;
                    answers.push(alone.map(|mut items| items.remove(0)));
                }
            }
        }
        reports.into_iter().zip(answers).collect()
    }

    async fn report_together(&self, items: &[Report]) -> Result<Vec<ReportedItem>, ApiError> {
        let Reported { items: answers } = self.call("report", &ReportRequest { items }, ANSWER_TIME_MAX).await?;
        if answers.len() == items.len() { Ok(answers) } else { Err(self.api.strange("not an answer to each report")) }
    }

    /// Calls until there is an answer.
    async fn call<A: DeserializeOwned>(
        &self,
        verb: &str,
        body: &impl Serialize,
        time_max: Duration,
    ) -> Result<A, ApiError> {
        let mut pause = PAUSE_MIN;
        loop {
            match self.try_call(verb, body, time_max).await {
                Err(error) if error.is_passing() => sleep(pause).await,
                answer => return answer,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Calls once. Says it once when the server goes away, and when it is back.
    async fn try_call<A: DeserializeOwned>(
        &self,
        verb: &str,
        body: &impl Serialize,
        time_max: Duration,
    ) -> Result<A, ApiError> {
        let request = self.api.request(Method::POST, &["worker", verb]).json(body);
        let answer = match timeout(time_max, self.api.read(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(self.api.silent(time_max)),
        };
        match &answer {
            Err(error) if error.is_passing() => {
                if !self.is_away.swap(true, Ordering::Relaxed) {
                    output::say(&format_args!("{error}; trying again until it answers"));
                }
            }
            _ => {
                if self.is_away.swap(false, Ordering::Relaxed) {
                    output::say("the server answers again");
                }
            }
        }
        answer
    }
}
