//! One member between peers that say anything.

mod bench;
mod connections;
mod copies;
mod departures;
mod entries;
mod files;
mod hanging;
mod odd_frames;
mod promises;
mod refused;
mod snapshots;
mod split;
mod strangers;
