//! The little of SVG that plots need.

use std::fmt::Write;

/// Classes instead of colours: what they look like depends on the reader's light or dark surroundings.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#1f2328}.title{font-size:15px;font-weight:600}.muted{fill:#656d76}.small{font-size:10.5px}\
.ground{fill:#fff}.grid{stroke:#d8dee4;stroke-width:1}.spread{stroke:#1f2328;stroke-width:1}\
.ours{fill:#0969da}.peer{fill:#6e7781}.less{fill:#bc4c00}\
.line{fill:none;stroke-width:2}.c0{stroke:#0969da}.c1{stroke:#bc4c00}.c2{stroke:#1a7f37}.c3{stroke:#8250df}.c4{stroke:#bf3989}.c5{stroke:#9a6700}\
.d0{fill:#0969da}.d1{fill:#bc4c00}.d2{fill:#1a7f37}.d3{fill:#8250df}.d4{fill:#bf3989}.d5{fill:#9a6700}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.muted{fill:#8d96a0}.ground{fill:#0d1117}.grid{stroke:#30363d}.spread{stroke:#e6edf3}\
.ours{fill:#58a6ff}.peer{fill:#8d96a0}.less{fill:#f0883e}\
.c0{stroke:#58a6ff}.c1{stroke:#f0883e}.c2{stroke:#3fb950}.c3{stroke:#a371f7}.c4{stroke:#db61a2}.c5{stroke:#d29922}\
.d0{fill:#58a6ff}.d1{fill:#f0883e}.d2{fill:#3fb950}.d3{fill:#a371f7}.d4{fill:#db61a2}.d5{fill:#d29922}}";

/// Where a text begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing that grows by shapes.
pub(super) struct Drawing {
    body: String,
    width: f64,
    height: f64,
}

impl Drawing {
    pub(super) fn new(width: f64, height: f64, title: &str) -> Drawing {
        let mut drawing = Drawing { body: String::new(), width, height };
        drawing.push(&format!("<title>{}</title>", escaped(title)));
        drawing.push(&format!("<style>{STYLE}</style>"));
        drawing.rectangle(0.0, 0.0, width, height, "ground", 1.0);
        drawing.text(16.0, 24.0, Anchor::Start, "title", title);
        drawing
    }

    pub(super) fn rectangle(&mut self, x: f64, y: f64, width: f64, height: f64, class: &str, opacity: f64) {
        let opacity = if opacity < 1.0 { format!(" fill-opacity=\"{opacity}\"") } else { String::new() };
        self.push(&format!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"{opacity}/>"
        ));
    }

    pub(super) fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(&format!("<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"));
    }

    pub(super) fn path(&mut self, points: &[(f64, f64)], class: &str) {
        let mut d = String::new();
        for (place, (x, y)) in points.iter().enumerate() {
            // A String takes whatever is written.
            let _ = write!(d, "{}{x:.1} {y:.1}", if place == 0 { "M" } else { "L" });
        }
        self.push(&format!("<path d=\"{d}\" class=\"{class}\"/>"));
    }

    pub(super) fn dot(&mut self, (x, y): (f64, f64), class: &str) {
        self.push(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" class=\"{class}\"/>"));
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        self.push(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\"{anchor}>{}</text>", escaped(text)));
    }

    pub(super) fn finish(self) -> String {
        let Drawing { body, width, height } = self;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\">\n{body}</svg>\n"
        )
    }

    fn push(&mut self, element: &str) {
        self.body.push_str(element);
        self.body.push('\n');
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The powers of ten from below the least to above the most.
pub(super) fn decades(least: f64, most: f64) -> (f64, f64) {
    (10_f64.powf(least.log10().floor()), 10_f64.powf(most.log10().ceil()))
}

/// Round numbers from 0 to above the most.
pub(super) fn ticks(most: f64) -> Vec<f64> {
    let step = 10_f64.powf((most.max(f64::MIN_POSITIVE) / 4.0).log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|times| times * step).into_iter().find(|step| most / step <= 5.0).unwrap_or(step);
    (0..=(most / step).ceil() as u32).map(|number| f64::from(number) * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_out_of_a_drawing() {
        let mut drawing = Drawing::new(10.0, 10.0, "a < b");
        drawing.text(0.0, 0.0, Anchor::Start, "", "<script>&");
        let svg = drawing.finish();
        assert!(svg.contains("&lt;script&gt;&amp;") && !svg.contains("<script>"));
    }

    #[test]
    fn axes_hold_what_they_show() {
        assert_eq!(decades(3.0, 2_500.0), (1.0, 10_000.0));
        assert_eq!(ticks(90.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(0.9).len(), 6);
    }
}
