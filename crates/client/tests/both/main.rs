//! What holds for a client and a worker, on a server and in process alike: each fact is tested on both.

mod support;

mod client;
mod failover;
mod hung;
mod nodes;
mod origin;
mod panics;
mod refusals;
mod runs;
mod stopping;
mod together;
mod worker;
