//! Submits on your own open transaction: a task exists if and when your own rows do.
//!
//! The schema must be there: [`crate::Client::embedded`] or a server has been started on the database once.

use super::undone;
use crate::error::Result;
use crate::new_task::NewTask;
use crate::task::Submitted;
use taskwheel_store::task;

fn answers(submitted: taskwheel_store::Result<Vec<task::Submitted>>) -> Result<Vec<Submitted>> {
    Ok(submitted.map_err(undone)?.into_iter().map(Submitted::from).collect())
}

/// Submits on your own transaction on PostgreSQL.
pub mod postgres {
    use super::*;

    /// Submits tasks on your own open transaction: they exist if and when it commits.
    ///
    /// ```no_run
    /// use taskwheel_client::{NewTask, postgres, sqlx};
    ///
    /// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = pool.begin().await?;
    /// sqlx::query("INSERT INTO orders (id) VALUES ($1)").bind(7_i64).execute(&mut *transaction).await?;
    /// postgres::submit_on(&mut transaction, [NewTask::new("mail", "order 7")]).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn submit_on(
        connection: &mut sqlx::PgConnection,
        tasks: impl IntoIterator<Item = NewTask>,
    ) -> Result<Vec<Submitted>> {
        answers(taskwheel_store::postgres::submit_on(connection, &NewTask::all_checked(tasks)?).await)
    }
}

/// Submits on your own transaction on MySQL and MariaDB.
pub mod mysql {
    use super::*;

    /// Submits tasks on your own open transaction: they exist if and when it commits.
    pub async fn submit_on(
        connection: &mut sqlx::MySqlConnection,
        tasks: impl IntoIterator<Item = NewTask>,
    ) -> Result<Vec<Submitted>> {
        answers(taskwheel_store::mysql::submit_on(connection, &NewTask::all_checked(tasks)?).await)
    }
}

/// Submits on your own transaction on SQLite.
pub mod sqlite {
    use super::*;

    /// Submits tasks on your own open transaction: they exist if and when it commits. Begin it with `BEGIN IMMEDIATE`:
    /// SQLite refuses to let a transaction write that has read what another one has changed since.
    pub fn submit_on(
        connection: &rusqlite::Connection,
        tasks: impl IntoIterator<Item = NewTask>,
    ) -> Result<Vec<Submitted>> {
        answers(taskwheel_store::sqlite::submit_on(connection, &NewTask::all_checked(tasks)?))
    }
}
