//! Mutexes whose holder panicked are used on: what they guard is assigned whole.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
