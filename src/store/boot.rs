//! Which boot of the machine this is: what was written before it and not synchronized may be lost.

/// The kernel's identifier of this boot; empty where `/proc` has none.
#[must_use]
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}
