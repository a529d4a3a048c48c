//! What a schedule fires: a type, or a method of an app's service, which is the type `app:service:method`.

use taskwheel_model::{FieldError, field};

/// A target as it came: by type, or by names.
#[derive(Debug, Default)]
pub(super) struct TargetInput<'i> {
    pub(super) task_type: Option<&'i str>,
    pub(super) app: Option<&'i str>,
    pub(super) service: Option<&'i str>,
    pub(super) method: Option<&'i str>,
}

impl TargetInput<'_> {
    /// Whether anything was given.
    pub(super) fn is_given(&self) -> bool {
        self.task_type.is_some() || self.app.is_some() || self.service.is_some() || self.method.is_some()
    }

    /// The type. `place` stands before the names in errors, as in `children[0].`.
    pub(super) fn resolve(&self, place: &str) -> Result<String, FieldError> {
        let named = [("app", self.app), ("service", self.service), ("method", self.method)];
        if let Some(task_type) = self.task_type {
            field::task_type(&format!("{place}type"), task_type)?;
            // Whoever sends back what was shown has both, and they agree.
            let own = parts(task_type).map_or([None; 3], |parts| parts.map(Some));
            let differs = |((_, value), own): &((&str, Option<&str>), Option<&str>)| value.is_some() && value != own;
            if let Some(((name, _), _)) = named.into_iter().zip(own).find(differs) {
                let message = "must be as in type, or not be given together with it";
                return Err(FieldError::new(format!("{place}{name}"), message));
            }
            return Ok(task_type.to_owned());
        }
        if named.iter().all(|(_, value)| value.is_none()) {
            return Err(FieldError::new(format!("{place}type"), "must be given, or app, service and method"));
        }
        let mut parts = Vec::new();
        for (name, value) in named {
            let name = format!("{place}{name}");
            let value = value.ok_or_else(|| FieldError::new(&name, "must be given with the other names"))?;
            parts.push(part(&name, value)?);
        }
        let task_type = parts.join(":");
        // Each name may be good and the whole too long.
        field::task_type(&format!("{place}method"), &task_type)?;
        Ok(task_type)
    }
}

/// One of the three names. A colon in it would make it two.
fn part<'v>(name: &str, value: &'v str) -> Result<&'v str, FieldError> {
    field::task_type(name, value)?;
    if value.contains(':') { Err(FieldError::new(name, "must not have a colon")) } else { Ok(value) }
}

/// The app, service and method of a type that has that form.
pub(super) fn parts(task_type: &str) -> Option<[&str; 3]> {
    let parts: Vec<_> = task_type.split(':').collect();
    match parts[..] {
        [app, service, method] if parts.iter().all(|part| !part.is_empty()) => Some([app, service, method]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: [Option<&str>; 4]) -> Result<String, String> {
        let [task_type, app, service, method] = names;
        let target = TargetInput { task_type, app, service, method };
        target.resolve("children[0].").map_err(|error| error.to_string())
    }

    #[test]
    fn a_method_of_an_apps_service_is_a_type() {
        assert_eq!(of([None, Some("das"), Some("build"), Some("run")]).as_deref(), Ok("das:build:run"));
        assert_eq!(of([Some("mail"), None, None, None]).as_deref(), Ok("mail"));
        assert_eq!(of([Some("a:b:c"), Some("a"), Some("b"), Some("c")]).as_deref(), Ok("a:b:c"));
        assert_eq!(parts("das:build:run"), Some(["das", "build", "run"]));
        for other in ["mail", "a:b", "a:b:c:d", "a::c", ":b:c"] {
            assert_eq!(parts(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_half_given_twice_given_or_ambiguous_is_refused_by_name() {
        let is_about = |names, field: &str| {
            let error = of(names).unwrap_err();
            assert!(error.starts_with(&format!("children[0].{field}: ")), "{error}");
        };
        is_about([None, None, None, None], "type");
        is_about([None, Some("a"), None, Some("c")], "service");
        is_about([Some("mail"), None, Some("b"), None], "service");
        is_about([Some("a:b:c"), Some("a"), Some("b"), Some("d")], "method");
        is_about([None, Some("a:b"), Some("c"), Some("d")], "app");
        is_about([None, Some("a"), Some("b"), Some("c d")], "method");
        let long = "x".repeat(100);
        is_about([None, Some(&long), Some(&long), Some("c")], "method");
    }
}
