//! Says that work goes on, to people who wait for it at a terminal. Nobody else hears of it.

use std::io::{self, IsTerminal, Write};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// What ends sooner needs no words.
const QUIET: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(1);

/// Waits for work, with a line on stderr that says since when.
pub(crate) async fn shown<T>(what: &str, work: impl Future<Output = T>) -> T {
    if io::stderr().is_terminal() { told(what, work, &mut io::stderr()).await } else { work.await }
}

async fn told<T>(what: &str, work: impl Future<Output = T>, terminal: &mut impl Write) -> T {
    let (mut work, began, mut pause, mut is_told) = (pin!(work), Instant::now(), QUIET, false);
    loop {
        tokio::select! {
            done = &mut work => {
                if is_told {
                    // The line makes room for the answer.
                    write(terminal, "");
                }
                return done;
            }
            () = sleep(pause) => {
                write(terminal, &format!("{what}, {} s…", began.elapsed().as_secs()));
                (pause, is_told) = (EVERY, true);
            }
        }
    }
}

/// Writes over the line. When nobody hears it, that is no reason to stop.
fn write(terminal: &mut impl Write, line: &str) {
    let _ = write!(terminal, "\r\x1b[K{line}");
    let _ = terminal.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn after(time: Duration) -> (u8, String) {
        let mut terminal = Vec::new();
        let work = async {
            sleep(time).await;
            7
        };
        let done = told("cancel", work, &mut terminal).await;
        (done, String::from_utf8(terminal).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_says_so_and_leaves_nothing_behind() {
        let expected = "\r\x1b[Kcancel, 1 s…\r\x1b[Kcancel, 2 s…\r\x1b[K";
        assert_eq!(after(Duration::from_millis(2_500)).await, (7, expected.to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_soon_done_says_nothing() {
        assert_eq!(after(Duration::from_millis(900)).await, (7, String::new()));
    }
}
