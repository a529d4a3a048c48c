//! Schedules: what a firing starts, and how a run goes on through its tree.
//!
//! A run begins with the root of its tree and ends when nothing of it lives any more. A node ends well when all of its shards did;
//! then its children start, side by side. A node that did not end well stops its subtree and nothing else.

mod words;

use crate::field::{self, FieldError};
use crate::submit::RunAt;
use crate::timer::Misfire;
use crate::{NewTask, RetryPolicy, Status, Time, limits};
use serde::{Deserialize, Serialize};
pub use words::{Admission, Log, Overlap, RunStatus, ScheduleStatus};

/// How many tasks a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Shards {
    /// One for each live worker of its type.
    PerWorker(PerWorker),
    /// So many.
    Fixed(u32),
}

/// The word `per_worker`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PerWorker {
    /// The only one.
    PerWorker,
}

/// What a schedule fires. The root's tasks take its settings; children have their own type, payload and time limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the API")]
pub struct Definition {
    pub name: String,
    #[serde(rename = "type")]
    pub task_type: String,
    #[serde(default)]
    pub payload: Option<String>,
    #[serde(default)]
    pub key: Option<String>,
    #[serde(default)]
    pub creator: Option<String>,
    #[serde(default)]
    pub category: Option<String>,
    #[serde(default)]
    pub priority: Option<u8>,
    #[serde(default)]
    pub max_attempts: Option<i32>,
    #[serde(default)]
    pub retry: Option<RetryPolicy>,
    #[serde(default)]
    pub timeout_ms: Option<i64>,
    #[serde(default)]
    pub log: Log,
    #[serde(default)]
    pub misfire: Misfire,
    #[serde(default)]
    pub overlap: Overlap,
    #[serde(default)]
    pub shards: Option<Shards>,
    #[serde(default)]
    pub children: Vec<Child>,
}

/// A node below the root.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of the API")]
pub struct Child {
    #[serde(default)]
    pub name: Option<String>,
    #[serde(rename = "type")]
    pub task_type: String,
    #[serde(default)]
    pub payload: Option<String>,
    #[serde(default)]
    pub timeout_ms: Option<i64>,
    #[serde(default = "enabled_default")]
    pub enabled: bool,
    #[serde(default)]
    pub children: Vec<Child>,
}

fn enabled_default() -> bool {
    true
}

impl Definition {
    /// Checks every field.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        self.root("default", Time(0)).validate()?;
        self.validate_run().map_err(|error| vec![error])
    }

    fn validate_run(&self) -> Result<(), FieldError> {
        field::name("name", &self.name, limits::KEY_CHARS_MAX)?;
        self.misfire.validate("misfire")?;
        if let Some(Shards::Fixed(shards)) = self.shards {
            field::range("shards", shards.into(), 1, limits::SHARDS_MAX.into())?;
        }
        let mut nodes = 0;
        for (place, child) in self.children.iter().enumerate() {
            child.validate(&format!("children[{place}]"), 1, &mut nodes)?;
        }
        Ok(())
    }

    /// The node at a path; the root has the empty one, and is none.
    #[must_use]
    pub fn child(&self, path: &[usize]) -> Option<&Child> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(self.children.get(*first)?, |node, place| node.children.get(*place))
    }

    /// The children of the node at a path.
    #[must_use]
    pub fn children_of(&self, path: &[usize]) -> &[Child] {
        if path.is_empty() { &self.children } else { self.child(path).map_or(&[], |child| &child.children) }
    }

    /// Whether anything follows when the node at a path ended well.
    #[must_use]
    pub fn has_followers(&self, path: &[usize]) -> bool {
        self.children_of(path).iter().any(|child| child.enabled)
    }

    /// The task of the root.
    #[must_use]
    pub fn root(&self, tenant: &str, due: Time) -> NewTask {
        NewTask {
            tenant: tenant.to_owned(),
            task_type: self.task_type.clone(),
            key: self.key.clone(),
            payload: self.payload.clone(),
            priority: self.priority,
            run_at: RunAt::At(due),
            max_attempts: self.max_attempts,
            retry: self.retry.clone(),
            timeout_ms: self.timeout_ms,
            category: self.category.clone(),
            creator: self.creator.clone(),
            ..NewTask::default()
        }
    }

    /// The task of a child, due now. What a child does not say itself is as the root has it, or as its type says.
    #[must_use]
    pub fn follower(&self, child: &Child, tenant: &str) -> NewTask {
        NewTask {
            tenant: tenant.to_owned(),
            task_type: child.task_type.clone(),
            key: self.key.clone(),
            payload: child.payload.clone(),
            priority: self.priority,
            timeout_ms: child.timeout_ms,
            creator: self.creator.clone(),
            ..NewTask::default()
        }
    }
}

impl Child {
    fn validate(&self, field: &str, depth: usize, nodes: &mut usize) -> Result<(), FieldError> {
        *nodes += 1;
        if *nodes > limits::CHILDREN_MAX {
            return Err(FieldError::new("children", format!("must be at most {} in all", limits::CHILDREN_MAX)));
        }
        if depth > limits::CHILDREN_DEPTH_MAX {
            let message = format!("must not be deeper than {}", limits::CHILDREN_DEPTH_MAX);
            return Err(FieldError::new("children", message));
        }
        if let Some(name) = &self.name {
            field::name(&format!("{field}.name"), name, limits::KEY_CHARS_MAX)?;
        }
        field::task_type(&format!("{field}.type"), &self.task_type)?;
        if let Some(payload) = &self.payload {
            field::json(&format!("{field}.payload"), payload, limits::PAYLOAD_BYTES_MAX)?;
        }
        if let Some(ms) = self.timeout_ms {
            field::range_or_unlimited(&format!("{field}.timeout_ms"), ms, 1, limits::TIMEOUT_MS_MAX)?;
        }
        for (place, child) in self.children.iter().enumerate() {
            child.validate(&format!("{field}.children[{place}]"), depth + 1, nodes)?;
        }
        Ok(())
    }
}

