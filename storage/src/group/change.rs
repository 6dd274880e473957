//! A change on its way: what its closure works on, and who waits for it.

use std::convert::Infallible;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::config::ChangeError;
use super::{Halt, Machine, Seq};
use crate::wide::{Batch, StoreError};

/// What a closure decides on: the state with every change of the same commit before it, and what it records.
pub struct Draft<'a, M: Machine> {
    machine: &'a M,
    state: &'a mut M::State,
    entries: &'a mut Vec<M::Entry>,
    seq: Seq,
}

impl<'a, M: Machine> Draft<'a, M> {
    pub(super) fn new(machine: &'a M, state: &'a mut M::State, entries: &'a mut Vec<M::Entry>, seq: Seq) -> Self {
        Self { machine, state, entries, seq }
    }

    /// The state so far.
    pub fn state(&self) -> &M::State {
        self.state
    }

    /// The number the commit will have.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Records an entry and applies it to the state at hand.
    ///
    /// # Errors
    ///
    /// What [`Machine::apply`] says; pass it on (the closure is run again when what is missing is there).
    pub fn emit<E>(&mut self, entry: M::Entry) -> Result<(), Halt<E, M::Missing>> {
        self.machine.apply(self.state, self.seq, &entry).map_err(widen)?;
        self.entries.push(entry);
        Ok(())
    }
}

fn widen<E, X>(halt: Halt<Infallible, X>) -> Halt<E, X> {
    match halt {
        Halt::Missing(missing) => Halt::Missing(missing),
        Halt::Corrupt(what) => Halt::Corrupt(what),
        Halt::Refused(never) => match never {},
    }
}

/// Why one run of a closure did not decide.
pub(super) enum Undecided<X> {
    Missing(X),
    Refused,
    Corrupt(String),
}

/// How a change ended, seen from the group.
#[derive(Debug, Clone)]
pub(super) enum Ending {
    Durable(Seq),
    Failed(Failure),
}

#[derive(Debug, Clone)]
pub(super) enum Failure {
    Store(Arc<StoreError>),
    Unknown,
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Store(error) => again(&error),
            Failure::Unknown => Self::Unavailable("the outcome is not known".to_owned()),
        }
    }
}

/// A change that waits, its types forgotten.
pub(super) trait Waiting<M: Machine>: Send {
    fn decide(&mut self, draft: &mut Draft<'_, M>) -> Result<(), Undecided<M::Missing>>;
    fn settle(self: Box<Self>, ending: Ending);
}

/// What a change's caller is told.
pub(super) type Answer<T, E> = Result<(T, Seq), ChangeError<E>>;

struct Change<T, E, F> {
    decide: F,
    decided: Option<Result<T, E>>,
    answer: oneshot::Sender<Answer<T, E>>,
}

impl<M, T, E, F> Waiting<M> for Change<T, E, F>
where
    M: Machine,
    T: Send,
    E: Send,
    F: FnMut(&mut Draft<'_, M>) -> Result<T, Halt<E, M::Missing>> + Send,
{
    fn decide(&mut self, draft: &mut Draft<'_, M>) -> Result<(), Undecided<M::Missing>> {
        self.decided = None;
        match (self.decide)(draft) {
            Ok(value) => {
                self.decided = Some(Ok(value));
                Ok(())
            }
            Err(Halt::Refused(error)) => {
                self.decided = Some(Err(error));
                Err(Undecided::Refused)
            }
            Err(Halt::Missing(missing)) => Err(Undecided::Missing(missing)),
            Err(Halt::Corrupt(what)) => Err(Undecided::Corrupt(what)),
        }
    }

    fn settle(self: Box<Self>, ending: Ending) {
        let answer = match (ending, self.decided) {
            (Ending::Durable(seq), Some(Ok(value))) => Ok((value, seq)),
            (Ending::Durable(_), Some(Err(error))) => Err(ChangeError::Refused(error)),
            (Ending::Durable(_), None) => Err(ChangeError::Unknown),
            (Ending::Failed(Failure::Unknown), _) => Err(ChangeError::Unknown),
            (Ending::Failed(Failure::Store(error)), _) => Err(ChangeError::Store(again(&error))),
        };
        // The caller may be gone; the change stands all the same.
        drop(self.answer.send(answer));
    }
}

/// The same error for each of those that waited.
fn again(error: &StoreError) -> StoreError {
    match error {
        StoreError::Unavailable(what) => StoreError::Unavailable(what.clone()),
        StoreError::Poisoned(what) => StoreError::Poisoned(what.clone()),
        StoreError::Corrupt(what) => StoreError::Corrupt(what.clone()),
        StoreError::Refused(what) => StoreError::Refused(what.clone()),
        StoreError::Locked { path, holder } => StoreError::Locked { path: path.clone(), holder: holder.clone() },
        StoreError::Io(error) => StoreError::Io(std::io::Error::new(error.kind(), error.to_string())),
    }
}

/// A change in the queue.
pub(super) struct Queued<M: Machine> {
    pub(super) change: Box<dyn Waiting<M>>,
    pub(super) first: Batch,
    pub(super) bytes: usize,
    pub(super) decided: Decided,
}

/// What a change's closure last came to.
pub(super) enum Decided {
    /// It recorded something: its `first` is written.
    Recorded,
    /// It refused, or there was nothing to record: its `first` is not written.
    Nothing,
    /// It alone fails, with this.
    Failed(StoreError),
}

impl<M: Machine> Queued<M> {
    pub(super) fn new<T, E, F>(first: Batch, decide: F) -> (Self, oneshot::Receiver<Answer<T, E>>)
    where
        T: Send + 'static,
        E: Send + 'static,
        F: FnMut(&mut Draft<'_, M>) -> Result<T, Halt<E, M::Missing>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let bytes = first.writes.iter().map(|write| write.value.as_ref().map_or(0, bytes::Bytes::len) + 64).sum();
        let change = Box::new(Change { decide, decided: None, answer });
        (Self { change, first, bytes, decided: Decided::Nothing }, answered)
    }

    pub(super) fn settle(self, ending: Ending) {
        let ending = match (self.decided, ending) {
            (Decided::Failed(error), Ending::Durable(_)) => Ending::Failed(error.into()),
            (_, ending) => ending,
        };
        self.change.settle(ending);
    }
}
