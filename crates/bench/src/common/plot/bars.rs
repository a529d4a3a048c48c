//! Horizontal bars, grouped by what they belong to.

use super::svg::{Anchor, Drawing, decades, ticks};
use crate::common::report::Unit;

const WIDTH: f64 = 860.0;
const LABELS: f64 = 240.0;
/// The figure beside a bar needs so much.
const FIGURES: f64 = 110.0;
const BAR: f64 = 12.0;
const GAP: f64 = 9.0;
const TOP: f64 = 78.0;
const BOTTOM: f64 = 34.0;
/// Beyond this the smallest would be invisible beside the largest.
const LINEAR_MAX: f64 = 25.0;
/// The later a bar in its group, the paler.
const PALE: [f64; 4] = [1.0, 0.72, 0.48, 0.28];

/// Whose bars they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    Peer,
    /// A peer that is less durable.
    Less,
    /// Bare SQL.
    Floor,
}

/// A bar, or why there is none.
pub(crate) enum Bar {
    Value { median: f64, least: f64, most: f64 },
    Missing(String),
}

/// The bars of one system.
pub(crate) struct Group {
    pub(crate) label: String,
    pub(crate) kind: Kind,
    /// One for each of the chart's series.
    pub(crate) bars: Vec<Bar>,
}

/// A chart.
pub(crate) struct BarChart {
    pub(crate) title: String,
    pub(crate) unit: Unit,
    /// What the bars of a group are, in their order.
    pub(crate) series: Vec<String>,
    pub(crate) groups: Vec<Group>,
}

/// Where values lie.
struct Scale {
    from: f64,
    to: f64,
    log: bool,
}

impl Scale {
    fn of(values: &[f64]) -> Scale {
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let (least, most) =
            positive.fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        if most / least > LINEAR_MAX {
            let (from, to) = decades(least * 0.8, most);
            return Scale { from, to, log: true };
        }
        Scale { from: 0.0, to: ticks(most).last().copied().unwrap_or(1.0), log: false }
    }

    fn place(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.from) / self.from).log10() / (self.to / self.from).log10()
        } else {
            value / self.to
        };
        LABELS + share.clamp(0.0, 1.0) * (WIDTH - LABELS - FIGURES)
    }

    fn marks(&self) -> Vec<f64> {
        if !self.log {
            return ticks(self.to);
        }
        let decades = (self.to / self.from).log10().round() as i32;
        (0..=decades).map(|power| self.from * 10_f64.powi(power)).collect()
    }
}

impl BarChart {
    pub(crate) fn draw(&self) -> String {
        let group_height = |group: &Group| BAR * group.bars.len() as f64 + GAP;
        let height = TOP + self.groups.iter().map(group_height).sum::<f64>() + BOTTOM;
        let values: Vec<f64> = self.groups.iter().flat_map(|group| &group.bars).flat_map(Bar::values).collect();
        let scale = Scale::of(&values);
        let mut drawing = Drawing::new(WIDTH, height, &self.title);
        self.legend(&mut drawing, scale.log);
        for mark in scale.marks() {
            let x = scale.place(mark);
            drawing.line((x, TOP - 6.0), (x, height - BOTTOM), "grid");
            drawing.text(x, height - BOTTOM + 16.0, Anchor::Middle, "muted small", &self.unit.show(mark));
        }
        let mut y = TOP;
        for group in &self.groups {
            let middle = y + BAR * group.bars.len() as f64 / 2.0 + 4.0;
            drawing.text(LABELS - 8.0, middle, Anchor::End, "", &group.label);
            for (place, bar) in group.bars.iter().enumerate() {
                self.bar(&mut drawing, &scale, bar, group.kind, (place, y));
                y += BAR;
            }
            y += GAP;
        }
        drawing.finish()
    }

    fn bar(&self, drawing: &mut Drawing, scale: &Scale, bar: &Bar, kind: Kind, (place, y): (usize, f64)) {
        let base = y + BAR - 2.5;
        match bar {
            Bar::Value { median, least, most } => {
                let (x, from, to) = (scale.place(*median), scale.place(*least), scale.place(*most));
                let opacity = PALE[place.min(PALE.len() - 1)];
                drawing.rectangle(LABELS, y + 1.0, (x - LABELS).max(1.0), BAR - 2.0, kind.class(), opacity);
                if to - from > 1.5 {
                    drawing.line((from, y + BAR / 2.0), (to, y + BAR / 2.0), "spread");
                }
                drawing.text(x.max(to) + 5.0, base, Anchor::Start, "small", &self.unit.show(*median));
            }
            Bar::Missing(why) => {
                let short: String = why.chars().take(90).collect();
                drawing.text(LABELS + 4.0, base, Anchor::Start, "muted small", &format!("– {short}"));
            }
        }
    }

    fn legend(&self, drawing: &mut Drawing, log: bool) {
        let mut x = 16.0;
        for (kind, name) in [
            (Kind::Ours, "Taskwheel"),
            (Kind::Peer, "peers, as durable"),
            (Kind::Less, "peers, less durable (*)"),
            (Kind::Floor, "bare SQL, no queue"),
        ] {
            if self.groups.iter().any(|group| group.kind == kind) {
                drawing.rectangle(x, 36.0, 10.0, 10.0, kind.class(), 1.0);
                drawing.text(x + 15.0, 45.0, Anchor::Start, "small", name);
                x += 32.0 + 6.0 * name.len() as f64;
            }
        }
        let scale = if log { "logarithmic scale · " } else { "" };
        let thin = "thin lines: least to most";
        drawing.text(WIDTH - 16.0, 45.0, Anchor::End, "muted small", &format!("{scale}{thin}"));
        if self.series.len() > 1 {
            let order = format!("from the top, paler each: {}", self.series.join(" · "));
            drawing.text(16.0, 63.0, Anchor::Start, "muted small", &order);
        }
    }
}

impl Bar {
    fn values(&self) -> Vec<f64> {
        match self {
            Bar::Value { median, least, most } => vec![*median, *least, *most],
            Bar::Missing(_) => Vec::new(),
        }
    }
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Kind::Ours => "ours",
            Kind::Peer => "peer",
            Kind::Less => "less",
            Kind::Floor => "d2",
        }
    }
}
