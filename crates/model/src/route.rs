//! Routing: the slot a task belongs to.
//!
//! Shards own ranges of slots, so that changing their number rewrites no row. The rule is stable for ever: it is in
//! rows that are already stored.

use crate::{TaskId, limits::SLOTS};
use sha2::{Digest, Sha256};

/// A routing slot, 0 to 1023.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(u16);

impl Slot {
    /// The slot of a route key: the first ten bits of its SHA-256.
    #[must_use]
    pub fn of_route_key(route_key: &str) -> Slot {
        let hash = Sha256::digest(route_key.as_bytes());
        Slot(u16::from_be_bytes([hash[0], hash[1]]) >> 6)
    }

    /// The slot of a task without a route key: its id modulo the number of slots.
    #[must_use]
    pub fn of_id(id: TaskId) -> Slot {
        let slot = id.0.rem_euclid(i64::from(SLOTS));
        Slot(u16::try_from(slot).expect("a remainder of 1024 fits"))
    }

    /// The slot's number.
    #[must_use]
    pub fn get(self) -> u16 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These values are in stored rows. A change here breaks every database that exists.
    #[test]
    fn slots_never_change() {
        // printf '' | sha256sum starts with e3b0, 'order-7' and 'a' with the values below.
        assert_eq!(Slot::of_route_key("").get(), 0xe3b0 >> 6);
        assert_eq!(Slot::of_route_key("a").get(), 0xca97 >> 6);
        assert_eq!(Slot::of_route_key("abc").get(), 0xba78 >> 6);
        assert_eq!(Slot::of_id(TaskId(1025)).get(), 1);
    }
}
