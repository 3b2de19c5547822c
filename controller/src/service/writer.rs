//! What writers say about time.

use super::{Outcome, Service, ServiceError, check_present};
use crate::stream::StreamCut;
use crate::stream::watermark::Note;

impl Service {
    /// Records a writer's time and position.
    pub(crate) async fn note_time(
        &self,
        (scope, stream): (&str, &str),
        writer: &str,
        (position, time): (StreamCut, i64),
    ) -> Outcome<Note> {
        check_present("writer", writer)?;
        let opened = self.open_created(scope, stream).await?;
        Ok(opened.table.note_writer(writer, &position, time).await?)
    }

    /// Says that a writer no longer holds back watermarks; `false` if it has never noted a time.
    pub(crate) async fn remove_writer(&self, scope: &str, stream: &str, writer: &str) -> Outcome<bool> {
        check_present("writer", writer)?;
        match self.open_created(scope, stream).await {
            Ok(opened) => Ok(opened.table.remove_writer(writer).await?),
            Err(ServiceError::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
