//! Answers, some of which come later: a request that has to wait must not keep a dispatch thread.

use super::error::FsError;

/// Called once, from any thread.
pub type Then<T> = Box<dyn FnOnce(T) + Send>;

/// What a request is answered with.
type Outcome<T> = Result<T, FsError>;

/// The answer to a request.
pub enum Answer<T> {
    /// It is known.
    Now(Outcome<T>),
    /// It is found by other threads once this is called, and given to its argument.
    Later(Then<Then<Outcome<T>>>),
}

impl<T> std::fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Now(Ok(_)) => "Now(Ok)",
            Self::Now(Err(_)) => "Now(Err)",
            Self::Later(_) => "Later",
        })
    }
}

impl<T> From<Outcome<T>> for Answer<T> {
    fn from(outcome: Outcome<T>) -> Self {
        Self::Now(outcome)
    }
}

impl<T: Send + 'static> Answer<T> {
    /// An answer that `find` begins to look for, and gives to its argument.
    pub(super) fn later(find: impl FnOnce(Then<Outcome<T>>) + Send + 'static) -> Self {
        Self::Later(Box::new(find))
    }

    /// Calls `reply` with the answer, on this thread if it is known. Where it will not be known (the thread that looked for it
    /// ended), `reply` is dropped.
    pub fn then(self, reply: impl FnOnce(Outcome<T>) + Send + 'static) {
        match self {
            Self::Now(outcome) => reply(outcome),
            Self::Later(find) => find(Box::new(reply)),
        }
    }

    /// The answer with its value changed.
    #[must_use]
    pub(super) fn map<U: Send + 'static>(self, change: impl FnOnce(T) -> U + Send + 'static) -> Answer<U> {
        self.and_then(|value| Ok(change(value)))
    }

    /// The answer with its value replaced by a value or an error.
    #[must_use]
    pub(super) fn and_then<U: Send + 'static>(
        self,
        change: impl FnOnce(T) -> Outcome<U> + Send + 'static,
    ) -> Answer<U> {
        match self {
            Self::Now(outcome) => Answer::Now(outcome.and_then(change)),
            Self::Later(find) => {
                Answer::later(move |then| find(Box::new(move |outcome| then(outcome.and_then(change)))))
            }
        }
    }

    /// Waits for the answer: for callers that are no dispatch thread of the kernel's.
    ///
    /// # Errors
    /// As the request fails; [`FsError::Dropped`] if its answer will not be known.
    pub fn wait(self) -> Outcome<T> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        // The receiver waits below.
        self.then(move |outcome| drop(sender.send(outcome)));
        receiver.recv().unwrap_or(Err(FsError::Dropped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_nobody_gives_is_an_error() {
        assert_eq!(Answer::Now(Ok(1)).map(|one| one + 1).wait().unwrap(), 2);
        let other_thread = Answer::later(|then| drop(std::thread::spawn(move || then(Ok(3)))));
        assert_eq!(other_thread.map(|three| three + 1).wait().unwrap(), 4);
        assert!(matches!(Answer::<u8>::later(drop).wait(), Err(FsError::Dropped)));
        assert!(matches!(Answer::<u8>::Now(Err(FsError::Stale)).wait(), Err(FsError::Stale)));
    }
}
