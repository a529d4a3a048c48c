//! Who may do what: the roles of tokens, and what each kind of call needs.

use crate::FieldError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything, in any tenant, and the types, which are global.
    Admin,
    /// Everything that changes the tasks and schedules of its tenant.
    Operator,
    /// Submits, and reads what it submitted itself.
    Submitter,
    /// Claims, renews and reports.
    Worker,
    /// Reads.
    Viewer,
}

/// What a call is, as far as it matters for who may make it. Every route of the API declares one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Anybody, without a token: whether the server lives.
    Open,
    /// Anybody with a token: what the API looks like.
    Any,
    /// Reads tasks.
    Read,
    /// Reads what is about more than single tasks: statistics, workers, types.
    Watch,
    /// Submits tasks.
    Submit,
    /// Changes tasks and schedules.
    Change,
    /// Claims, renews and reports.
    Work,
    /// Reads who changed what.
    Audit,
    /// Changes what is global.
    Administer,
}

impl Role {
    /// All roles.
    pub const ALL: [Role; 5] = [Role::Admin, Role::Operator, Role::Submitter, Role::Worker, Role::Viewer];

    /// Whether a token of this role may make a call. A submitter's reads are of its own tasks alone.
    #[must_use]
    pub fn may(self, scope: Scope) -> bool {
        match scope {
            Scope::Open | Scope::Any => true,
            Scope::Read => self != Role::Worker,
            Scope::Watch => matches!(self, Role::Admin | Role::Operator | Role::Viewer),
            Scope::Submit => matches!(self, Role::Admin | Role::Operator | Role::Submitter),
            Scope::Change | Scope::Audit => matches!(self, Role::Admin | Role::Operator),
            Scope::Work => matches!(self, Role::Admin | Role::Worker),
            Scope::Administer => self == Role::Admin,
        }
    }

    /// Whether a token of this role may be for all tenants.
    #[must_use]
    pub fn may_have_no_tenant(self) -> bool {
        matches!(self, Role::Admin | Role::Worker)
    }

    /// Its name, as in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Admin => "admin",
            Role::Operator => "operator",
            Role::Submitter => "submitter",
            Role::Worker => "worker",
            Role::Viewer => "viewer",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Role, FieldError> {
        let found = Role::ALL.into_iter().find(|role| role.as_str() == text);
        found.ok_or_else(|| FieldError::new("role", "must be admin, operator, submitter, worker or viewer"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of the documentation, row by row.
    #[test]
    fn roles_may_what_they_are_for_and_nothing_else() {
        use Scope::*;
        let allowed = |role: Role| {
            let scopes = [Read, Watch, Submit, Change, Work, Audit, Administer];
            scopes.into_iter().filter(|scope| role.may(*scope)).collect::<Vec<_>>()
        };
        assert_eq!(allowed(Role::Admin), [Read, Watch, Submit, Change, Work, Audit, Administer]);
        assert_eq!(allowed(Role::Operator), [Read, Watch, Submit, Change, Audit]);
        assert_eq!(allowed(Role::Submitter), [Read, Submit]);
        assert_eq!(allowed(Role::Worker), [Work]);
        assert_eq!(allowed(Role::Viewer), [Read, Watch]);
    }

    #[test]
    fn roles_are_read_by_their_names() {
        for role in Role::ALL {
            assert_eq!(role.as_str().parse(), Ok(role));
        }
        assert!("root".parse::<Role>().is_err());
    }
}
