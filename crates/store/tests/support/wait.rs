//! Waiting for facts of the outside world, never for time.

use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);

/// Asks again until there is an answer, and fails loudly when there is none in good time.
pub(crate) async fn eventually<T, F>(what: &str, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let began = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(began.elapsed() < DEADLINE, "waited too long until {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Any number below a limit.
pub(crate) fn random_below(limit: u64) -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().1 % limit.max(1)
}
