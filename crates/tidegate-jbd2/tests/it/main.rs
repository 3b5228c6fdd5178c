//! Journals made by stock tools and by a writer of our own, recovered by us and by e2fsck.

mod crash;
mod cut;
mod damage;
mod engine;
mod image;
mod linux;
mod modes;
mod replay;
mod stock;
mod writer;
