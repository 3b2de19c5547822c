//! The load of segments, for a controller: a page at once, or once there is news.

use super::connection::{Close, Connection};
use crate::read::{Load, LoadPage};
use crate::types::SegmentId;
use dhara_wire::command::{LoadRead, Rate, ReadLoad, SegmentLoad};
use dhara_wire::limits::{LOAD_PAGE_BYTES, LOAD_WAIT_MS_MAX};
use std::sync::Arc;
use std::time::Duration;

impl Connection {
    pub(super) fn read_load(&mut self, command: &ReadLoad) -> Result<(), Close> {
        let ReadLoad { request_id, container_id, cursor, after, wait_ms, .. } = *command;
        let containers = &self.shared.containers;
        let container_count = i32::try_from(containers.count()).unwrap_or(i32::MAX);
        let container = containers.get(container_id).ok_or(Close("the container is not open"))?;
        let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0).min(LOAD_WAIT_MS_MAX));
        let after = u64::try_from(after).ok().map(SegmentId);
        let outbox = Arc::clone(&self.outbox);
        drop(self.reads.spawn(async move {
            let loads = container.loads();
            // Whoever is not told of news in time is told that there are none.
            let _told = tokio::time::timeout(wait, loads.wait(cursor)).await;
            outbox.room().await;
            let Some(LoadPage { loads, next, cursor }) = loads.page(cursor, after, LOAD_PAGE_BYTES) else {
                outbox.close();
                return;
            };
            let next = next.and_then(|id| i64::try_from(id.0).ok()).unwrap_or(-1);
            let loads = loads.into_iter().map(told).collect();
            let read = LoadRead { request_id, container_id, container_count, cursor, next, loads };
            outbox.push(|out| read.encode(out));
        }));
        Ok(())
    }
}

fn told(load: Load) -> SegmentLoad {
    let Load { name, policy, rates, age_ms } = load;
    SegmentLoad {
        segment: name.to_string(),
        scale_type: policy.scale_type,
        target_rate: policy.target_rate,
        rates: rates.map(Rate),
        age_ms,
    }
}
