//! Taskwheel's types and pure decisions.
//!
//! Nothing in this crate does I/O or looks at a clock: time comes in as an argument and what shall happen comes back as
//! a value. The store carries the decisions out, in one transaction each; tests drive them by the million.
//!
//! Start with [`life`]: it holds the one function that decides every transition of a task.

pub mod access;
pub mod cron;
pub mod field;
pub mod ids;
pub mod life;
pub mod limits;
pub mod outcome;
pub mod policy;
pub mod route;
pub mod schedule;
pub mod statistics;
pub mod status;
pub mod submit;
pub mod time;
pub mod timer;
pub mod trace;
pub mod zone;

pub use access::{Role, Scope};
pub use cron::Cron;
pub use field::FieldError;
pub use ids::{DatabaseNumber, ExecId, TaskId};
pub use life::{Event, Execution, Hold, Life, Liveness, Refusal, State, Step, decide};
pub use outcome::Outcome;
pub use policy::{RetryPolicy, Rules, TypeSettings};
pub use route::Slot;
pub use schedule::{Definition, RunStatus, ScheduleStatus};
pub use statistics::{Ran, Tally};
pub use status::Status;
pub use submit::NewTask;
pub use time::Time;
pub use timer::{Misfire, MisfirePolicy, Rhythm, Timer, TimerSpec};
pub use trace::trace_parent;
