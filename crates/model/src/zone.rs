//! Time zones by name, from the tables that are compiled in.
//!
//! The tables of the machine are left alone: reading them is I/O, and two nodes with tables of different age would
//! disagree about the due times of one schedule.

use crate::{FieldError, limits};
use jiff::tz::{TimeZone, TimeZoneDatabase};

/// Finds a zone by its name, in any case of letters.
pub fn find(field: &str, name: &str) -> Result<TimeZone, FieldError> {
    let unknown = || {
        let message = "must be a time zone by name, as in Asia/Shanghai or UTC";
        FieldError::new(field, message)
    };
    if name.len() > limits::NAME_CHARS_MAX {
        return Err(unknown());
    }
    let zone = TimeZoneDatabase::bundled().get(name).map_err(|_| unknown())?;
    // There is a name that stands for an unknown zone, and jiff takes it for UTC.
    if zone.is_unknown() { Err(unknown()) } else { Ok(zone) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_found_by_name() {
        for name in ["UTC", "Asia/Shanghai", "america/new_york", "Australia/Lord_Howe", "Etc/GMT+8"] {
            assert!(find("timezone", name).is_ok(), "{name}");
        }
    }

    #[test]
    fn an_unknown_zone_is_refused_by_name_of_the_field() {
        for name in ["", "Mars/Olympus", "Etc/Unknown", "+08:00", "UTC+8", "../../etc/passwd", "Europe/Berlin\0"] {
            let error = find("timers[0].timezone", name).unwrap_err();
            assert_eq!(error.field, "timers[0].timezone", "{name}");
        }
    }
}
