//! A simulation of the whole platform in one thread: servers, workers, people and timers under a clock that only the
//! simulation moves, with chance from a seed. The decisions are the model's own; the store only carries them out, in memory.
//!
//! A call to a server is a transaction that lies open while others go on. A server may die before its commit, and then
//! nothing has happened, or after it, and then the caller hears nothing and asks again. Workers die, fall silent, come back
//! and report what nobody waits for any more. Time creeps and leaps. After each commit a witness with books of its own
//! looks whether a promise was broken; in the end faults stop, time goes on, and everything must end or wait visibly.
//!
//! A failure names its seed. `TASKWHEEL_SIMULATION_SEED` repeats it, `TASKWHEEL_SIMULATION_SEEDS` says how many to try.

mod call;
mod clockwork;
mod draft;
mod firing;
mod making;
mod mistake;
mod random;
mod store;
mod witness;
mod world;

use random::Fingerprint;
use witness::Broken;
use world::World;

/// What happens in one simulation, before faults stop.
const EVENTS: usize = 20_000;
const SEEDS: u64 = 50;
/// So many seeds are enough to find any of the mistakes.
const SEEDS_FOR_A_MISTAKE: u64 = 20;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is no number: {text}")))
}

fn run(seed: u64, mistake: Option<mistake::Mistake>) -> Result<(Fingerprint, usize), Broken> {
    let mut world = World::new(seed, mistake);
    world.live(EVENTS)?;
    world.settle()?;
    Ok(world.outcome())
}

#[test]
fn a_million_random_events_break_no_promise() {
    let seeds = match number("TASKWHEEL_SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("TASKWHEEL_SIMULATION_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        if let Err(Broken { promise, how }) = run(seed, None) {
            panic!("{promise:?} is broken: {how}. Repeat it with TASKWHEEL_SIMULATION_SEED={seed}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let outcome = |seed| run(seed, None).expect("no promise is broken");
    let (first, commits) = outcome(1);
    assert_eq!((first, commits), outcome(1));
    assert_ne!(first, outcome(2).0);
    assert!(commits > EVENTS / 10, "only {commits} of {EVENTS} events were commits");
}

#[test]
fn every_mistake_of_a_store_breaks_its_promise() {
    for (mistake, promise) in mistake::ALL {
        let found = (0..SEEDS_FOR_A_MISTAKE).find_map(|seed| run(seed, Some(mistake)).err());
        let Broken { promise: found, how } = found.unwrap_or_else(|| panic!("nobody noticed {mistake:?}"));
        assert_eq!(found, promise, "{mistake:?}: {how}");
    }
}
