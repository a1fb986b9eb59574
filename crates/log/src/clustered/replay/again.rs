//! Data of committed entries that was not kept: read again, from its places in the file.

use super::{Each, Phase, Problem, Replayer};
use crate::clustered::data::DataReader;
use crate::clustered::raft_log::DataPlace;
use crate::standalone::rows::Rows;

/// Data of which some may have come.
pub(super) struct Data {
    index: u64,
    place: DataPlace,
    /// Bytes that have come.
    taken: u64,
    form: Form,
}

enum Form {
    /// Rows are made while they come.
    Pieces(DataReader),
    /// Kept until all has come.
    Whole(Vec<u8>),
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Data").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Replayer {
    /// The next entry with data that is to be applied and was not, and where that is.
    pub(super) fn next_place(&self) -> Option<(u64, DataPlace)> {
        let log = &self.file.as_ref()?.log;
        let last = if self.salvages { log.end() - 1 } else { log.commit_index };
        let mut indexes = self.unapplied.next()?..=last;
        indexes.find_map(|index| Some((index, log.entry(index)?.data?)))
    }

    /// Takes bytes from the file offset `start` on; goes where the next data is.
    pub(super) fn feed_again(
        &mut self,
        start: u64,
        bytes: &[u8],
        each: &mut Each<'_>,
    ) -> Result<(), Problem> {
        while let Some(mut data) = self.next_data() {
            let from = data.place.offset + data.taken;
            if !(start..self.position).contains(&from) {
                if from != self.position {
                    self.go_to(from);
                }
                self.phase = Phase::Again(Some(Box::new(data)));
                return Ok(());
            }
            let here = usize::try_from(from - start).ok().and_then(|at| bytes.get(at..));
            let here = here.unwrap_or_default();
            let left = usize::try_from(data.place.len - data.taken).unwrap_or(usize::MAX);
            let here = here.get(..left).unwrap_or(here);
            data.taken += here.len() as u64;
            let rest = self.feed_data(data, here, each)?;
            self.phase = Phase::Again(rest.map(Box::new));
        }
        Ok(())
    }

    /// What is being read, or is to be read next.
    fn next_data(&mut self) -> Option<Data> {
        if let Phase::Again(data) = &mut self.phase
            && let Some(data) = data.take()
        {
            return Some(*data);
        }
        let (index, place) = self.next_place()?;
        let form = Form::Pieces(DataReader::new(self.seed.wrapping_add(index)));
        Some(Data { index, place, taken: 0, form })
    }

    /// Takes the next bytes of some data; answers what still has to come of it.
    fn feed_data(
        &mut self,
        data: Data,
        bytes: &[u8],
        each: &mut Each<'_>,
    ) -> Result<Option<Data>, Problem> {
        let Data { index, place, taken, form } = data;
        let is_end = taken == place.len;
        let form = match form {
            Form::Whole(mut text) => {
                text.extend_from_slice(bytes);
                if is_end {
                    self.apply(index, &text, each)?;
                    self.unapplied.applied_to(index);
                    return Ok(None);
                }
                Form::Whole(text)
            }
            Form::Pieces(mut reader) => {
                let fed = reader.feed(bytes, &mut self.rows);
                if fed.is_ok() && !is_end {
                    return Ok(Some(Data { index, place, taken, form: Form::Pieces(reader) }));
                }
                let tells = self.tells(index);
                let made = fed.and_then(|()| reader.finish(&mut self.rows, tells));
                if let Ok(made) = made {
                    self.end_entry(index, made, each)?;
                    self.unapplied.applied_to(index);
                    return Ok(None);
                }
                self.rows.iter_mut().for_each(Rows::forget_pieces);
                return Ok(Some(Data { index, place, taken: 0, form: Form::Whole(Vec::new()) }));
            }
        };
        Ok(Some(Data { index, place, taken, form }))
    }
}
