//! Object stores, opened by where they are.

use std::path::Path;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;

/// Opens a folder as an object store whose answered writes survive a loss of power.
///
/// # Errors
/// What the file system says if `folder` does not exist or is not a folder.
pub fn local_store(folder: &Path) -> object_store::Result<Arc<dyn ObjectStore>> {
    let store = LocalFileSystem::new_with_prefix(folder)?;
    // Off by default, and acked data would vanish with the page cache.
    Ok(Arc::new(store.with_fsync(true)))
}
