//! News: none. MySQL and MariaDB have no way to tell other sessions of a commit; looks find what came.

use crate::session::News;
use crate::verbs::Upcoming;
use async_trait::async_trait;
use taskwheel_model::Time;

pub(super) struct Silence;

#[async_trait]
impl News for Silence {
    fn tell(&self, _dues: &mut dyn Iterator<Item = (&str, Time)>) {}

    async fn next(&self) -> Upcoming {
        std::future::pending().await
    }
}
