//! A network that goes wrong: a TCP proxy that cuts, resets, delays, holds back, drips, swallows an answer, or repeats a request.

use crate::answer::{self, Asked};
use anyhow::Result;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const BUFFER_BYTES: usize = 16 * 1024;
const DELAY: Duration = Duration::from_millis(300);
const HELD_LOOK: Duration = Duration::from_millis(20);
/// So many answers are swallowed at least, if they come within this time: what can be repeated is, and not each change would do harm.
const SWALLOWED: usize = 20;
const SWALLOW_MAX: Duration = Duration::from_secs(5);
/// So long the answer to a repeated request is waited for.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How the network is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Weather {
    /// Nothing goes wrong.
    #[default]
    Fair,
    /// Connections are closed, and new ones too.
    Cut,
    /// The same without a farewell.
    Reset,
    /// Everything takes longer.
    Delay,
    /// What clients say does not arrive, or later.
    Mute,
    /// What is answered does not arrive, or later.
    Deaf,
    /// One byte at a time.
    Drip,
    /// Answers to changes are swallowed, and their connections closed: what was asked is done, and nobody knows.
    SwallowAnswer,
    /// The last report is sent once more, by somebody else.
    Repeat,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// One link. It lasts as long as the process.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    server: SocketAddr,
    weather: watch::Sender<Weather>,
    /// How often the weather did something to somebody.
    felt: AtomicUsize,
    /// Weathers come one after the other: of two at a time the first to end would end both.
    turn: tokio::sync::Mutex<()>,
    /// The last request that is worth repeating.
    recorded: Mutex<Vec<u8>>,
}

impl Proxy {
    pub(crate) async fn start(server: SocketAddr) -> Result<Arc<Proxy>> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let proxy = Arc::new(Proxy {
            port,
            server,
            weather: watch::Sender::default(),
            felt: AtomicUsize::new(0),
            turn: tokio::sync::Mutex::default(),
            recorded: Mutex::default(),
        });
        let accepting = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(accepting.clone().carry(client));
            }
        });
        Ok(proxy)
    }

    /// Has this weather for a while, after any that is there. Says whether anybody felt it.
    pub(crate) async fn suffer(&self, weather: Weather, lasts: Duration) -> bool {
        let _turn = self.turn.lock().await;
        self.felt.store(0, Ordering::Relaxed);
        self.set(weather);
        tokio::time::sleep(lasts).await;
        let began = Instant::now();
        let is_short = || weather == Weather::SwallowAnswer && self.felt.load(Ordering::Relaxed) < SWALLOWED;
        while is_short() && began.elapsed() < SWALLOW_MAX {
            tokio::time::sleep(HELD_LOOK).await;
        }
        self.set(Weather::Fair);
        self.felt.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }

    fn is(&self, weather: Weather) -> bool {
        *self.weather.borrow() == weather
    }

    fn feel(&self) {
        self.felt.fetch_add(1, Ordering::Relaxed);
    }

    /// Sends the last recorded request again. Says whether it was taken for a report.
    pub(crate) async fn repeat(&self) -> bool {
        let request = self.recorded.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answered = async {
            let mut server = TcpStream::connect(self.server).await.ok()?;
            server.write_all(&request).await.ok()?;
            let (mut answer, mut buffer) = (Vec::new(), [0; 1_024]);
            while !answer::is_of_report(&answer) {
                let bytes = server.read(&mut buffer).await.ok().filter(|bytes| *bytes > 0)?;
                answer.extend_from_slice(&buffer[..bytes]);
            }
            Some(())
        };
        !request.is_empty() && matches!(tokio::time::timeout(ANSWER_MAX, answered).await, Ok(Some(())))
    }

    async fn carry(self: Arc<Self>, mut client: TcpStream) {
        if self.is(Weather::Cut) || self.is(Weather::Reset) {
            self.feel();
            return;
        }
        let Ok(mut server) = TcpStream::connect(self.server).await else { return };
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        {
            let (from_client, to_client) = client.split();
            let (from_server, to_server) = server.split();
            let mut weather = self.weather.subscribe();
            let asked = Asked::default();
            tokio::select! {
                _ = self.pump(Direction::Up, &asked, from_client, to_server) => {}
                _ = self.pump(Direction::Down, &asked, from_server, to_client) => {}
                _ = weather.wait_for(|weather| matches!(weather, Weather::Cut | Weather::Reset)) => self.feel(),
            }
        }
        if self.is(Weather::Reset) {
            let _ = (client.set_zero_linger(), server.set_zero_linger());
        }
    }

    /// Carries one way, until either side has had enough.
    async fn pump(
        &self,
        direction: Direction,
        asked: &Asked,
        mut from: ReadHalf<'_>,
        mut to: WriteHalf<'_>,
    ) -> Option<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let bytes = from.read(&mut buffer).await.ok().filter(|bytes| *bytes > 0)?;
            let said = &buffer[..bytes];
            if direction == Direction::Up {
                asked.hear(said);
                if answer::is_report(said) {
                    *self.recorded.lock().unwrap_or_else(PoisonError::into_inner) = said.to_vec();
                }
            }
            let held = if direction == Direction::Up { Weather::Mute } else { Weather::Deaf };
            if self.is(held) {
                self.feel();
            }
            while self.is(held) {
                tokio::time::sleep(HELD_LOOK).await;
            }
            let weather = *self.weather.borrow();
            match weather {
                Weather::Delay => {
                    self.feel();
                    tokio::time::sleep(DELAY).await;
                    to.write_all(said).await.ok()?;
                }
                Weather::Drip => {
                    self.feel();
                    for byte in said.chunks(1) {
                        to.write_all(byte).await.ok()?;
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                Weather::SwallowAnswer if direction == Direction::Down && asked.is_swallowed(said) => {
                    self.feel();
                    return None;
                }
                _ => to.write_all(said).await.ok()?,
            }
        }
    }
}
