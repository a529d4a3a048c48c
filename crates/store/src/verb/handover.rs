//! Handover: a task that comes alone goes to the claim that waits for it in the transaction that stores it, one commit where there would
//! be two.
//!
//! Normally nothing else is due for that claim, and where the database can, one statement sees to that, inserts the task and starts it:
//! there is nothing to roll back, and only one round trip. If something is due, or the claim asks for more than types, it is a claim like
//! any other, behind the insert: what is more urgent goes first.

use super::core::{Claims, Core};
use super::submit::{settle, submit_on};
use super::watermark::LaneDue;
use super::{Memory, broken, claim, step};
use crate::session::{Attempted, Begun, Database, Inserted, Repeat, Session};
use crate::task::Submitted;
use crate::worker::{ClaimRequest, ClaimedTask};
use crate::{Result, StoreError};
use std::sync::Arc;
use std::time::Instant;
use taskwheel_model::{NewTask, TaskId, Time};

/// A stored task, when it was, and what its claim gets.
pub(super) type Handed = ((Submitted, Time), Vec<ClaimedTask>);

impl<D: Database> Core<D> {
    /// Submits a task for which a claim waits, and hands out to that one what is due.
    pub(super) async fn hand_over(&self, task: Arc<NewTask>, request: &ClaimRequest) -> Result<Handed> {
        let tasks = Arc::new(broken::tasks(vec![task]));
        let handed = match self.begin_at_once(&tasks, request).await? {
            Some(handed) => handed,
            None => self.submit_and_claim(&tasks, request).await?,
        };
        let ((submitted, now), claimed) = &handed;
        self.memory.meter.submitted(tasks.iter().map(|task| task.task_type.as_str()));
        if claimed.iter().all(|task| task.id != submitted.id) {
            self.are_due(&LaneDue::of(&tasks, *now));
        }
        Ok(handed)
    }

    /// By one statement. `None` where that cannot be, and nothing was done.
    async fn begin_at_once(&self, tasks: &Arc<Vec<Arc<NewTask>>>, request: &ClaimRequest) -> Result<Option<Handed>> {
        if !D::BEGINS_AT_ONCE || !claim::asks_for_types_alone(request) {
            return Ok(None);
        }
        let began = Instant::now();
        let requests = broken::requests(vec![request.clone()]);
        let input = Arc::new((self.memory.clone(), tasks.clone(), requests));
        let work = self.database.insert(Repeat::Harmful, Inserted::of(tasks), move |session| {
            let input = input.clone();
            Box::pin(async move { begin(session, &input.0, &input.1[0], &input.2[0]).await })
        });
        let handed = work.await;
        if !matches!(handed, Ok(None)) {
            self.memory.meter.verb("hand_over", began.elapsed(), handed.is_ok());
        }
        Ok(handed?.map(|(stored, claimed)| (stored, self.claimed(vec![claimed]).pop().unwrap_or_default())))
    }

    async fn submit_and_claim(&self, tasks: &Arc<Vec<Arc<NewTask>>>, request: &ClaimRequest) -> Result<Handed> {
        let input = (self.memory.clone(), tasks.clone(), Claims::new(vec![request.clone()]));
        let work = self.change("hand_over", Repeat::Harmful, input, |session, input| {
            Box::pin(async move {
                let (memory, tasks, claims) = &*input;
                let types = memory.types.get(session).await?;
                let submitted = submit_on(session, tasks, &types).await?;
                let ((claimed, dues, ran), calls) = claims.answer(session, memory).await?;
                Ok((((submitted, session.now(), claimed), dues, ran), calls))
            })
        });
        let (submitted, now, claimed) = self.made_due(self.counted(self.remembered(work))).await?;
        let claimed = self.claimed(claimed).pop().unwrap_or_default();
        let Some(submitted) = submitted.first().copied() else {
            return Err(StoreError::Database("a task was not stored".into()));
        };
        Ok(((submitted, now), claimed))
    }
}

/// Inserts a task and starts it. Does nothing where something else is due for the claim, the worker's call is to be written down, the task is
/// not for this claim or not for now; nor where it takes long to see that nothing is due.
async fn begin(
    session: &mut dyn Session,
    memory: &Memory,
    task: &Arc<NewTask>,
    request: &ClaimRequest,
) -> Attempted<Option<Handed>> {
    let now = session.now();
    let is_own = request.tenant.as_ref().is_none_or(|tenant| *tenant == task.tenant);
    if !is_own || task.unique_key.is_some() || !memory.workers.knows(request, now) {
        return Ok(None);
    }
    let types = memory.types.get(session).await?;
    let pick = claim::pick(request, &types);
    let lane = step::lane(&task.task_type, task.affinity.as_deref());
    let has_lane = pick.lanes.iter().any(|one| one.lane == lane);
    if !has_lane || !memory.watermarks.are_cheap(pick.tenant.as_deref(), &pick.lanes) {
        return Ok(None);
    }
    let insert = settle(task.clone(), &types, now);
    let picked = insert.picked(TaskId(0), &lane);
    let claim::Beginning::Starts(start, claimed) = claim::begin(&types, request, picked, now) else { return Ok(None) };
    let begun = session.insert_begun(&insert, &claim::starter(request), &start, &pick).await?;
    Ok(begun.map(|Begun { id, lag_ms }| {
        let (started_at, lease_until) = (claimed.started_at.plus_ms(lag_ms), claimed.lease_until.plus_ms(lag_ms));
        ((Submitted { id, created: true }, now), vec![ClaimedTask { id, started_at, lease_until, ..*claimed }])
    }))
}
