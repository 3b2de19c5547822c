//! Looking at open containers from within: what must hold at each step, and whether two looks see the same.

use super::front::Front;
use crate::container::ContainerHandle;
use crate::read::TableRead;
use crate::sim::store::SimObjectStore;
use crate::state::{Core, Pieces};
use crate::tier::verify_object;
use crate::types::SegmentId;
use bytes::Bytes;
use object_store::path::Path;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What was seen last of each segment, over every crash.
#[derive(Default)]
pub(super) struct Inspector {
    seen: BTreeMap<(u16, SegmentId), Core>,
}

impl Inspector {
    /// Looks at every container that is open.
    pub(super) fn look(&mut self, front: &Front, containers: u16) -> Result<(), String> {
        for container in 0..containers {
            let Some(handle) = front.handle(container) else { continue };
            for view in handle.views().all() {
                let core = view.core();
                let length = if view.kind.is_table() { core.start } else { core.length };
                let covered = view.pieces(|pieces| pieces.prove(core.start, length));
                covered.map_err(|uncovered| format!("{}: {uncovered}", view.name))?;
                self.compare((container, view.id), core).map_err(|what| format!("{}: {what}", view.name))?;
            }
        }
        Ok(())
    }

    /// Start and length never fall and never cross; sealed is for ever.
    fn compare(&mut self, segment: (u16, SegmentId), core: Core) -> Result<(), String> {
        let before = self.seen.insert(segment, core).unwrap_or_default();
        let falls = core.start < before.start || core.length < before.length;
        let grows = before.sealed && (core.length != before.length || !core.sealed);
        if core.start > core.length || falls || grows || !core.exists {
            return Err(format!("{before:?} became {core:?}"));
        }
        Ok(())
    }
}

/// Everything lies in objects, each of which holds something, is whole, and is all that the store has.
pub(super) fn audit(handle: &ContainerHandle, container: u16, store: &SimObjectStore) -> Result<(), String> {
    let mut named = BTreeMap::new();
    for view in handle.views().all() {
        let placed = view.pieces(Pieces::placed);
        if placed > 0 {
            return Err(format!("{placed} bytes of {} lie in the log only", view.name));
        }
        for extent in view.extents() {
            named.insert(handle.cold().name_of(extent.stored.object), extent);
        }
    }
    let prefix = Path::from(format!("v1/c{container:04x}/objects"));
    for (path, extent) in &named {
        let Some(bytes) = store.content(&Path::from(path.as_str())) else {
            return Err(format!("{path} is gone, but {extent:?} lies in it"));
        };
        verify_object(&bytes).map_err(|error| format!("{path}: {error}"))?;
    }
    let stored = store.objects().into_keys().filter(|path| path.prefix_matches(&prefix));
    match stored.map(|path| path.to_string()).find(|path| !named.contains_key(path)) {
        Some(unnamed) => Err(format!("{unnamed} is there, but nothing lies in it")),
        None => Ok(()),
    }
}

/// All that readers can learn of a container, as text by segment.
pub(super) async fn portrait(handle: &ContainerHandle) -> Result<BTreeMap<String, String>, String> {
    let mut portrait = BTreeMap::new();
    for view in handle.views().all() {
        let core = view.core();
        let mut text = format!("{} {:?} {core:?}", view.id, view.kind);
        if let Ok(read) = TableRead::new(&view, handle.index()) {
            let nothing = Bytes::new();
            let all = read.iterate(&nothing, &nothing, &nothing, i32::MAX).await;
            let all = all.map_err(|error| format!("{}: {error}", view.name))?;
            // Writing to a string cannot fail.
            let _written = write!(text, " {:?}", all.entries);
        }
        portrait.insert(view.name.clone(), text);
    }
    Ok(portrait)
}