/// A task of a run: which node it is of, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The path of its node.
    pub path: Vec<usize>,
    /// The status of its task.
    pub status: Status,
}

/// How a run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something of it lives, and these nodes start.
    GoesOn {
        /// The paths of the nodes.
        start: Vec<Vec<usize>>,
    },
    /// All of it has ended.
    Ended {
        /// Whether all of it ended well.
        is_done: bool,
    },
}

/// How a run goes on, by how its tasks stand. A task that waits for a person counts as ended, and not well.
#[must_use]
pub fn progress(definition: &Definition, steps: &[Step]) -> Progress {
    let ended_well = |status: Status| matches!(status, Status::Success | Status::ManuallyProcessed);
    let lives = |status: Status| !status.is_finished() && status != Status::Pending;
    let of = |path: &[usize]| -> Vec<Status> {
        steps.iter().filter(|step| step.path == path).map(|step| step.status).collect()
    };
    let mut start = Vec::new();
    let mut paths: Vec<&[usize]> = steps.iter().map(|step| step.path.as_slice()).collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        if !of(path).into_iter().all(ended_well) {
            continue;
        }
        for (place, child) in definition.children_of(path).iter().enumerate() {
            let below: Vec<usize> = path.iter().copied().chain([place]).collect();
            if child.enabled && of(&below).is_empty() {
                start.push(below);
            }
        }
    }
    if !start.is_empty() || steps.iter().any(|step| lives(step.status)) {
        return Progress::GoesOn { start };
    }
    Progress::Ended { is_done: steps.iter().all(|step| ended_well(step.status)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(children: Vec<Child>) -> Child {
        Child { name: None, task_type: "b".into(), payload: None, timeout_ms: None, enabled: true, children }
    }

    fn tree(children: Vec<Child>) -> Definition {
        Definition { name: "nightly".into(), task_type: "a".into(), children, ..Definition::default() }
    }

    fn step(path: &[usize], status: Status) -> Step {
        Step { path: path.to_vec(), status }
    }

    fn starts(progress: Progress) -> Vec<Vec<usize>> {
        match progress {
            Progress::GoesOn { start } => start,
            Progress::Ended { .. } => panic!("it has ended"),
        }
    }

    #[test]
    fn children_start_side_by_side_when_all_shards_of_their_parent_ended_well() {
        let tree = tree(vec![child(vec![child(vec![])]), child(vec![])]);
        let half = [step(&[], Status::Success), step(&[], Status::Executing)];
        assert_eq!(starts(progress(&tree, &half)), Vec::<Vec<usize>>::new());
        let both = [step(&[], Status::Success), step(&[], Status::ManuallyProcessed)];
        assert_eq!(starts(progress(&tree, &both)), [vec![0], vec![1]]);
        let deeper = [step(&[], Status::Success), step(&[0], Status::Success), step(&[1], Status::New)];
        assert_eq!(starts(progress(&tree, &deeper)), [vec![0, 0]]);
    }

    #[test]
    fn what_did_not_end_well_stops_its_subtree_and_nothing_else() {
        let tree = tree(vec![child(vec![child(vec![])]), child(vec![child(vec![])])]);
        for bad in [Status::Failure, Status::Cancelled, Status::Pending] {
            let steps = [step(&[], Status::Success), step(&[0], bad), step(&[1], Status::Success)];
            assert_eq!(starts(progress(&tree, &steps)), [vec![1, 0]]);
            let ended = [&steps[..], &[step(&[1, 0], Status::Success)]].concat();
            assert_eq!(progress(&tree, &ended), Progress::Ended { is_done: false });
        }
    }

    #[test]
    fn a_disabled_child_is_skipped_with_its_subtree() {
        let tree = tree(vec![Child { enabled: false, ..child(vec![child(vec![])]) }]);
        assert_eq!(progress(&tree, &[step(&[], Status::Success)]), Progress::Ended { is_done: true });
    }

    #[test]
    fn a_tree_has_limits_and_its_bad_fields_have_paths() {
        let wide = tree((0..=limits::CHILDREN_MAX).map(|_| child(vec![])).collect());
        assert_eq!(wide.validate().unwrap_err()[0].field, "children");
        let deep = (0..=limits::CHILDREN_DEPTH_MAX).fold(child(vec![]), |below, _| child(vec![below]));
        assert_eq!(tree(vec![deep]).validate().unwrap_err()[0].field, "children");
        let bad = tree(vec![child(vec![Child { task_type: "a b".into(), ..child(vec![]) }])]);
        assert_eq!(bad.validate().unwrap_err()[0].field, "children[0].children[0].type");
    }

    #[test]
    fn shards_are_a_number_or_a_word() {
        assert_eq!(serde_json::from_str::<Shards>("4").unwrap(), Shards::Fixed(4));
        assert_eq!(serde_json::from_str::<Shards>("\"per_worker\"").unwrap(), Shards::PerWorker(PerWorker::PerWorker));
        assert!(serde_json::from_str::<Shards>("\"per_host\"").is_err());
    }
}
