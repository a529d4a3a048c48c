//! Reading: pages of tasks, and finished ones that have outlived their retention.

use super::{Memory, Types};
use crate::options::Dialect;
use crate::search::{Listing, Page, Search};
use crate::session::{Attempted, Session};
use crate::task::{Task, TaskDetail};
use crate::verbs::Retention;
use taskwheel_model::{TaskId, limits};

pub(super) async fn list(
    session: &mut dyn Session,
    memory: &Memory,
    dialect: Dialect,
    listing: &Listing,
) -> Attempted<Page> {
    let types = memory.types.get(session).await?;
    let mut search = Search::from(listing);
    if let Some(category) = &listing.filter.category {
        search.category_types = types.of_category(category);
    }
    let mut page = search.page(session, dialect).await?;
    page.items = page.items.into_iter().map(|task| shown(task, &types)).collect();
    Ok(page)
}

pub(super) async fn get(session: &mut dyn Session, memory: &Memory, id: TaskId) -> Attempted<Option<TaskDetail>> {
    let types = memory.types.get(session).await?;
    let found = session.show(id).await?;
    Ok(found.map(|detail| TaskDetail { task: shown(detail.task, &types), ..detail }))
}

fn shown(task: Task, types: &Types) -> Task {
    let settings = types.settings(&task.task_type);
    task.effective(settings)
}

pub(super) async fn outlived(session: &mut dyn Session, retention: &Retention) -> Attempted<Vec<TaskId>> {
    let now = session.now();
    let mut ids = Vec::new();
    for (status, kept_ms) in retention.limits() {
        let wanted = limits::CHUNK_ROWS_MAX - ids.len();
        if wanted > 0 {
            ids.extend(session.outlived(status, now.plus_ms(-kept_ms), wanted).await?);
        }
    }
    Ok(ids)
}
