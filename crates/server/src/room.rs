//! Room: how many calls are under way at once, and how many claims wait.
//!
//! A claim that waits does nothing for a minute, so it gives up its place among the calls for one among those that wait:
//! however many workers wait, there is room for all other calls. One token cannot have all the places to wait.

use crate::problem::Problem;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls at once. Further ones are told to come again.
const CALLS_MAX: usize = 4_096;
/// Claims that wait at once. Further ones look once.
const WAITING_MAX: usize = 4_096;
/// Claims of one token among them.
const WAITING_OF_TOKEN_MAX: usize = 2_048;

pub(crate) struct Room {
    calls: Arc<Semaphore>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    claims: usize,
    /// None of them is 0.
    by_token: HashMap<i64, usize>,
}

/// A place among the calls, until it is given up.
#[derive(Clone)]
pub(crate) struct Place(Arc<Mutex<Option<OwnedSemaphorePermit>>>);

/// A place among the claims that wait.
pub(crate) struct WaitingPlace<'r> {
    room: &'r Room,
    token_id: Option<i64>,
}

impl Default for Room {
    fn default() -> Room {
        Room { calls: Arc::new(Semaphore::new(CALLS_MAX)), waiting: Mutex::default() }
    }
}

impl Room {
    /// Takes a call in, if there is room.
    pub(crate) fn enter(&self) -> Result<Place, Problem> {
        let permit = self.calls.clone().try_acquire_owned().map_err(|_| Problem::busy())?;
        Ok(Place(Arc::new(Mutex::new(Some(permit)))))
    }

    /// Lets a claim wait in exchange for its place among the calls, if there is room.
    pub(crate) fn wait(&self, place: &Place, token_id: Option<i64>) -> Option<WaitingPlace<'_>> {
        let mut waiting = self.waiting();
        let of_token = token_id.and_then(|id| waiting.by_token.get(&id)).copied().unwrap_or_default();
        if waiting.claims >= WAITING_MAX || of_token >= WAITING_OF_TOKEN_MAX {
            return None;
        }
        waiting.claims += 1;
        if let Some(id) = token_id {
            *waiting.by_token.entry(id).or_default() += 1;
        }
        place.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Some(WaitingPlace { room: self, token_id })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        let mut waiting = self.room.waiting();
        waiting.claims -= 1;
        if let Some(id) = self.token_id
            && let Some(of_token) = waiting.by_token.get_mut(&id)
        {
            *of_token -= 1;
            if *of_token == 0 {
                waiting.by_token.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_that_waits_gives_up_its_place_among_the_calls() {
        let room = Room::default();
        let places: Vec<_> = (0..CALLS_MAX).map(|_| room.enter().unwrap_or_else(|_| panic!("there is room"))).collect();
        assert!(room.enter().is_err());
        let waits = room.wait(&places[0], None);
        assert!(waits.is_some() && room.enter().is_ok());
        drop(places);
        assert_eq!(room.calls.available_permits(), CALLS_MAX);
    }

    #[test]
    fn one_token_cannot_have_all_the_places_to_wait() {
        let room = Room::default();
        let wait = |token_id| room.wait(&room.enter().unwrap_or_else(|_| panic!("there is room")), token_id);
        let first: Vec<_> = (0..=WAITING_OF_TOKEN_MAX).map_while(|_| wait(Some(1))).collect();
        assert_eq!(first.len(), WAITING_OF_TOKEN_MAX);
        let others: Vec<_> = (0..=WAITING_MAX).map_while(|_| wait(None)).collect();
        assert_eq!(first.len() + others.len(), WAITING_MAX);
        assert!(wait(Some(2)).is_none(), "all places are taken");
        drop(first);
        assert!(wait(Some(1)).is_some() && wait(Some(2)).is_some());
        drop(others);
        let waiting = room.waiting();
        assert!(waiting.claims == 0 && waiting.by_token.is_empty(), "nothing is left of those that are gone");
    }
}
