//! A small disk of our own for a database, so that it can be filled. Where we may not mount one, there is none.

use anyhow::{Context, Result};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs::{File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const SIZE: &str = "size=2g";
static BLOCK: [u8; 1 << 20] = [0; 1 << 20];

/// A mounted disk. It is gone when this is dropped.
pub(crate) struct Disk(PathBuf);

impl Disk {
    pub(crate) fn mount(directory: &Path) -> Option<Disk> {
        let place = directory.join("disk");
        std::fs::create_dir(&place).ok()?;
        mount(Some("tmpfs"), &place, Some("tmpfs"), MsFlags::empty(), Some(SIZE)).ok()?;
        // The server's user must be able to pass through.
        std::fs::set_permissions(&place, Permissions::from_mode(0o711)).ok()?;
        Some(Disk(place))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Takes all the room that is left.
    pub(crate) fn fill(&self) -> Result<()> {
        let mut file = File::create(self.filler()).context("the disk cannot be written")?;
        while file.write(&BLOCK).is_ok_and(|bytes| bytes > 0) {}
        Ok(())
    }

    pub(crate) fn clear(&self) {
        let _ = std::fs::remove_file(self.filler());
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
