//! Lines over a logarithmic axis: what grows with a number, and what does not.

use super::svg::{Anchor, Drawing, ticks};

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 70.0;
/// The names of the lines stand at their ends.
const RIGHT: f64 = 190.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 52.0;
const COLOURS: usize = 6;
/// Names closer than this would lie on each other.
const NAME_STEP: f64 = 14.0;

/// A median, with the least and the most of its runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// A line.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

/// A plot. The vertical axis begins at 0, so that what is flat looks flat.
pub(crate) struct LineChart {
    pub(crate) title: String,
    pub(crate) x_title: String,
    pub(crate) y_title: String,
    pub(crate) series: Vec<Series>,
}

impl LineChart {
    pub(crate) fn draw(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let most = points().map(|point| point.most).fold(0.0, f64::max);
        let marks = ticks(most);
        let top = marks.last().copied().unwrap_or(1.0);
        let mut columns: Vec<f64> = points().map(|point| point.x).collect();
        columns.sort_by(f64::total_cmp);
        columns.dedup();
        let (first, last) = (columns.first().copied().unwrap_or(1.0), columns.last().copied().unwrap_or(10.0));
        let x = |value: f64| {
            let share = if last > first { (value / first).ln() / (last / first).ln() } else { 0.5 };
            LEFT + share * (WIDTH - LEFT - RIGHT)
        };
        let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
        let mut drawing = Drawing::new(WIDTH, HEIGHT, &self.title);
        drawing.text(16.0, 44.0, Anchor::Start, "muted small", &self.y_title);
        for mark in &marks {
            drawing.line((LEFT, y(*mark)), (WIDTH - RIGHT, y(*mark)), "grid");
            drawing.text(LEFT - 8.0, y(*mark) + 4.0, Anchor::End, "muted small", &short(*mark));
        }
        for column in &columns {
            drawing.text(x(*column), HEIGHT - BOTTOM + 18.0, Anchor::Middle, "muted small", &short(*column));
        }
        let middle = LEFT + (WIDTH - LEFT - RIGHT) / 2.0;
        drawing.text(middle, HEIGHT - 12.0, Anchor::Middle, "muted small", &self.x_title);
        for (place, series) in self.series.iter().enumerate() {
            let colour = place % COLOURS;
            let path: Vec<_> = series.points.iter().map(|point| (x(point.x), y(point.median))).collect();
            for point in &series.points {
                drawing.line((x(point.x), y(point.least)), (x(point.x), y(point.most)), &format!("c{colour}"));
            }
            drawing.path(&path, &format!("line c{colour}"));
            path.iter().for_each(|point| drawing.dot(*point, &format!("d{colour}")));
        }
        for (place, at) in self.names(y) {
            let class = format!("d{} small", place % COLOURS);
            drawing.text(WIDTH - RIGHT + 12.0, at + 4.0, Anchor::Start, &class, &self.series[place].name);
        }
        drawing.finish()
    }

    /// Where the name of each line stands: at its end, but never on another.
    fn names(&self, y: impl Fn(f64) -> f64) -> Vec<(usize, f64)> {
        let ends = self.series.iter().enumerate();
        let mut ends: Vec<_> =
            ends.filter_map(|(place, series)| Some((place, y(series.points.last()?.median)))).collect();
        ends.sort_by(|one, other| one.1.total_cmp(&other.1));
        let mut free = f64::NEG_INFINITY;
        for (_, at) in &mut ends {
            *at = at.max(free);
            free = *at + NAME_STEP;
        }
        // Those that were pushed below the plot push the others up.
        let mut limit = HEIGHT - BOTTOM;
        for (_, at) in ends.iter_mut().rev() {
            *at = at.min(limit);
            limit = *at - NAME_STEP;
        }
        ends
    }
}

fn short(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e3 => format!("{}k", value / 1e3),
        value => format!("{}", (value * 1e6).round() / 1e6),
    }
}
