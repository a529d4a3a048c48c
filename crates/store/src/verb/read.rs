//! Reading: pages of tasks, and finished ones that have outlived their retention.

use super::{Memory, Types};
use crate::StoreError;
use crate::options::Dialect;
use crate::plain::{Kind, plain};
use crate::search::{Listing, Page, Search};
use crate::session::{Attempted, Session};
use crate::task::{Task, TaskDetail};
use crate::verbs::{Outlived, Retention};
use taskwheel_model::{FieldError, TaskId, limits};

/// Most tenants over which a list is sorted by due time.
const TENANTS_MAX: usize = 100;

pub(super) async fn list(
    session: &mut dyn Session,
    memory: &Memory,
    dialect: Dialect,
    listing: &Listing,
) -> Attempted<Page> {
    let types = memory.types.seen(session).await?;
    let mut search = Search::from(listing);
    if let Some(category) = &listing.filter.category {
        search.category_types = types.of_category(category);
    }
    let mut page = if search.is_over_tenants() {
        let mut pages = Vec::new();
        for tenant in tenants(session).await? {
            pages.push(Search { tenant: Some(tenant), ..search.clone() }.page(session, dialect).await?);
        }
        search.merged(pages)
    } else {
        search.page(session, dialect).await?
    };
    page.items = page.items.into_iter().map(|task| shown(task, &types)).collect();
    Ok(page)
}

/// The tenants that have tasks, found one by one in the index that starts with them.
async fn tenants(session: &mut dyn Session) -> Attempted<Vec<String>> {
    let mut tenants = Vec::new();
    let mut last = String::new();
    loop {
        let next = plain("SELECT MIN(tenant) FROM task WHERE tenant > ?").bind(last);
        let found = session.rows(&next, &[Kind::Text]).await?.into_iter().next();
        let Some(tenant) = found.map(|mut row| row.maybe_text()).transpose()?.flatten() else { return Ok(tenants) };
        if tenants.len() == TENANTS_MAX {
            let message = format!("by run_at over more than {TENANTS_MAX} tenants is too much: name one");
            return Err(StoreError::field(FieldError::new("sort", message)).into());
        }
        tenants.push(tenant.clone());
        last = tenant;
    }
}

pub(super) async fn get(session: &mut dyn Session, memory: &Memory, id: TaskId) -> Attempted<Option<TaskDetail>> {
    let types = memory.types.seen(session).await?;
    let found = session.show(id).await?;
    Ok(found.map(|detail| TaskDetail { task: shown(detail.task, &types), ..detail }))
}

fn shown(task: Task, types: &Types) -> Task {
    let settings = types.settings(&task.task_type);
    task.effective(settings)
}

pub(super) async fn outlived(session: &mut dyn Session, retention: &Retention) -> Attempted<Vec<Outlived>> {
    let now = session.now();
    let mut tasks = Vec::new();
    for (status, kept_ms) in retention.limits() {
        let wanted = limits::CHUNK_ROWS_MAX - tasks.len();
        if wanted > 0 {
            tasks.extend(session.outlived(status, now.plus_ms(-kept_ms), wanted).await?);
        }
    }
    Ok(tasks)
}
