//! Which tasks are wanted.

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use taskwheel_model::Status;

/// Which tasks are wanted. What is not given does not matter.
///
/// ```
/// use taskwheel_client::{Filter, Status};
///
/// let filter = Filter { text: Some("timeout".into()), ..Filter::of_type("mail").status(Status::Failure) };
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Filter {
    /// Any of these; none stands for all.
    #[serde(rename = "status", serialize_with = "words", skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<Status>,
    /// Of this type.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    /// Of this category.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// With exactly this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Submitted by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creator: Option<String>,
    /// Run last by this host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// With this priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<u8>,
    /// Due at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at_from: Option<Timestamp>,
    /// Due before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at_to: Option<Timestamp>,
    /// Submitted at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_from: Option<Timestamp>,
    /// Submitted before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_to: Option<Timestamp>,
    /// A part of the key, the payload, the error or the remark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

fn words<S: Serializer>(statuses: &[Status], serializer: S) -> Result<S::Ok, S::Error> {
    let words: Vec<_> = statuses.iter().map(|status| status.word()).collect();
    serializer.serialize_str(&words.join(","))
}

impl Filter {
    /// Tasks of a type.
    #[must_use]
    pub fn of_type(task_type: impl Into<String>) -> Filter {
        Filter { task_type: Some(task_type.into()), ..Filter::default() }
    }

    /// Also tasks in this status.
    #[must_use]
    pub fn status(mut self, status: Status) -> Filter {
        self.statuses.push(status);
        self
    }

    /// Also tasks that have not ended.
    #[must_use]
    pub fn live(mut self) -> Filter {
        self.statuses.extend(Status::ALL.into_iter().filter(|status| status.is_live()));
        self
    }

    /// Also tasks that have ended.
    #[must_use]
    pub fn finished(mut self) -> Filter {
        self.statuses.extend(Status::ALL.into_iter().filter(|status| status.is_finished()));
        self
    }
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Sort {
    /// Newest first.
    #[default]
    #[serde(rename = "-id")]
    NewestFirst,
    /// Oldest first.
    #[serde(rename = "id")]
    OldestFirst,
    /// Earliest due first.
    #[serde(rename = "run_at")]
    EarliestDueFirst,
    /// Latest due first.
    #[serde(rename = "-run_at")]
    LatestDueFirst,
}

/// A page that is asked for. A [`Filter`] alone asks for the first one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// Which tasks.
    #[serde(flatten)]
    pub filter: Filter,
    /// In which order.
    pub sort: Sort,
    /// Most tasks on the page, 500 at most.
    pub limit: usize,
    /// Where the page before ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl Listing {
    /// Tasks on a page where nothing else is said.
    pub const LIMIT_DEFAULT: usize = 50;
}

impl Default for Listing {
    fn default() -> Listing {
        Listing { filter: Filter::default(), sort: Sort::default(), limit: Listing::LIMIT_DEFAULT, cursor: None }
    }
}

impl From<Filter> for Listing {
    fn from(filter: Filter) -> Listing {
        Listing { filter, ..Listing::default() }
    }
}
