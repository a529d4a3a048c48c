//! Plots as SVG: plain shapes and text, with colours for light and dark surroundings.

mod bars;
mod lines;
mod svg;

pub(crate) use bars::{Bar, BarChart, Group, Kind};
pub(crate) use lines::{LineChart, Point, Series};
